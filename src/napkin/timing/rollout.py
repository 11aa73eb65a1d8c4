"""The time in which an inference engine generates answers, and in which it receives the new weights.

Symbols: S answers of an engine in a step, r their mean tokens and R the longest one's, p tokens of a prompt, B answers
at a time, W bytes of the weights that a decoding step reads on one rank, c bytes of one answer's cache there, β bytes a
second of memory.

    decoding steps = S·r/B + (R − r)/k: a full batch until the last answer is begun, then those that are longer than the
                     mean; while S ≤ B, R in total; of k batches that are generated one into the other each has a part
    decoding       = steps · W/β + S·r · c/β, but at least its FLOPs at the rate of matmuls

Both hold for any lengths of the answers: a step reads the weights once, and the cache of every answer in it.
"""

from __future__ import annotations

from napkin import term
from napkin.elementwise import Number
from napkin.record import record
from napkin.term import Term
from napkin.timing.rates import Rates

DECODE = "each step reads every weight that it uses and the whole cache: Pope et al. 2022, arXiv:2211.05102"
COLLECTIVES = 2
"""All-reduces of a layer: after attention and after the MLP (Shoeybi et al. 2019, arXiv:1909.08053, section 3)."""
BROADCAST = term.leaf(
    "sync/rate",
    2.6e9,
    "byte/s",
    term.SEEN,
    "verl docs/advance/delta_weight_sync.md: full broadcasts, 7B in 5.5 to 6 s, 72B in 28.5, 235B in 246 to 266",
)


@record
class Rollout:
    """What one engine does in a step.

    answers, prompts    of a step on this engine             at_once  answers that it decodes at a time
    response, longest   tokens of an answer                  ranks    tensor-parallel ranks
    read      bytes of the weights that a decoding step reads on a rank
    cached    bytes of an answer's cache on a rank, at its mean context
    prefill, each       FLOPs of one prompt, and of one token that is decoded
    depth     layers                                         batches  of answers that are generated one into the other
    """

    answers: int
    prompts: int
    at_once: int
    response: int
    longest: int
    ranks: int
    read: float
    cached: float
    prefill: float
    each: float
    depth: int
    batches: int = 1


def generation_time(one: Rollout, rates: Rates) -> Term:
    """Return the seconds of a step's generation: prefill and decode."""
    name = "step/generation"
    matmul = _rate("matmul", rates.peak, rates.matmul, "FLOP/s", one.ranks)
    prompts = term.leaf(
        "prompts_of_an_engine", one.prompts, "1", term.TRUE, "once for all answers: prefixes are cached"
    )
    prefill = term.leaf("flops_of_a_prompt", one.prefill, "FLOP", term.TRUE)
    first = term.divide(f"{name}/prefill", term.multiply("prefill/flops", prompts, prefill), matmul)
    return term.add(name, first, _decode_time(one, rates, matmul))


def _decode_time(one: Rollout, rates: Rates, matmul: Term) -> Term:
    """Return the seconds of all decoding steps."""
    answers = term.leaf("answers_of_an_engine", one.answers, "1", term.TRUE)
    response = term.leaf("tokens_of_an_answer", one.response, "1", term.GIVEN)
    longest = term.leaf("tokens_of_the_longest", one.longest, "1", term.GIVEN)
    at_once = term.leaf("answers_at_a_time", min(one.at_once, one.answers), "1", term.TRUE, "as the cache allows")
    every = term.multiply("decode/tokens", answers, response)
    full = term.divide("decode/steps/full", every, at_once)
    tail = term.subtract("decode/steps/longest", longest, response)
    if one.batches > 1:
        tail = term.divide("decode/steps/tail", tail, term.constant("batches_at_a_time", one.batches))
    steps = term.add("decode/steps", full, tail)
    memory = _rate("memory", rates.bandwidth, rates.memory, "byte/s", 1)
    weights = term.leaf("weights_read", one.read, "byte", term.TRUE, DECODE)
    cached = term.leaf("cache_of_an_answer", one.cached, "byte", term.TRUE)
    moved = term.add(
        "decode/bytes", term.multiply("decode/weights", steps, weights), term.multiply("decode/cache", every, cached)
    )
    flops = term.multiply("decode/flops", every, term.leaf("flops_of_a_token", one.each, "FLOP", term.TRUE))
    bound = term.largest(
        "decode/bound", term.divide("decode/memory", moved, memory), term.divide("decode/compute", flops, matmul)
    )
    calls = COLLECTIVES * one.depth * (one.ranks > 1)
    each = term.leaf("latency_of_a_collective", rates.tensor_latency, "second", term.SEEN)
    waits = term.multiply("decode/collectives", steps, term.constant("collectives_of_a_step", calls), each)
    return term.add("step/generation/decode", bound, waits)


def _rate(name: str, peak: Number, share: Number, unit: str, ranks: int) -> Term:
    """Return what is reached of a rate, on all ranks."""
    return term.multiply(
        f"rate/{name}",
        term.leaf(f"rate/{name}/peak", peak, unit, term.TRUE),
        term.leaf(f"rate/{name}/share", share, "1", term.SEEN, "of training steps"),
        term.constant("ranks", ranks),
    )


def sync_time(weights: Term, ranks: int, gpus: int, apart: bool, rates: Rates) -> Term:
    """Return the seconds in which the engine receives the new weights: by a broadcast to GPUs of its own, else gathered
    from the shards of the same GPUs, each of which takes what its rank of the engine holds."""
    name = "step/weight_transfer"
    if apart:
        return term.divide(name, weights, BROADCAST)
    within = gpus <= rates.node
    link = rates.link * rates.bus if within else rates.network * rates.wire
    each = term.divide("sync/bytes", weights, term.constant("ranks", ranks))
    return term.divide(name, each, term.leaf("sync/rate", link, "byte/s", term.SEEN, "link" if within else "network"))

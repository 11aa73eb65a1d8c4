"""Decoding steps of an inference engine for the responses of a reinforcement learning step, and the time to transfer
new weights to it.

Symbols: S responses of an engine in a step, r their mean tokens and R the longest one's, B responses at a time.

    decoding steps = S·(r − 1)/B + (R − r)/k: a full batch until the last response starts, then the responses longer
    than the mean; R − 1 in total if S ≤ B. A response's first token comes from its prompt's pass. Of k steps' responses
    that are generated one into the other each has a part of the end, and as many times S responses are there to fill
    the batch.

Both hold for any response lengths: a step reads the weights once, and the cache of every response in it
(timing/generation.py). The two parts are passes of their own, because a full batch may be bound by what it computes
where the few last responses wait for the weights.
"""

from __future__ import annotations

from napkin import term
from napkin.record import record
from napkin.term import Term
from napkin.timing.generation import EnginePasses, EngineRanks, GenerationRates, passes_time
from napkin.timing.rates import Rates

SYNC = "step/weight_transfer"
PER_TENSOR = term.leaf(
    "sync/tensor",
    0.7e-3,
    "second",
    term.SEEN,
    "NVIDIA-NeMo/RL pull request 3294, transfer and update: Qwen3-30B-A3B 9.67 s, 235B-A22B 18.4, Nemotron Nano 3 3.56",
)
"""Seconds to export one tensor from the trainer and load it into the engine; each expert's tensor counts separately."""
TO_HOST_AND_BACK = term.leaf(
    "offload/rate",
    3.3e9,
    "byte/s",
    term.SEEN,
    "the same, what its total has besides: 7.5, 21.8 and 9.6 s for 16 bytes a parameter on 16, 64 and 16 GPUs",
)
"""Bytes of a GPU's states that are moved to the host before responses are generated, and back, in a second."""
LENT, LENT_SOURCE = 0.4, "verl docs/advance/v1_async_trainer.md, switch_threshold_ratio"
"""Share of a step's responses that a trainer that switches waits for by default, while it lends its GPUs."""
DISPATCH_SOURCE = "the library's published serialization of a batch"


@record
class Rollout:
    """The work of one engine in a step: its prompts, each once for all its responses because prefixes are cached; its
    responses with a full batch; and the last ones, None if all have one length."""

    prefill: EnginePasses
    decode: EnginePasses
    last: EnginePasses | None
    groups: EngineRanks


def generation_time(rollout: Rollout, rates: GenerationRates) -> Term:
    """Return the seconds of a step's generation: prefill and decode."""
    name = "step/generation"
    passes = {"prefill": rollout.prefill, "decode": rollout.decode, "last": rollout.last}
    parts = (passes_time(f"{name}/{kind}", of, rollout.groups, rates) for kind, of in passes.items() if of is not None)
    return term.add(name, *parts)


def decoding_steps(
    answers: int, at_once: int, response: int, longest: int, batches: int = 1, joined: bool = False
) -> tuple[Term, Term | None]:
    """Return the decoding steps for `answers` responses of `response` mean tokens, `at_once` at a time: those of a full
    batch, and those after it for the responses longer than the mean, None if there are none. batches: number of steps
    whose responses are generated without a gap; joined: the next step's are started before the last of these end."""
    later = term.leaf(
        "later_tokens_of_an_answer", response - 1, "1", term.GIVEN, "the first comes from the prompt's pass"
    )
    every = term.multiply("decode/tokens", term.leaf("answers_of_an_engine", answers, "1", term.TRUE), later)
    together = term.leaf("answers_at_a_time", min(at_once, answers * batches), "1", term.TRUE, "as the cache allows")
    full = term.divide("decode/steps", every, together)
    if longest <= response:
        return full, None
    if joined:
        every = term.leaf("later_tokens_of_the_longest", longest - 1, "1", term.GIVEN)
        least = term.divide("decode/steps_of_the_longest", every, term.constant("steps_at_a_time", batches + 1))
        return full, term.subtract("last/steps", least, full) if float(least.value) > float(full.value) else None
    last = term.subtract(
        "last/steps",
        term.leaf("tokens_of_the_longest", longest, "1", term.GIVEN),
        term.leaf("tokens_of_an_answer", response, "1", term.GIVEN),
    )
    if batches > 1:
        last = term.divide("last/steps/each", last, term.constant("batches_at_a_time", batches))
    return full, last


def together_time(generation: Term, training: Term, engine: int, trainer: int, lent: float) -> Term:
    """Return the seconds of a step in which an engine of its own generates for G seconds while the trainer works for T:
    the longer of both. lent: share l of the responses that must be there before the trainer starts. It lends its GPUs
    until they are, for what the engine, with the share e of all GPUs, did not generate while it trained: (G − T)·e, or
    l·G·e if that is shorter, and the engine generates the others alone in (1 − l)·G. engine, trainer: their GPUs."""
    name = "step/together"
    if not lent:
        return term.largest(name, generation, training)
    share = term.leaf("lent/share", lent, "1", term.SEEN, LENT_SOURCE)
    own = term.leaf("lent/gpus_of_the_engine", engine / (engine + trainer), "1", term.TRUE, "of all GPUs")
    alone = term.subtract("lent/alone", term.constant("1", 1), share)
    part = term.add("lent/part", term.multiply("lent/by_all", share, own), alone)
    missing = term.multiply("lent/missing", own, term.subtract("lent/longer", generation, training))
    waits = term.multiply(f"{name}/generation", part, generation)
    return term.largest(name, waits, term.add(f"{name}/training", training, missing), training)


def offload_time(held: Term) -> Term:
    """Return the seconds to move the trainer's bytes on a GPU to the host and back."""
    return term.divide("step/offload", held, TO_HOST_AND_BACK)


def dispatch_time(name: str, tokens: float, rate: float) -> Term:
    """Return the seconds in which a library's one driver sends the sequences of a pass to the workers: it serializes
    them one after the other, on however many GPUs they are processed. rate: tokens/s."""
    sent = term.leaf(f"{name}/tokens", tokens, "token", term.TRUE, "with the padding that is sent")
    return term.divide(name, sent, term.leaf("dispatch/rate", rate, "token/s", term.SEEN, DISPATCH_SOURCE))


def sync_time(weights: Term, tensors: int, ranks: int, gpus: int, apart: bool, rates: Rates) -> Term:
    """Return the seconds to transfer the new weights to the engine, tensor by tensor. A separate engine receives all of
    them over the network cards of a full node, because a broadcast is a ring over all its GPUs; a colocated one gathers
    the weights of its rank from the shards of the others.

    weights  bytes of the model            tensors  in how many parts they are sent
    ranks    of a colocated engine         gpus     that hold the weights before or after
    apart    the engine has GPUs of its own"""
    within = gpus <= rates.node
    cards = rates.node if apart else 1
    link = rates.link * rates.bus if within else rates.network * rates.wire * cards
    each = term.divide("sync/bytes", weights, term.constant("ranks", 1 if apart else ranks))
    rate = term.leaf("sync/rate", link, "byte/s", term.SEEN, "link" if within else "network")
    calls = term.multiply("sync/tensors", term.leaf("tensors", tensors, "1", term.TRUE), PER_TENSOR)
    return term.add(SYNC, term.divide("sync/moved", each, rate), calls)


def broadcast_time(weights: Term, rate: float, source: str) -> Term:
    """Return the same from a library's published rate of a full broadcast, in byte/s."""
    return term.divide(SYNC, weights, term.leaf("sync/rate", rate, "byte/s", term.SEEN, source))

"""`napkin memory MODEL --inference`: weights, the cache of keys and values, and what still fits beside them."""

from __future__ import annotations

from napkin.cli.command import Inputs
from napkin.cli.machine import accelerator
from napkin.cli.model import sequence
from napkin.errors import BROKEN, OK, NapkinError
from napkin.formulas import allocator, fit, formats, inference, params
from napkin.formulas.layer import Model
from napkin.render.answer import Answer
from napkin.term import ASSUMED, TRUE, Term, add, constant, divide, leaf, multiply, subtract
from napkin.units import human

CACHE = "bf16"
"""Number format of keys and values where nobody says otherwise."""


def serve(inputs: Inputs, model: Model) -> Answer:
    """Bytes per GPU of serving `--batch` sequences of `--seq` tokens; tensor parallelism divides weights and cache."""
    for name in ("optimizer", "recompute", "zero", "pp", "max", "snapshot"):
        if name in inputs:
            raise NapkinError(f"--{name} belongs to training", "leave out --inference, or the option")
    form = formats.find(inputs.get("dtype") or inputs.default("dtype", CACHE))
    seq, ranks = sequence(inputs, model), inputs.get("tp")
    sequences = inputs.get("batch") or int(inputs.default("batch", "1"))
    counted = params.params(model)["params/total"]
    width = divide("bytes_of_a_weight", formats.element_bytes(form), constant("parameter", 1, "param"))
    over = constant("tensor_parallel_ranks", ranks)
    weights = divide("memory/parameters", multiply("weights", counted, width), over)
    cache = divide("memory/kv_cache", _cache(model, seq, sequences, inputs).renamed("cache"), over)
    context = leaf("memory/context", int(allocator.CONTEXT.value), "byte", ASSUMED, allocator.CONTEXT.source)
    total = add("memory/total", weights, cache, context)
    answer = Answer(
        "memory", f"{model.name}, {sequences:,} × {seq:,} tokens served, {form.name} weights: bytes per GPU"
    )
    answer.terms = (weights, cache, context, total)
    answer.notes.append("weights, keys and values alone: what the serving engine adds is not counted")
    if inputs.get("hardware") is not None:
        _room(inputs, answer, model, (weights, cache, context, total), seq, sequences, ranks)
        answer.terms += _pace(inputs, model, width, cache, sequences, over)
        answer.notes.append("time/per_token is what memory allows at best; weights come whole once a step")
    names = [term.name.removeprefix("memory/") for term in answer.terms]
    wide = max(map(len, names))
    lines = [f"  {n.ljust(wide)}  {human(t.value, t.unit)}" for n, t in zip(names, answer.terms, strict=True)]
    answer.pictures, answer.listed = tuple(lines), False
    return answer


def _pace(inputs: Inputs, model: Model, width: Term, cache: Term, sequences: int, over: Term) -> tuple[Term, ...]:
    """The least time of a decoding step, which makes one token for each sequence, and tokens a second at that pace."""
    read = leaf("weights_read", inference.weights_read(model, sequences), "param", TRUE, inference.DECODE)
    once = divide("decode/weights", multiply("decode/weights/all", read, width), over)
    bandwidth = accelerator(inputs).term("memory_bandwidth", "memory_bandwidth")
    time = inference.decode_time(once, cache.renamed("decode/cache"), bandwidth)
    made = constant("tokens_of_a_step", sequences, "token")
    return time, divide("tokens_per_second", made, time)


def _cache(model: Model, seq: int, sequences: int, inputs: Inputs) -> Term:
    inputs.record("cache-dtype", CACHE, "default")
    return inference.cache(model, seq, sequences, 2, CACHE)


def _room(
    inputs: Inputs, answer: Answer, model: Model, terms: tuple[Term, ...], seq: int, sequences: int, ranks: int
) -> None:
    """Capacity, and the largest batch and context that fit beside the weights."""
    weights, _, context, total = terms
    capacity = accelerator(inputs).term("capacity", "memory/capacity", "byte")
    left = subtract("memory/cache_budget", subtract("without_weights", capacity, weights), context)
    room = left.value * ranks

    def fits(batch: int, length: int) -> bool:
        return bool(inference.cache(model, length, batch, 2, CACHE).value <= room)

    batch = fit.largest(lambda n: fits(n, seq)) if room > 0 else 0
    longest = fit.largest(lambda n: fits(sequences, n)) if room > 0 else 0
    answer.terms = (
        *answer.terms,
        capacity,
        left,
        leaf("max/batch", batch, "1", TRUE),
        leaf("max/seq", longest, "token", TRUE),
    )
    if batch >= fit.MOST // 2 or longest >= fit.MOST // 2:
        answer.notes.append("a cache that does not grow, or hardly: the largest is beyond what napkin looks at")
    answer.verdict = fit.FITS if total.value <= capacity.value else fit.NOT
    if inputs.get("must-fit"):
        answer.status = OK if answer.verdict == fit.FITS else BROKEN

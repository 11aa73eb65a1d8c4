"""`napkin memory MODEL --inference`: weights, the cache of keys and values, and what still fits beside them."""

from __future__ import annotations

from typing import Any

from napkin import formats
from napkin.commands.bars import line, stacked
from napkin.commands.command import Inputs
from napkin.commands.machine import read_hardware
from napkin.commands.model import read_sequence
from napkin.errors import BROKEN, CLOSE, OK, NapkinError
from napkin.footprint import allocator
from napkin.footprint import serving as inference
from napkin.footprint.serving import Stored
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.operations.queries import key_heads
from napkin.options.machine import FIGURES
from napkin.options.model import MODEL_OPTIONS
from napkin.options.output import COMMON, DRAWS
from napkin.planning import fit
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series
from napkin.render.text import grid
from napkin.term import ASSUMED, TRUE, Term, add, constant, divide, leaf, multiply, subtract
from napkin.units import human

CACHE = "bf16"
"""Number format of keys and values where nobody says otherwise."""
TAKES = (
    "model",
    "inference",
    "hardware",
    "hardware-file",
    "gpus",
    "tp",
    "dtype",
    "cache-dtype",
    "seq",
    "target-seq",
    "batch",
    "must-fit",
    *MODEL_OPTIONS,
    *COMMON,
    *DRAWS,
    *FIGURES,
)
LISTED = ("fp32", "bf16", "fp8", "int8", "nf4", "int4", "nvfp4")
"""Formats of weights that stand beside the one asked for."""
BESIDE = ("bf16", "fp8")
"""Formats of keys and values that stand beside each."""
LABELS = {
    "max/batch": "max batch",
    "max/seq": "max context",
    "time/per_token": "a token in",
    "tokens_per_second": "pace",
}
STATUS = {fit.FITS: OK, fit.UNDECIDED: CLOSE, fit.NOT: BROKEN}


def serve(inputs: Inputs, model: Model) -> Answer:
    """Bytes per GPU of serving `--batch` sequences of `--seq` tokens; tensor parallelism divides weights and cache."""
    for name in inputs.shown:
        if name in inputs and name not in TAKES and inputs.origin(name) in ("given", "run file"):
            hint = "max/batch and max/seq are part of the answer" if name == "max" else "leave out the one or the other"
            raise NapkinError(f"--{name} belongs to training, not to --inference", hint)
    ranks = _ranks(inputs, model)
    how = inference.stored(inputs.get("dtype") or inputs.default("dtype", "bf16"))
    kept = formats.find(inputs.get("cache-dtype") or inputs.default("cache-dtype", CACHE), "--cache-dtype")
    seq, sequences = read_sequence(inputs, model), inputs.get("batch") or int(inputs.default("batch", "1"))
    each = formats.element_bytes(kept).value
    source, target = 0, inputs.get("target-seq")
    if target is not None:
        if len(model.stacks) == 1:
            raise NapkinError(f"--target-seq: {model.name} has no second stack", "leave it out")
        seq, source = target, seq
    weights = inference.weights(model, how, ranks)
    cache = inference.cache(model, seq, sequences, each, kept.name, ranks, source)
    context = leaf("memory/context", int(allocator.CONTEXT.value), "byte", ASSUMED, allocator.CONTEXT.source)
    total = add("memory/total", weights, cache, context)
    many = f" on {ranks:,} GPUs (tp {ranks:,})" if ranks > 1 else ""
    title = f"{model.name}, {sequences:,} × {seq:,} tokens served, {how.name} weights, {kept.name} keys and values"
    title += f" ({source:,} read)" if source else ""
    answer = Answer("memory", f"{title}{many}: bytes per GPU")
    answer.terms = (weights, cache, context, total)
    beside = weights.value + cache.value
    answer.intervals["memory/total"] = (beside + allocator.CONTEXT.low, beside + allocator.CONTEXT.high)
    answer.notes.append("weights, keys and values alone: what the serving engine adds is not counted")
    if how.each == how.rest < inference.WIDE:
        answer.notes.append(f"every weight in {how.name}; engines mostly leave tables, head and norms in 16 bits")
    parts = [(term.name.removeprefix("memory/"), int(term.value)) for term in (weights, cache, context)]
    hardware = read_hardware(inputs) if inputs.get("hardware") is not None else None
    lines: list[str] = []
    capacity = None
    if hardware is not None:
        capacity = _room(
            inputs, answer, model, hardware, (weights, cache, context, total), (seq, source), sequences, ranks, each
        )
        answer.terms += _pace(model, how, cache, sequences, ranks, hardware)
        answer.notes.append("time/per_token is what memory allows at best; weights come whole once a step")
        lines = [line(LABELS[t.name], human(t.value, t.unit)) for t in answer.terms[6:]]
    lines = [*stacked(parts, None if capacity is None else int(capacity.value)), line("total", *_total(answer)), *lines]
    answer.pictures, answer.listed = tuple(lines), False
    rows = _by_dtype(model, hardware, (seq, source), sequences, ranks, each)
    answer.extra["dtypes"] = rows
    answer.pictures += ("", *(f"  {row}" for row in _table(rows)))
    series = [Series(name, ["GPU"], [size / 2**30]) for name, size in parts]
    marks = [(capacity.value / 2**30, "capacity")] if capacity is not None else []
    answer.plot = (Chart("stack", answer.title, "", "GiB", series, marks=marks),)
    return answer


def _total(answer: Answer) -> tuple[str, str]:
    low, high = answer.intervals["memory/total"]
    return human(answer.terms[3].value, "byte"), f"[{low / 2**30:.4g} – {high / 2**30:.4g} GiB]"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The formats as aligned columns."""
    sizes = ("weights", *(f"cache_{name}" for name in BESIDE))
    cells = [[human(v, "byte") if n in sizes else f"{v:,}" if n != "dtype" else v for n, v in r.items()] for r in rows]
    return grid([[name.replace("_", " ") for name in rows[0]], *cells])


def _ranks(inputs: Inputs, model: Model) -> int:
    """Tensor-parallel ranks: --tp, else all of --gpus; more GPUs hold the same again."""
    gpus = inputs.get("gpus")
    if "tp" not in inputs:
        inputs.shown.pop("tp", None)
        inputs.record("tp", int(inputs.default("tp", str(gpus or 1))), "default")
    ranks = int(inputs.get("tp"))
    if model.heads % ranks:
        raise NapkinError(f"--tp {ranks:,} does not divide the attention heads ({model.heads:,})", "a divisor of them")
    for few in key_heads(model):
        if few % ranks and ranks % few:
            whole = f"--tp {ranks:,} neither divides the key/value heads ({few:,}) nor is a multiple of them"
            raise NapkinError(whole, "a divisor of them, or a multiple")
    if gpus is not None and gpus % ranks:
        raise NapkinError(f"--gpus {gpus:,} is not a multiple of --tp {ranks:,}", "leave out one of the two")
    if gpus is not None and gpus > ranks:
        inputs.note(f"{gpus // ranks:,} replicas of {ranks:,} GPUs: each serves --batch sequences")
    return ranks


def _pace(model: Model, how: Stored, cache: Term, sequences: int, ranks: int, hardware: Hardware) -> tuple[Term, ...]:
    """The least time of a decoding step, which makes one token for each sequence, and tokens a second at that pace."""
    over = constant("tensor_parallel_ranks", ranks)
    read = leaf("weights_read", inference.weights_read(model, sequences), "param", TRUE, inference.DECODE)
    width = leaf("bytes_of_a_weight", how.each, "byte/param", TRUE, how.name)
    head = leaf("head", model.hidden * model.vocabulary, "param", TRUE, "h·V")
    wider = leaf(
        "bytes_more_of_the_head", how.rest - how.each, "byte/param", TRUE, "what a blocked format leaves alone"
    )
    moved = add("decode/weights/all", multiply("decode/read", read, width), multiply("decode/head", head, wider))
    once = divide("decode/weights", moved, over)
    time = inference.decode_time(
        once, cache.renamed("decode/cache"), hardware.term("memory_bandwidth", "memory_bandwidth")
    )
    made = constant("tokens_of_a_step", sequences, "token")
    return time, divide("tokens_per_second", made, time)


def largest(
    model: Model, room: float, lengths: tuple[int, int], sequences: int, ranks: int, each: float
) -> tuple[int, int]:
    """The largest batch of sequences of those lengths (a decoder's, and an encoder's where it has its own), and the
    longest context of `sequences`, whose cache fits in `room` bytes."""
    seq, source = lengths
    if room <= 0:
        return 0, 0

    def fits(batch: int, length: int) -> bool:
        return bool(inference.cache(model, length, batch, each, "", ranks, source).value <= room)

    return fit.largest(lambda n: fits(n, seq)), fit.largest(lambda n: fits(sequences, n))


def _room(
    inputs: Inputs,
    answer: Answer,
    model: Model,
    hardware: Hardware,
    terms: tuple[Term, ...],
    lengths: tuple[int, int],
    sequences: int,
    ranks: int,
    each: float,
) -> Term:
    """Capacity, and the largest batch and context that fit beside the weights."""
    weights, _, context, _ = terms
    capacity = hardware.term("capacity", "memory/capacity", "byte")
    left = subtract("memory/cache_budget", subtract("without_weights", capacity, weights), context)
    batch, longest = largest(model, left.value, lengths, sequences, ranks, each)
    most = (leaf("max/batch", batch, "1", TRUE), leaf("max/seq", longest, "token", TRUE))
    answer.terms = (*answer.terms, capacity, left, *most)
    if batch >= fit.MOST // 2 or longest >= fit.MOST // 2:
        answer.notes.append("a cache that does not grow, or hardly: the largest is beyond what napkin looks at")
    elif model.max_length is not None and longest > model.max_length:
        answer.notes.append(f"max/seq is what memory holds; the model has {model.max_length:,} positions")
    low, high = answer.intervals["memory/total"]
    room = capacity.value
    answer.verdict = fit.FITS if high <= room else fit.NOT if low > room else fit.UNDECIDED
    if inputs.get("must-fit"):
        answer.status = STATUS[answer.verdict]
    return capacity


def _by_dtype(
    model: Model, hardware: Hardware | None, lengths: tuple[int, int], sequences: int, ranks: int, each: float
) -> list[dict[str, Any]]:
    """Weights and cache in other formats, and the largest batch and context beside them."""
    rows = []
    for name in LISTED:
        size = inference.weights(model, inference.stored(name), ranks).value
        row: dict[str, Any] = {"dtype": name, "weights": size}
        for kept in BESIDE:
            width = formats.element_bytes(formats.find(kept)).value
            seq, source = lengths
            row[f"cache_{kept}"] = inference.cache(model, seq, sequences, width, kept, ranks, source).value
        if hardware is not None:
            room = hardware.term("capacity", "capacity", "byte").value - size - allocator.CONTEXT.value
            row["max_batch"], row["max_seq"] = largest(model, room, lengths, sequences, ranks, each)
        rows.append(row)
    return rows

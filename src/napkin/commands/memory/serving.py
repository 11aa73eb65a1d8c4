"""`napkin memory MODEL --inference`: weights, KV cache, and the largest batch and context."""

from __future__ import annotations

from napkin import formats
from napkin.commands.inputs import Inputs
from napkin.commands.memory.question import STATUS
from napkin.commands.question.frozen import read_quantized
from napkin.commands.question.machine import read_gpus, read_hardware
from napkin.commands.question.model import read_sequence, read_target
from napkin.commands.question.stored_weights import read_weights
from napkin.commands.question.tasks import read_task
from napkin.commands.screens.serving import screen
from napkin.errors import NapkinError
from napkin.footprint import served_weights
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.operations.queries import generates
from napkin.planning import enlarge, served, verdicts
from napkin.planning.fewest import fewest, machines
from napkin.planning.served import ServedMemory, Serving
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series
from napkin.term import TRUE, Term, leaf

CACHE = "bf16"
"""Number format of keys and values if none is given."""
WEIGHT_FORMATS = ("fp32", "bf16", "fp8", "int8", "nf4", "int4", "nvfp4")
"""Weight formats that are listed in addition to the requested one."""
CACHE_FORMATS = ("bf16", "fp8")
"""KV cache formats that are listed for each weight format."""


@record
class ServingQuestion:
    """A served model and the accelerator. must_fit: whether the exit status depends on the fit."""

    serving: Serving
    hardware: Hardware | None
    must_fit: bool


def run(inputs: Inputs, model: Model) -> Answer:
    """Answer for the given GPUs, or for the fewest that hold the weights and the cache."""
    if not inputs.has("min"):
        return answer(read(inputs, model))
    from napkin.commands.memory.fewest import check_free, run_on_fewest

    inputs.need("hardware", "which accelerator must it fit on?")
    check_free(inputs, ("gpus", "nodes", "tp"))
    if "dtype" not in inputs and read_quantized(inputs):
        inputs.means("quantized", "dtype")

    def fits(ranks: int) -> bool:
        question = read(inputs.changed({"gpus": str(ranks)}), model)
        held = served.held(question.serving)
        return question.hardware is not None and served.verdict(held, question.hardware.capacity) == verdicts.FITS

    claim = f"{model.name} does not fit on any number of tensor-parallel GPUs up to {model.heads:,}, its heads"
    found = fewest(fits, machines(1, replicas=max(model.heads, 1)))
    ranks = found.or_refuse(claim, "a smaller --batch, a shorter --seq, or --dtype fp8")
    which = "on which it fits, of those that divide the heads"
    return run_on_fewest(ranks, inputs, {}, lambda chosen: answer(read(chosen, model)), which)


def read(inputs: Inputs, model: Model) -> ServingQuestion:
    """Read the question."""
    if "dtype" not in inputs and read_quantized(inputs):
        inputs.means("quantized", "dtype")  # how the weights are stored
    inputs.because(("max",), "it belongs to training; the largest batch and context are part of the answer")
    inputs.because(inputs.command.options, "it belongs to training, not to --inference", "leave out one of the two")
    inputs.depends(("task",), read_task(inputs).scalar)
    ranks = _read_ranks(inputs, model)
    weights = read_weights(inputs, model)
    cache = formats.find(inputs.text("cache-dtype", default=CACHE), "--cache-dtype")
    seq, sequences = read_sequence(inputs, model), inputs.integer("batch", default="1")
    element = formats.element_bytes(cache).value
    source, target = 0, read_target(inputs, model)
    if target is not None:
        seq, source = target, seq
    serving = Serving(model, weights, element, cache.name, sequences, seq, source, ranks)
    hardware = read_hardware(inputs, ("memory-size", "memory-bandwidth")) if inputs.has("hardware") else None
    return ServingQuestion(serving, hardware, inputs.flag("must-fit"))


def _read_ranks(inputs: Inputs, model: Model) -> int:
    """Return the tensor-parallel ranks: --tp, else all of --gpus; more GPUs are replicas."""
    read_gpus(inputs)
    gpus = inputs.integer_or_none("gpus")
    if "tp" not in inputs:
        inputs.record("tp", gpus or 1, "default")
    ranks = inputs.integer("tp")
    if what := served.undivided_when_served(model, ranks):
        raise NapkinError(f"--tp {ranks:,} does not divide {what}", "a divisor of it")
    if gpus is not None and gpus % ranks:
        raise NapkinError(f"--gpus {gpus:,} is not a multiple of --tp {ranks:,}", "leave out one of the two")
    if gpus is not None and gpus > ranks:
        inputs.note(f"{gpus // ranks:,} replicas of {ranks:,} GPUs: each serves --batch sequences")
    return ranks


def answer(question: ServingQuestion) -> Answer:
    """Answer with the bytes per GPU of serving; if an accelerator is named, also with capacity and pace."""
    serving, hardware = question.serving, question.hardware
    found = served.held(serving)
    answer = Answer("memory", (found.weights, found.cache, found.context, found.total))
    answer.intervals["memory/total"] = (found.low, found.high)
    answer.notes.append("only weights, keys and values: what the serving engine adds is not counted")
    if serving.weights.each == serving.weights.rest < served_weights.WIDE:
        answer.notes.append(
            f"every weight in {serving.weights.name}; engines mostly leave embedding, head and norms in 16 bits"
        )
    capacity = None
    if hardware is not None:
        capacity = _against(answer, question, found, hardware)
        if generates(serving.model):
            answer.terms += served.pace(serving, found.cache, hardware.term("memory_bandwidth", "memory_bandwidth"))
            answer.notes.append("time/per_token is the least that memory allows; all weights are read once a step")
    answer.plot = (_chart(_title(serving), found, capacity),)
    rows = _rows_by_format(serving, hardware)
    answer.extra["dtypes"] = rows
    answer.screen = screen(serving, hardware, found, answer, rows)
    return answer


def _against(answer: Answer, question: ServingQuestion, found: ServedMemory, hardware: Hardware) -> Term:
    """Add the largest batch and context that fit with the weights, and the verdict; return the capacity."""
    capacity = hardware.term("capacity", "memory/capacity", "byte")
    left = served.cache_budget(capacity, found)
    answer.verdict = served.verdict(found, capacity.value)
    if question.must_fit:
        answer.status = STATUS[answer.verdict]
    if not generates(question.serving.model):
        answer.terms = (*answer.terms, capacity, left)
        answer.notes.append("it generates no tokens and caches nothing; what a pass computes is not counted")
        return capacity
    batch, longest = served.largest(question.serving, left.value)
    most = (leaf("max/batch", batch, "1", TRUE), leaf("max/seq", longest, "token", TRUE))
    answer.terms = (*answer.terms, capacity, left, *most)
    positions = question.serving.model.max_length
    if batch >= enlarge.MOST // 2 or longest >= enlarge.MOST // 2:
        answer.notes.append("the cache hardly grows: the largest is beyond what napkin tries")
    elif positions is not None and longest > positions:
        answer.notes.append(f"max/seq is what memory holds; the model has {positions:,} positions")
    return capacity


def _chart(title: str, found: ServedMemory, capacity: Term | None) -> Chart:
    """Return a plot of the bytes and their interval, with capacity as a line."""
    parts = (("weights", found.weights), ("KV cache", found.cache), ("context", found.context))
    column = "one GPU, serving"
    series = [Series(name, [column], [term.value / 2**30]) for name, term in parts if term.value]
    marks = [(capacity.value / 2**30, f"capacity\n{capacity.value / 2**30:.1f}")] if capacity is not None else []
    ends = (column, found.low / 2**30, found.high / 2**30)
    return Chart("stack", title, "", "GiB", series, marks=marks, whisker=ends)


def _rows_by_format(serving: Serving, hardware: Hardware | None) -> list[dict[str, str | int | float]]:
    """Return weights and cache in other formats, with the largest batch and context for each."""
    caching = generates(serving.model)
    capacity = None if hardware is None or not caching else hardware.term("capacity", "capacity", "byte").value
    widths = {name: formats.element_bytes(formats.find(name)).value for name in CACHE_FORMATS if caching}
    rows = []
    for name in WEIGHT_FORMATS:
        one = served.in_format(serving, name, widths, capacity)
        row: dict[str, str | int | float] = {"dtype": one.dtype, "weights": one.weights}
        row |= {f"cache_{cache}": size for cache, size in one.caches.items()}
        if one.most is not None:
            row["max_batch"], row["max_seq"] = one.most
        rows.append(row)
    return rows


def _title(serving: Serving) -> str:
    """Return the question in one line."""
    many = f" on {serving.ranks:,} GPUs (tp {serving.ranks:,})" if serving.ranks > 1 else ""
    source = f" ({serving.source:,} read)" if serving.source else ""
    return (
        f"{serving.model.name}, {serving.sequences:,} × {serving.seq:,} tokens served, {serving.weights.name} weights, "
        f"{serving.cache_name} keys and values{source}{many}: bytes per GPU"
    )

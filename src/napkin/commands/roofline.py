"""`napkin roofline`: compute or memory bound. A model, one operation (relu, gelu, dot, matvec, matmul), a transfer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from napkin import formats, units
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.machine import WHICH, element_format, read_dtype, read_hardware, read_hardware_table, read_roof
from napkin.commands.model import read_model, read_sequence
from napkin.commands.screens.roofline import of_model, of_operation, of_transfer
from napkin.commands.small import MATMUL, matmul_words, read_matmul, shape_terms
from napkin.counting import flops
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.hardware import find_link
from napkin.inputs.load import printable
from napkin.operations.model import Model
from napkin.operations.work import Gemm, gemm
from napkin.options.files import DRAWS
from napkin.options.model import MODEL_OPTIONS
from napkin.options.option import parsed
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series
from napkin.render.figures import share
from napkin.render.scale import axis, titled
from napkin.term import GIVEN, Term, leaf
from napkin.timing import roofline
from napkin.timing.roofline import OperationBound
from napkin.units import human

OVER = "over what? e.g. pcie5, nvlink4, ib-ndr, or a rate such as 64GB/s"
QUANTITIES = ("intensity", "ridge", "compute", "memory", "overlapped", "serial", "rate")
MOST_DRAWN = 8
"""Operations of a model in its picture: those that take longest."""


@record
class Roof:
    """What one accelerator reaches in a number format; `width`: bytes of an element."""

    hardware: str
    dtype: str
    width: Term
    peak: Term
    bandwidth: Term


@record
class ElementwiseQuestion:
    """A function of n elements."""

    function: str
    elements: int
    roof: Roof


@record
class MatmulQuestion:
    """One matmul, or a dot product or matrix-vector product as one; `out`: bytes of an element of the result."""

    operation: str
    one: Gemm
    title: str
    out: Term
    roof: Roof


@record
class ModelQuestion:
    """One forward pass of a model."""

    model: Model
    sequences: int
    seq: int
    roof: Roof


@record
class TransferQuestion:
    """Bytes over a link; `memory`: the bandwidth of `hardware`'s own memory, where one is named."""

    size: Term
    link: str
    rate: Term
    memory: Term | None
    hardware: str


# --- the question ----------------------------------------------------------------------------------------------------


def run(inputs: Inputs) -> Answer:
    """Answer for a model or one operation."""
    operation = inputs.text("model", "a model, or relu, gelu, dot, matvec, matmul, transfer").strip().lower()
    if operation in OPERATIONS:
        inputs.because(inputs.command.options, f"{operation} does not depend on it")
        return OPERATIONS[operation](inputs, operation)
    if inputs.has("size"):
        raise NapkinError(
            f"MODEL: no operation is called {printable(operation, 60)!r}",
            did_you_mean(operation, OPERATIONS) or f"one of {', '.join(OPERATIONS)}; a model takes no shape",
        )
    return _answer_model(_read_model(inputs))


def _read_sizes(inputs: Inputs, count: int, what: str) -> tuple[int, ...]:
    """Return the sizes of the argument, `count` of them (0: any number)."""
    inputs.need_all({"size": what, "hardware": WHICH})
    text = inputs.text("size")
    shape = parsed(units.shape, text, "SIZE")
    if count and len(shape) != count:
        raise NapkinError(f"SIZE: {text[:60]!r} has {len(shape)} numbers, not {count}", what)
    return shape


def _read_roof(inputs: Inputs) -> Roof:
    """Return peak and bandwidth, the profile's where it measured them."""
    hardware = read_hardware(inputs, ("peak-flops", "memory-bandwidth"))
    dtype = read_dtype(inputs, hardware)
    given = inputs.text_or_none("dtype")
    form = formats.find(element_format(given.strip().lower()) if given else dtype)
    return Roof(hardware.name, form.name, formats.element_bytes(form), *read_roof(inputs, hardware, dtype))


def _read_elementwise(inputs: Inputs, function: str) -> ElementwiseQuestion:
    """Read the number of elements."""
    elements = math.prod(_read_sizes(inputs, 0, "how many elements, e.g. 1048576 or 1024x1024"))
    return ElementwiseQuestion(function, elements, _read_roof(inputs))


def _read_matmul(inputs: Inputs, operation: str) -> MatmulQuestion:
    """Read a matmul MxKxN; dot n is (1×n)(n×1), matvec MxK is (M×K)(K×1)."""
    if operation == "matmul":
        inputs.need_all({"size": MATMUL, "hardware": WHICH})
        one = read_matmul(inputs)
        title = matmul_words(one)
    elif operation == "dot":
        (k,) = _read_sizes(inputs, 1, "how many elements, e.g. 4096")
        one, title = gemm("dot", 1, k, 1), f"dot product of {k:,} elements"
    else:
        m, k = _read_sizes(inputs, 2, "the matrix MxK, e.g. 4096x4096")
        one, title = gemm("matvec", m, k, 1), f"({m:,} × {k:,}) · vector"
    roof = _read_roof(inputs)
    out = roof.width
    if inputs.has("out-dtype"):
        out = formats.element_bytes(formats.find(inputs.text("out-dtype"), "--out-dtype"), "bytes_of_a_result")
    return MatmulQuestion(operation, one, title, out, roof)


def _read_model(inputs: Inputs) -> ModelQuestion:
    """Read a model's forward pass."""
    inputs.because(("out-dtype", "link"), "it belongs to a single operation, not to a model")
    model = read_model(inputs)
    sequences = inputs.integer("batch", default="1")
    return ModelQuestion(model, sequences, read_sequence(inputs, model), _read_roof(inputs))


def _read_transfer(inputs: Inputs) -> TransferQuestion:
    """Read the bytes and the link."""
    inputs.need_all({"size": "how many bytes, e.g. 80GB", "link": OVER})
    text = inputs.text("size")
    size = leaf("bytes/total", parsed(units.size, text, "SIZE"), "byte", GIVEN)
    name, rate = _read_link(inputs)
    if not inputs.has("hardware"):
        return TransferQuestion(size, name, rate, None, "")
    hardware = read_hardware(inputs, ("memory-bandwidth",))
    return TransferQuestion(size, name, rate, hardware.term("memory_bandwidth", "memory_bandwidth"), hardware.name)


def _read_link(inputs: Inputs) -> tuple[str, Term]:
    """Return the link of --link: a name, a rate, or the accelerator's own (nvlink without a number)."""
    text = inputs.text("link")
    if text.strip()[:1] in "0123456789.":
        return f"a link of {text.strip()}", leaf("link", parsed(units.bandwidth, text, "--link"), "byte/s", GIVEN)
    if text.strip().lower() in ("nvlink", "own") and inputs.has("hardware"):
        hardware = read_hardware(inputs, ("link-bandwidth",))
        return hardware.link_name or f"{hardware.name}'s link", hardware.term("link_bandwidth", "link")
    link = find_link(text, read_hardware_table(inputs))
    return link.name, leaf("link", link.bandwidth, "byte/s", link.kind, link.source)


# --- the answer ------------------------------------------------------------------------------------------------------


def _answer_elementwise(question: ElementwiseQuestion) -> Answer:
    """Answer for an elementwise function."""
    function, roof = question.function, question.roof
    work, moved = roofline.elementwise(function, question.elements, roof.width)
    answer = _bounded(work, moved, roof)
    answer.notes.append(f"the intensity of {function} does not depend on its size: {roofline.ELEMENTWISE[function][1]}")
    asked = f"{function} of {question.elements:,} elements"
    answer.screen = of_operation((asked, *_where(roof)), answer.by_path(), str(answer.verdict))
    answer.plot = (_chart(asked, [(asked, answer.by_path()["intensity"].value)], roof),)
    return answer


def _where(roof: Roof) -> tuple[str, str]:
    """Return the number format and the accelerator as clauses of a question."""
    return roof.dtype, roof.hardware


def _answer_matmul(question: MatmulQuestion) -> Answer:
    """Answer for a matmul, with the batch from which on it is compute bound."""
    roof, one = question.roof, question.one
    work, moved = roofline.product_terms(one, roof.width, question.out)
    answer = _bounded(work, moved, roof)
    answer.terms += tuple(shape_terms(one))
    rows_are = "rows (m)" if question.operation == "matmul" else "vectors at once"
    if question.operation != "dot":
        _add_smallest_batch(answer, question, rows_are)
    answer.screen = of_operation((question.title, *_where(roof)), answer.by_path(), str(answer.verdict), rows_are)
    answer.plot = (_chart(question.title, [(question.title, answer.by_path()["intensity"].value)], roof),)
    return answer


def _add_smallest_batch(answer: Answer, question: MatmulQuestion, rows_are: str) -> None:
    """Add the fewest rows (for a matvec: vectors) at which the same weights are compute bound."""
    one, is_matmul = question.one, question.operation == "matmul"
    ridge = next(t for t in answer.terms if t.name == "ridge")
    rows = one if is_matmul else gemm("matvec", 1, one.k, one.m)  # y = W·x is one row xᵀ·Wᵀ
    least = roofline.smallest_batch(rows, question.roof.width, question.out, ridge)
    if least is None:
        answer.notes.append(f"no number of {rows_are} makes it compute bound: k and n are too small for this ridge")
    else:
        answer.terms += (least,)
        answer.notes.append(f"from {human(least.value, '1')} {rows_are} on, it is compute bound")


def _answer_model(question: ModelQuestion) -> Answer:
    """Answer for one forward pass of a model, operation by operation."""
    roof = question.roof
    over = flops.works(question.model, question.sequences, question.seq)
    worked = flops.by_operation(question.model, over)
    moved = roofline.model_bytes(question.model, over, roof.width)
    found = roofline.bound_of_all(worked, moved, roof.peak, roof.bandwidth)
    terms = [*(found[key] for key in QUANTITIES), found["intensity"].parts[0], found["intensity"].parts[1]]
    terms += [*worked.values(), *moved.values()]
    rows = [_row(one) for one in roofline.bound_of_each(worked, moved, found)]
    answer = Answer(
        "roofline",
        terms=terms,
        rows=rows,
        extra={"columns": {"flops": "FLOP", "bytes": "byte", "intensity": "FLOP/byte", "time": "second"}},
        verdict=roofline.verdict(found),
        notes=["each operation is a kernel of its own, attention is flash; backward takes about twice both"],
    )
    shape = f"{question.sequences:,} × {question.seq:,} tokens"
    asked = (f"Forward pass of {question.model.name}", shape, *_where(roof))
    answer.screen = of_model(asked, answer.by_path(), str(answer.verdict), rows)
    drawn = sorted((row for row in rows if row["flops"]), key=lambda row: -float(row["share"]))[:MOST_DRAWN]
    named = [
        (
            f"{str(row['operation']).replace('_', ' ')}, {share(float(row['share']))} of the time",
            float(row["intensity"]),
        )
        for row in drawn
    ]
    answer.plot = (_chart(f"forward pass of {question.model.name}, {shape}", named, roof),)
    return answer


def _row(one: OperationBound) -> dict[str, str | float]:
    """Return one operation over all its layers as a row: FLOPs, bytes, intensity, time and what binds it."""
    return {
        "operation": one.name,
        "flops": one.flops,
        "bytes": one.bytes,
        "intensity": one.intensity,
        "time": one.time,
        "share": one.share,
        "bound": one.bound,
    }


def _bounded(work: Term, moved: Term, roof: Roof) -> Answer:
    """Answer with the bounds of FLOPs and bytes."""
    found = roofline.bounds(work, moved, roof.peak, roof.bandwidth)
    terms = [*(found[key] for key in QUANTITIES), work, moved]
    return Answer("roofline", terms=terms, verdict=roofline.verdict(found))


def _chart(title: str, named: Sequence[tuple[str, float]], roof: Roof) -> Chart:
    """Draw the roof over arithmetic intensity, the ridge, and where each operation can get at best.
    named: (operation, FLOP/byte)."""
    peak, bandwidth = float(roof.peak.value), float(roof.bandwidth.value)
    ridge = peak / bandwidth
    low, high = (end(ridge, *(at for _, at in named)) for end in (min, max))
    low, high = low / 4, high * 4
    scale, unit = axis([peak], "FLOP/s")
    at = [low, ridge, high]
    series = [Series("roof", at, [roofline.attainable(x, peak, bandwidth) / scale for x in at], style="line")]
    reached = [(name, x, roofline.attainable(x, peak, bandwidth) / scale) for name, x in named]
    series += [Series(name, [x], [speed], style="points") for name, x, speed in reached]
    return Chart(
        "lines",
        f"roofline of {roof.hardware}, {roof.dtype}: {title}",
        "arithmetic intensity (FLOP/byte)",
        titled("attainable speed", unit),
        series,
        log_x=True,
        log_y=True,
        marks=[(peak / scale, f"peak\n{peak / scale:,.4g}")],
        limits=[(ridge, f"ridge {ridge:,.4g}; memory bound to its left")],
    )


def _answer_transfer(question: TransferQuestion) -> Answer:
    """Answer with the time over a link, and over the accelerator's own memory where one is named."""
    over = roofline.transfer(question.size, question.rate, "time/link")
    terms = [over, question.size, question.rate]
    if question.memory is not None:
        memory = roofline.transfer(question.size, question.memory, "time/memory")
        terms += [memory, roofline.slower(over, memory)]
    answer = Answer("roofline", terms=terms)
    answer.screen = of_transfer(answer.by_path(), question.link)
    return answer


def _run_elementwise(inputs: Inputs, function: str) -> Answer:
    return _answer_elementwise(_read_elementwise(inputs, function))


def _run_matmul(inputs: Inputs, operation: str) -> Answer:
    return _answer_matmul(_read_matmul(inputs, operation))


def _run_transfer(inputs: Inputs, _: str) -> Answer:
    return _answer_transfer(_read_transfer(inputs))


OPERATIONS: dict[str, Callable[[Inputs, str], Answer]] = {
    "relu": _run_elementwise,
    "gelu": _run_elementwise,
    "dot": _run_matmul,
    "matvec": _run_matmul,
    "matmul": _run_matmul,
    "transfer": _run_transfer,
}

COMMAND = Command(
    "roofline",
    "Compute or memory bound: an operation or a model's operations against the accelerator's ridge",
    run,
    brief="Compute or memory bound, on this accelerator",
    options=(
        *(*MODEL_OPTIONS, "hardware", "hardware-file", "profile", "dtype", "out-dtype", "batch", "seq", "link"),
        *DRAWS,
    ),
    arguments=("model", "size"),
    verdicts=(roofline.COMPUTE, roofline.MEMORY),
    examples=(
        "roofline matmul 4096x4096x4096 --hardware h100 --dtype bf16",
        "roofline relu 1048576 --hardware h100",
        "roofline matvec 4096x4096 --hardware h100",
        "roofline transfer 80GB --link pcie5 --hardware h100",
        "roofline llama3-8b --hardware h100 --seq 8192",
    ),
)

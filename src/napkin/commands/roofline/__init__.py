"""`napkin roofline`: compute or memory bound. A model, one operation (relu, gelu, dot, matvec, matmul), a transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.matmul_answers import shape_terms
from napkin.commands.matmul_or_linear import check_one_word
from napkin.commands.roofline.question import (
    ElementwiseQuestion,
    MatmulQuestion,
    ModelQuestion,
    Roof,
    TransferQuestion,
    read_elementwise,
    read_forward_pass,
    read_product,
    read_transfer,
)
from napkin.commands.screens.roofline import of_model, of_operation, of_transfer
from napkin.counting import flops
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.load import printable
from napkin.operations.work import gemm
from napkin.options.model import MODEL_OPTIONS
from napkin.options.output import DRAWS
from napkin.render.answer import Answer
from napkin.render.chart import Chart, Series, axis, titled
from napkin.render.figures import share
from napkin.term import Term
from napkin.timing import roofline
from napkin.timing.roofline import OperationBound
from napkin.units import human

QUANTITIES = ("intensity", "ridge", "compute", "memory", "overlapped", "serial", "rate")
MOST_DRAWN = 8
"""Number of operations in the plot of a model: those that take longest."""


def run(inputs: Inputs) -> Answer:
    """Answer for a model or one operation."""
    operation = inputs.text("model", "a model, or relu, gelu, dot, matvec, matmul, transfer").strip().lower()
    operation = SAME.get(operation, operation)
    if operation in OPERATIONS:
        inputs.because(inputs.command.options, f"{operation} does not depend on it")
        return OPERATIONS[operation](inputs, operation)
    if inputs.has("size"):
        check_one_word(operation, inputs.text("size"))
        raise NapkinError(
            f"MODEL: no operation is called {printable(operation, 60)!r}",
            did_you_mean(operation, OPERATIONS) or f"one of {', '.join(OPERATIONS)}; a model takes no shape",
        )
    if operation in OF_MODELS:
        raise NapkinError(
            f"{operation} belongs to a model", "napkin roofline MODEL lists it with the model's other operations"
        )
    return _answer_model(read_forward_pass(inputs))


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
    """Answer for a matmul, with the batch size from which it is compute bound."""
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
        notes=["each operation is a separate kernel, attention is flash; backward takes about twice both"],
    )
    shape = f"{question.sequences:,} × {question.seq:,} tokens"
    asked = (f"Forward pass of {question.model.name}", shape, *_where(roof))
    answer.screen = of_model(asked, answer.by_path(), str(answer.verdict), rows, question.sequences)
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
    """Return one operation over all its layers as a row: FLOPs, bytes, intensity, time and bound."""
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
    """Answer with the compute time, the memory time and the bound."""
    found = roofline.bounds(work, moved, roof.peak, roof.bandwidth)
    terms = [*(found[key] for key in QUANTITIES), work, moved]
    return Answer("roofline", terms=terms, verdict=roofline.verdict(found))


def _chart(title: str, named: Sequence[tuple[str, float]], roof: Roof) -> Chart:
    """Draw the roofline over arithmetic intensity, the ridge point, and the bound of each operation.
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
    """Answer with the time over a link, and over the accelerator's own memory if one is named."""
    over = roofline.transfer(question.size, question.rate, "time/link")
    terms = [over, question.size, question.rate]
    if question.memory is not None:
        memory = roofline.transfer(question.size, question.memory, "time/memory")
        terms += [memory, roofline.slower(over, memory)]
    answer = Answer("roofline", terms=terms)
    answer.screen = of_transfer(answer.by_path(), question.link)
    return answer


def _run_elementwise(inputs: Inputs, function: str) -> Answer:
    return _answer_elementwise(read_elementwise(inputs, function))


def _run_matmul(inputs: Inputs, operation: str) -> Answer:
    return _answer_matmul(read_product(inputs, operation))


def _run_transfer(inputs: Inputs, _: str) -> Answer:
    return _answer_transfer(read_transfer(inputs))


OPERATIONS: dict[str, Callable[[Inputs, str], Answer]] = {
    "relu": _run_elementwise,
    "gelu": _run_elementwise,
    "dot": _run_matmul,
    "matvec": _run_matmul,
    "matmul": _run_matmul,
    "transfer": _run_transfer,
}

OF_MODELS = ("attention", "softmax", "norm", "layernorm", "rmsnorm", "embedding", "mlp", "lm_head", "loss")
"""Operations that only a model has."""
SAME = {"gemm": "matmul", "mm": "matmul", "gemv": "matvec", "copy": "transfer"}
"""Other names of operations."""

COMMAND = Command(
    "roofline",
    "Compute-bound or memory-bound: arithmetic intensity of operations against an accelerator's ridge point",
    run,
    brief="Compute-bound or memory-bound, on an accelerator",
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

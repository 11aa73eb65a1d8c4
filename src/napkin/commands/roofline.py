"""`napkin roofline`: compute or memory bound. A model, one operation (relu, gelu, dot, matvec, matmul), a transfer."""

from __future__ import annotations

from collections.abc import Callable

from napkin import formats, units
from napkin.commands.command import Command, Inputs
from napkin.commands.machine import element_format, read_dtype, read_hardware, read_hardware_table, read_roof
from napkin.commands.model import read_model, read_sequence
from napkin.commands.small import matmul_of, shape_terms
from napkin.counting import flops
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.hardware import find_link
from napkin.inputs.load import printable
from napkin.operations.base import Gemm, gemm
from napkin.options.model import MODEL_OPTIONS
from napkin.options.option import parsed
from napkin.render.answer import Answer
from napkin.term import GIVEN, Term, divide, leaf
from napkin.timing import roofline
from napkin.units import human

Row = dict[str, str | float]


def run(inputs: Inputs) -> Answer:
    operation = inputs.need("model", "a model, or relu, gelu, dot, matvec, matmul, transfer").strip().lower()
    if operation in OPERATIONS:
        for name in ("seq", "assume-ignorable"):
            if name in inputs:
                raise NapkinError(f"--{name} does not apply to {operation}", "it belongs to a model")
        return OPERATIONS[operation](inputs, operation)
    if inputs.get("size") is not None:
        raise NapkinError(
            f"MODEL: no operation is called {printable(operation, 60)!r}",
            did_you_mean(operation, OPERATIONS) or f"one of {', '.join(OPERATIONS)}; a model takes no shape",
        )
    return _model(inputs)


def _sizes(inputs: Inputs, count: int, what: str) -> tuple[int, ...]:
    text = inputs.need("size", what)
    shape = parsed(units.shape, text, "SIZE")
    if count and len(shape) != count:
        raise NapkinError(f"SIZE: {text[:60]!r} has {len(shape)} numbers, not {count}", what)
    return shape


def _machine(inputs: Inputs) -> tuple[str, str, Term, Term, Term]:
    """(accelerator's name, dtype, bytes of an element, peak, bandwidth)."""
    hardware = read_hardware(inputs)
    dtype = read_dtype(inputs, hardware)
    given = inputs.get("dtype")
    form = formats.find(element_format(given.strip().lower()) if given else dtype)
    return hardware.name, form.name, formats.element_bytes(form), *read_roof(inputs, hardware, dtype)


def _elementwise(inputs: Inputs, function: str) -> Answer:
    shape = _sizes(inputs, 0, "how many elements, e.g. 1048576 or 1024x1024")
    n = 1
    for size in shape:
        n *= size
    name, dtype, width, peak, bandwidth = _machine(inputs)
    work, moved = roofline.elementwise(function, n, width)
    inputs.note(f"the intensity of {function} does not depend on its size: {roofline.ELEMENTWISE[function][1]}")
    return _bounded(f"{function} of {n:,} elements in {dtype} on {name}", work, moved, peak, bandwidth)


def _product(inputs: Inputs, operation: str) -> Answer:
    """dot n is (1×n)(n×1), matvec MxK is (M×K)(K×1)."""
    if operation == "matmul":
        one = matmul_of(inputs)
        title = f"({one.m:,} × {one.k:,}) · ({one.k:,} × {one.n:,})"
    elif operation == "dot":
        (k,) = _sizes(inputs, 1, "how many elements, e.g. 4096")
        one, title = gemm("dot", 1, k, 1), f"dot product of {k:,} elements"
    else:
        m, k = _sizes(inputs, 2, "the matrix MxK, e.g. 4096x4096")
        one, title = gemm("matvec", m, k, 1), f"({m:,} × {k:,}) · vector"
    name, dtype, width, peak, bandwidth = _machine(inputs)
    out = width
    if inputs.get("out-dtype") is not None:
        out = formats.element_bytes(formats.find(inputs.get("out-dtype"), "--out-dtype"), "bytes_of_a_result")
    work, moved = roofline.product_terms(one, width, out)
    answer = _bounded(f"{title} in {dtype} on {name}", work, moved, peak, bandwidth)
    answer.terms += tuple(shape_terms(one))
    if operation != "dot":
        _batch(inputs, answer, one, operation, width, out)
    return answer


def _batch(inputs: Inputs, answer: Answer, one: Gemm, operation: str, width: Term, out: Term) -> None:
    """The fewest rows (for a matvec: vectors) at which the same weights are compute bound."""
    ridge = next(t for t in answer.terms if t.name == "ridge")
    rows = one if operation == "matmul" else gemm("matvec", 1, one.k, one.m)  # y = W·x is one row xᵀ·Wᵀ
    least = roofline.smallest_batch(rows, width, out, ridge)
    what = "rows m" if operation == "matmul" else "vectors at once"
    if least is None:
        inputs.note(f"no number of {what} makes it compute bound: k and n are too small for this ridge")
    else:
        answer.terms += (least,)
        inputs.note(f"from {human(least.value, '1')} {what} on, it is compute bound")


def _model(inputs: Inputs) -> Answer:
    """One forward pass of a model, operation by operation."""
    for option in ("out-dtype", "link"):
        if option in inputs:
            raise NapkinError(f"--{option} does not apply to a model", "it belongs to a single operation")
    model = read_model(inputs)
    sequences = inputs.get("batch") or int(inputs.default("batch", "1"))
    seq = read_sequence(inputs, model)
    hardware, dtype, width, peak, bandwidth = _machine(inputs)
    over = flops.works(model, sequences, seq)
    worked = flops.by_operation(model, over)
    moved = roofline.model_bytes(model, over, width)
    found = roofline.bound_of_all(worked, moved, peak, bandwidth)
    order = ("intensity", "ridge", "compute", "memory", "overlapped", "serial", "rate")
    terms = [*(found[key] for key in order), found["intensity"].parts[0], found["intensity"].parts[1]]
    terms += [*worked.values(), *moved.values()]
    rows = [_row(name, worked.get(name), size, found, peak, bandwidth) for name, size in moved.items()]
    title = f"{model.name}, forward over {sequences:,} × {seq:,} tokens in {dtype} on {hardware}"
    inputs.note("each operation is a kernel of its own, attention is flash; backward takes about twice both")
    units_of = {"flops": "FLOP", "bytes": "byte", "intensity": "FLOP/byte", "time": "second"}
    word = roofline.verdict(found)
    answer = Answer("roofline", title, terms, rows=rows, extra={"units": units_of}, verdict=word, listed=False)
    answer.pictures = tuple(f"  {t.name.ljust(15)}  {human(t.value, t.unit)}" for t in terms[: len(order)])
    return answer


def _row(name: str, worked: Term | None, moved: Term, found: dict[str, Term], peak: Term, bandwidth: Term) -> Row:
    """One operation over all its layers: its FLOPs, bytes, intensity, time and what binds it."""
    done = 0 if worked is None else worked.value
    compute, memory = done / peak.value, moved.value / bandwidth.value
    return {
        "operation": name,
        "flops": done,
        "bytes": moved.value,
        "intensity": done / moved.value,
        "time": max(compute, memory),
        "share": max(compute, memory) / found["overlapped"].value,
        "bound": roofline.COMPUTE if compute >= memory else roofline.MEMORY,
    }


def _bounded(title: str, work: Term, moved: Term, peak: Term, bandwidth: Term) -> Answer:
    found = roofline.bounds(work, moved, peak, bandwidth)
    word = roofline.verdict(found)
    order = ("intensity", "ridge", "compute", "memory", "overlapped", "serial", "rate")
    terms = [*(found[key] for key in order), work, moved]
    return Answer("roofline", title, terms, verdict=word)


def _transfer(inputs: Inputs, operation: str) -> Answer:
    """Bytes over a link, against the accelerator's own memory where one is named."""
    text = inputs.need("size", "how many bytes, e.g. 80GB")
    size = leaf("bytes/total", parsed(units.size, text, "SIZE"), "byte", GIVEN)
    name, rate = _link(inputs)
    over = roofline.transfer(size, rate, "time/link")
    terms = [over, size, rate]
    if inputs.get("hardware") is not None:
        hardware = read_hardware(inputs)
        memory = roofline.transfer(size, hardware.term("memory_bandwidth", "memory_bandwidth"), "time/memory")
        terms += [memory, divide("slower", over, memory)]
    return Answer("roofline", f"{human(size.value, 'byte')} over {name}", terms)


def _link(inputs: Inputs) -> tuple[str, Term]:
    """The link of --link: a name, a rate, or the accelerator's own (nvlink without a number)."""
    text = inputs.need("link", "over what? e.g. pcie5, nvlink4, ib-ndr, or a rate such as 64GB/s")
    if text.strip()[:1] in "0123456789.":
        rate = parsed(units.bandwidth, text, "--link")
        return f"a link of {text.strip()}", leaf("link", rate, "byte/s", GIVEN)
    if text.strip().lower() in ("nvlink", "own") and inputs.get("hardware") is not None:
        hardware = read_hardware(inputs)
        return hardware.link_name or f"{hardware.name}'s link", hardware.term("link_bandwidth", "link")
    link = find_link(text, read_hardware_table(inputs))
    return link.name, leaf("link", link.bandwidth, "byte/s", link.kind, link.source)


OPERATIONS: dict[str, Callable[[Inputs, str], Answer]] = {
    "relu": _elementwise,
    "gelu": _elementwise,
    "dot": _product,
    "matvec": _product,
    "matmul": _product,
    "transfer": _transfer,
}

COMMAND = Command(
    "roofline",
    "Compute or memory bound: an operation or a model's operations against the accelerator's ridge",
    run,
    (*MODEL_OPTIONS, "hardware", "hardware-file", "profile", "dtype", "out-dtype", "batch", "seq", "link"),
    arguments=("model", "size"),
    examples=(
        "roofline matmul 4096x4096x4096 --hardware h100 --dtype bf16",
        "roofline relu 1048576 --hardware h100",
        "roofline matvec 4096x4096 --hardware h100",
        "roofline transfer 80GB --link pcie5 --hardware h100",
        "roofline llama3-8b --hardware h100 --seq 8192",
    ),
)

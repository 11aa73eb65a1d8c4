"""The question of `napkin roofline`, read from the options."""

from __future__ import annotations

import math

from napkin import formats, units
from napkin.commands.inputs import Inputs
from napkin.commands.matmul_answers import MATMUL, matmul_words, read_matmul
from napkin.commands.question.machine import (
    WHICH,
    element_format,
    read_dtype,
    read_hardware,
    read_hardware_table,
    read_roof,
)
from napkin.commands.question.model import read_model, read_sequence
from napkin.errors import NapkinError
from napkin.inputs.hardware import find_link
from napkin.operations.model import Model
from napkin.operations.work import Gemm, gemm
from napkin.options.option import parsed
from napkin.record import record
from napkin.term import GIVEN, Term, leaf

OVER = "over what? e.g. pcie5, nvlink4, ib-ndr, or a rate such as 64GB/s"


@record
class Roof:
    """Peak and bandwidth of one accelerator for a number format; `width`: bytes of an element."""

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
    """Bytes over a link; `memory`: the bandwidth of `hardware`'s own memory, if one is named."""

    size: Term
    link: str
    rate: Term
    memory: Term | None
    hardware: str


def _read_sizes(inputs: Inputs, count: int, what: str) -> tuple[int, ...]:
    """Return the sizes of the argument, `count` of them (0: any number)."""
    inputs.need_all({"size": what, "hardware": WHICH})
    text = inputs.text("size")
    shape = parsed(units.shape, text, "SHAPE")
    if count and len(shape) != count:
        raise NapkinError(f"SHAPE: {text[:60]!r} has {len(shape)} numbers, not {count}", what)
    return shape


def _read_roof(inputs: Inputs) -> Roof:
    """Return peak and bandwidth, the profile's if it measured them."""
    hardware = read_hardware(inputs, ("peak-flops", "memory-bandwidth"))
    dtype = read_dtype(inputs, hardware)
    given = inputs.text_or_none("dtype")
    form = formats.find(element_format(given.strip().lower()) if given else dtype)
    return Roof(hardware.name, form.name, formats.element_bytes(form), *read_roof(inputs, hardware, dtype))


def read_elementwise(inputs: Inputs, function: str) -> ElementwiseQuestion:
    """Read the number of elements."""
    elements = math.prod(_read_sizes(inputs, 0, "how many elements, e.g. 1048576 or 1024x1024"))
    return ElementwiseQuestion(function, elements, _read_roof(inputs))


def read_product(inputs: Inputs, operation: str) -> MatmulQuestion:
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


def read_forward_pass(inputs: Inputs) -> ModelQuestion:
    """Read a model's forward pass."""
    inputs.because(("out-dtype", "link"), "it belongs to a single operation, not to a model")
    model = read_model(inputs)
    sequences = inputs.integer("batch", default="1")
    return ModelQuestion(model, sequences, read_sequence(inputs, model), _read_roof(inputs))


def read_transfer(inputs: Inputs) -> TransferQuestion:
    """Read the bytes and the link."""
    inputs.need_all({"size": "how many bytes, e.g. 80GB", "link": OVER})
    text = inputs.text("size")
    size = leaf("bytes/total", parsed(units.size, text, "SHAPE"), "byte", GIVEN)
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

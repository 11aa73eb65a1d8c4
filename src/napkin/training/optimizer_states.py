"""Bytes of an optimizer's states, as terms.

For a tensor of n elements with w bytes per element:
    whole     n · w          (momentum, exp_avg, …)
    rows      n / last · w   one element per row, for tensors of two or more dimensions (factored second moments)
    columns   n / second-last · w
    scalar    4              a step counter
    blocks    n + 4·⌈n/256⌉  one byte per element and an fp32 scale per block; 4·n for n < 4096;
              n/2 + 4·⌈n/128⌉ + 64 in 4 bits, w·n for n < 4096
    one       w              a single element
    grams     Σ a² · w       over the sides a of a matrix (cut: of its blocks), a factor of Shampoo or SOAP
    low rank  r · max side   moments of a gradient that is projected to rank r; as blocks too
    projection  r · min side  the projection matrix; also as int4: half a byte each, a scale and a zero of w bytes
              per 256
"""

from __future__ import annotations

from napkin import formats
from napkin.elementwise import Number, ceil_div, where
from napkin.errors import Refused
from napkin.record import record
from napkin.term import TRUE, Term, add, constant, divide, leaf, multiply
from napkin.training.optimizer import (
    BLOCKS,
    COLUMNS,
    CUT_GRAMS,
    GRAMS,
    LOW_RANK,
    LOW_RANK_BLOCKS,
    ONE,
    PROJECTION,
    PROJECTION_INT4,
    ROWS,
    SCALAR,
    WHOLE,
    Optimizer,
    State,
    counters_on_device,
)
from napkin.training.optimizer_step import FP32_BYTES
from napkin.training.optimizer_work import sums_of_squares

COUNTER_BYTES = 4
BLOCK = {8: 256, 4: 128}
"""Elements that share a scale, by the bits of each."""
SMALLEST_QUANTIZED = 4096
MAP_BYTES = 1024
"""An 8-bit state's code book: 256 fp32 numbers, one for all tensors."""
EACH = "optimizer/bytes_per_param"


def elements_of(state: State, shape: tuple[int, ...]) -> int:
    """Return the elements of a state for a tensor of that shape."""
    n = 1
    for size in shape:
        n *= size
    if state.layout == SCALAR:
        return 1
    if state.layout == ONE:
        return 1
    if state.layout == ROWS:
        return n // shape[-1]
    if state.layout == COLUMNS:
        return n // shape[-2]
    if state.layout in (GRAMS, CUT_GRAMS):
        return sums_of_squares(shape, state.size, cut=state.layout == CUT_GRAMS)
    least, most = sorted(shape[-2:]) if len(shape) > 1 else (1, n)
    if state.layout in (LOW_RANK, LOW_RANK_BLOCKS):
        return min(state.size, least) * most
    return min(state.size, least) * least if state.layout in (PROJECTION, PROJECTION_INT4) else n


def quantized_bytes(n: Number, bits: int, width: Number) -> Number:
    """Return the bytes of one state of n elements in blocks: their bits, an fp32 scale for each block, and in 4 bits a
    code book of 16 codes; below 4096 elements, `width` bytes each."""
    blocks = ceil_div(n * bits, 8) + 4 * ceil_div(n, BLOCK[bits]) + (4 * 16 if bits == 4 else 0)
    return where(n < SMALLEST_QUANTIZED, width * n, blocks)


def state_bytes(state: State, shape: tuple[int, ...], width: Number) -> Number:
    """Return the bytes of a state of one tensor; `width`: bytes of the state's number format if it follows the
    parameter."""
    n = elements_of(state, shape)
    if state.layout == SCALAR:
        return COUNTER_BYTES
    if state.layout in (BLOCKS, LOW_RANK_BLOCKS):
        return quantized_bytes(n, state.bits, FP32_BYTES if state.bits == 8 else width)
    if state.layout == PROJECTION_INT4:
        return ceil_div(n, 2) + 2 * ceil_div(n, BLOCK[8]) * width
    return n * (FP32_BYTES if state.fp32 else width)


def counters(optimizer: Optimizer) -> int:
    """Return the bytes of the scalar states of each parameter tensor."""
    return COUNTER_BYTES * sum(s.layout == SCALAR for s in optimizer.states)


def per_param(optimizer: Optimizer, width: Term, name: str = "optimizer") -> Term:
    """Return the bytes for each parameter of large tensors: copies × the state's bytes. `width` in byte/param, that of
    a state which follows the parameter's dtype.

    Raises Refused (3) for factored states, whose bytes depend on the shapes."""
    if optimizer.factored:
        raise Refused(
            f"the bytes per parameter of {optimizer.name} depend on the shapes of the matrices",
            f"napkin memory llama3-8b --optimizer {optimizer.name} counts them from a model's shapes",
        )
    parts = []
    for state in optimizer.states:
        if state.layout == WHOLE:
            each = leaf("bytes_of_fp32", FP32_BYTES, "byte/param", TRUE, optimizer.source) if state.fp32 else width
            parts.append(each.renamed(f"{name}/{state.name}"))
        elif state.layout == BLOCKS:
            code = leaf("code", state.bits / 8, "byte/param", TRUE, optimizer.source)
            block = constant("block", BLOCK[state.bits], "param")
            share = divide("scale_share", leaf("scale", 4, "byte", TRUE, optimizer.source), block)
            parts.append(add(f"{name}/{state.name}", code, share, source=optimizer.source))
    if not parts:
        return leaf(name, 0, "byte/param", TRUE, optimizer.source)
    return add(name, *parts, source=optimizer.source) if len(parts) > 1 else parts[0].renamed(name, optimizer.source)


def terms(optimizer: Optimizer, shape: tuple[int, ...], width: Term, path: str = "optimizer") -> list[Term]:
    """Return every state of one tensor as bytes below `path`, and the shared code books of 8-bit states."""
    found = []
    for state in optimizer.kept(shape):
        name = f"{path}/{state.name}"
        if state.layout == SCALAR:
            found.append(leaf(name, COUNTER_BYTES, "byte", TRUE, optimizer.source))
        elif state.layout in (BLOCKS, LOW_RANK_BLOCKS, PROJECTION_INT4):
            found.append(leaf(name, state_bytes(state, shape, width.value), "byte", TRUE, optimizer.source))
        else:
            elements = leaf(f"{state.name}/elements", elements_of(state, shape), "1", TRUE, optimizer.source)
            size = leaf("bytes_of_fp32", 4, "byte", TRUE, optimizer.source) if state.fp32 else width
            found.append(multiply(name, elements, size, source=optimizer.source))
    n = 1
    for size_ in shape:
        n *= size_
    if optimizer.code_books and n >= SMALLEST_QUANTIZED:
        books = constant("code_books", optimizer.code_books)
        found.append(multiply(f"{path}/code_books", books, constant("book", MAP_BYTES, "byte", optimizer.source)))
    return found


@record
class TensorStates:
    """The states of an optimizer for one parameter tensor.

    states    bytes of each state             total     of all of them
    each      bytes per parameter of tensor states, without step counters and code books
    scalars   names of the step counters      counters  their bytes, None without any
    """

    states: list[Term]
    total: Term
    each: Term
    scalars: tuple[str, ...]
    counters: Term | None


def of_tensor(optimizer: Optimizer, shape: tuple[int, ...], width: Term, form: str | None) -> TensorStates:
    """Return the bytes of a tensor's states; `width`: bytes of an element of the parameter."""
    states = terms(optimizer, shape, width)
    total = add("optimizer/state_bytes", *states) if states else leaf("optimizer/state_bytes", 0, "byte", TRUE)
    names = {state.name for state in optimizer.kept(shape) if state.layout == SCALAR}
    params = leaf("params", elements_of(State("whole"), shape), "param")
    scalars = [term for term in states if term.name.rpartition("/")[2] in names]
    tensors = [term for term in states if term not in scalars and not term.name.endswith("code_books")]
    each = leaf(EACH, 0, "byte/param", TRUE, optimizer.source)
    if tensors:
        each = divide(EACH, add("optimizer/tensor_bytes", *tensors), params)
    counters_at = f"optimizer/counters/{'device' if counters_on_device(form) else 'host'}"
    return TensorStates(states, total, each, tuple(sorted(names)), add(counters_at, *scalars) if scalars else None)


def of_large_tensors(optimizer: Optimizer, width: Term) -> Term:
    """Return the bytes for each parameter of large tensors; `width`: bytes of an element of the parameter."""
    return per_param(optimizer, divide("state_bytes", width, constant("parameter", 1, "param")), EACH)


def of_params(params: Term, each: Term) -> Term:
    """Return the bytes of the states of a number of parameters."""
    return multiply("optimizer/state_bytes", params, each)


def bytes_in(optimizer: Optimizer, dtype: str) -> float | None:
    """Return the bytes per parameter for this parameter dtype; None if they depend on shapes."""
    if optimizer.factored:
        return None
    each: float = of_large_tensors(optimizer, formats.element_bytes(formats.find(dtype))).value
    return each

"""Rotary embeddings on the tape: tables of cos and sin, and the rotation itself."""

from __future__ import annotations

from napkin.autograd.tape import Tape
from napkin.autograd.tensors import Tensor
from napkin.operations.implementations import ANGLES, ROTATED
from napkin.operations.lowering import Lowering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


class Rotation(Protocol):
    """A rotary embedding (rotary.Rotary)."""

    @property
    def name(self) -> str: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def pairing(self) -> str: ...
    @property
    def upcast(self) -> bool: ...
    @property
    def table(self) -> int: ...
    @property
    def wide(self) -> bool: ...
    @property
    def narrow(self) -> bool: ...
    @property
    def once(self) -> bool: ...
    @property
    def first(self) -> bool: ...


def rotary_table(run: Lowering, op: Rotation, dtype: str) -> tuple[Tensor, Tensor]:
    """cos and sin of every position: made once, kept by whichever layers' products need them."""
    key = (op.dim, op.table, run.implementation.by_kind and run.program.windowed, run.stack)
    if key not in run.tables:
        kept = "fp32" if run.implementation.rotary_fp32 else dtype
        dim = op.dim // 2 if op.pairing == "halves" else op.dim
        kept = "fp32" if op.pairing == "complex" or op.wide else kept
        scope, run.tape.scope = run.tape.scope, "rotary"
        rows = run.own * (run.b if run.implementation.positions == "each" else 1)
        pair = tuple(run.tape.new(rows * dim, kept, what, no_grad=True) for what in ("cos", "sin"))
        for tensor in pair:
            tensor.storage.shared = True
        run.tape.scope = scope
        run.tables[key] = (pair[0], pair[1])
    return run.tables[key]


def upcast_table(run: Lowering, op: Rotation, stream: str) -> tuple[Tensor, Tensor]:
    """cos and sin repeated for this layer: for query and key together, or for each."""
    run.takes_angles(run.own * op.dim, "fp32" if run.tape.autocast else run.tape.compute)
    key = (op.dim, op.name if run.implementation.rotary in ("pair", "each") else "")
    if key not in run.own_tables:
        kept = "fp32" if run.implementation.rotary_fp32 else stream
        dim = op.dim
        pair = tuple(run.tape.new(run.own * dim, kept, what, no_grad=True) for what in ("cos", "sin"))
        run.own_tables[key] = (pair[0], pair[1])
        if run.implementation.rotary == "layer" and ANGLES not in run.implementation.passes:
            run.spread[op.dim, op.table] = pair[0].size + pair[1].size  # those that are spread out in each layer
    return run.own_tables[key]


def by_angles(run: Lowering, op: Rotation, tensor: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate elements by the given angles and concatenate them with the others."""
    if op.pairing == "halves":
        return by_halves(run.tape, tensor, cos, sin)
    return joined(run, op, tensor, narrowed(run, op, tensor, turned(run, op, tensor, cos, sin)))


def turned(run: Lowering, op: Rotation, tensor: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x·cos + rotate_half(x)·sin of the rotated elements, or one complex product, in the type that it is
    computed in."""
    tape = run.tape
    if is_complex(run, op):
        return tape.multiply(_raised(run, op, tensor), cos.view())  # a complex64 number of 8 bytes for each pair
    part = tensor if op.dim == op.head_dim else tape.slice(tensor, tensor.count * op.dim // op.head_dim)
    wide = "fp32" if op.upcast else part.dtype
    if op.once:
        part = _raised(run, op, part)
    along = tape.multiply(tape.cast(part, wide), cos)
    half = tape.rotate(tape.cast(part, wide) if op.first else part)
    across = tape.multiply(tape.cast(half, wide), sin)
    return tape.add(along, across)


def is_complex(run: Lowering, op: Rotation) -> bool:
    """Return whether the implementation rotates by a product of complex numbers."""
    return op.pairing == "complex" and run.implementation.rotary == "table"


def _raised(run: Lowering, op: Rotation, part: Tensor) -> Tensor:
    """Return what is rotated in fp32. The function that rotates query and key casts both at its beginning."""
    if op.name not in run.raised:
        run.raised[op.name] = run.tape.cast(part, "fp32")
        other = run.program.rotated_first.get(op.name)
        if other is not None:
            run.raised[other.name] = run.tape.cast(run.read(other).tensor, "fp32")
    return run.raised[op.name]


def casts_back(run: Lowering, op: Rotation) -> bool:
    """Return whether the result is cast back to the type that was rotated."""
    wide_table = run.implementation.rotary_fp32 and run.implementation.rotary == "table"
    return op.upcast or op.narrow or wide_table or is_complex(run, op)


def narrowed(run: Lowering, op: Rotation, tensor: Tensor, out: Tensor) -> Tensor:
    """Return the rotated elements in their first type, where the implementation casts them back."""
    return run.tape.cast(out, tensor.dtype) if casts_back(run, op) else out


def joined(run: Lowering, op: Rotation, tensor: Tensor, out: Tensor) -> Tensor:
    """Concatenate rotated elements of heads with those that are not."""
    if ROTATED in run.implementation.variables:
        run.scopes.local(tensor, out)
    if is_complex(run, op) or (not run.implementation.joins and op.dim == op.head_dim):
        return out
    whole = run.tape.new(tensor.count, out.dtype, "joined")
    whole = run.tape.record("cat", (out,) if op.dim == op.head_dim else (out, tensor), whole)
    return run.tape.cast(whole, tensor.dtype) if run.implementation.joins_narrow else whole


def by_halves(tape: Tape, tensor: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head, a and b, and concatenate them: (a·cos − b·sin, b·cos + a·sin)."""
    first, second = (tape.slice(tensor, tensor.count // 2) for _ in range(2))
    turned = tape.subtract(tape.multiply(first, cos), tape.multiply(second, sin))
    other = tape.add(tape.multiply(second, cos), tape.multiply(first, sin))
    return tape.join((turned, other), "joined")

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
    """A rotary embedding (attention.Rotary)."""

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
    tape = run.tape
    if op.pairing == "halves":
        return by_halves(tape, tensor, cos, sin)
    narrow = tensor.dtype
    part = tensor if op.dim == op.head_dim else tape.slice(tensor, tensor.count * op.dim // op.head_dim)
    wide = "fp32" if op.upcast else part.dtype
    if op.once:
        part = tape.cast(part, wide)
    turned = tape.multiply(tape.cast(part, wide), cos)
    other = tape.multiply(tape.cast(tape.rotate(part), wide), sin)
    out = tape.add(turned, other)
    if op.upcast or op.narrow or (run.implementation.rotary_fp32 and run.implementation.rotary == "table"):
        out = tape.cast(out, narrow)
    if ROTATED in run.implementation.variables:
        run.scopes.local(tensor, out)
    if run.implementation.joins or op.dim != op.head_dim:
        joined = tape.new(tensor.count, out.dtype, "joined")
        out = tape.record("cat", (out,) if op.dim == op.head_dim else (out, tensor), joined)
    return out


def by_halves(tape: Tape, tensor: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head, a and b, and concatenate them: (a·cos − b·sin, b·cos + a·sin)."""
    first, second = (tape.slice(tensor, tensor.count // 2) for _ in range(2))
    turned = tape.subtract(tape.multiply(first, cos), tape.multiply(second, sin))
    other = tape.add(tape.multiply(second, cos), tape.multiply(first, sin))
    return tape.join((turned, other), "joined")

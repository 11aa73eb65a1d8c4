"""Rotary position embeddings."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor
from napkin.elementwise import Number
from napkin.operations.bases import Elementwise
from napkin.operations.lowering import Lowering
from napkin.operations.rotary_tables import (
    by_halves,
    casts_back,
    is_complex,
    joined,
    narrowed,
    rotary_table,
    turned,
    upcast_table,
)
from napkin.operations.shapes import Value
from napkin.record import record


@record
class Rotary(Elementwise):
    """Rotary position embedding of `dim` of `head_dim` elements of each of `heads` heads: x·cos + rotate_half(x)·sin.

    pairing  half: element i is rotated with i + dim/2 · halves: the same, from cos and sin that have each angle once ·
             interleaved: 2i with 2i + 1 · complex: as one complex product
    upcast   computed in fp32 and cast back
    table    which of the network's tables of angles it reads, where layers have their own bases
    wide     this table is fp32 where activations are 16-bit
    narrow   the result is cast back to the type that was rotated
    once     if it is computed in fp32, values are cast before both products, not for each
    first    for each, but before the halves are rotated, not after
    fused    the class calls one kernel, with what is rotated cast to fp32 for it if `upcast`
    """

    heads: int
    head_dim: int
    dim: int
    pairing: str = "half"
    upcast: bool = False
    table: int = 0
    wide: bool = False
    narrow: bool = False
    once: bool = False
    first: bool = False
    fused: bool = False

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.heads * self.head_dim, 4 * self.heads * self.head_dim

    def elementary(self) -> tuple[Number, Number]:
        """Forward: product with cos, half negated, halves joined, product with sin, sum. Backward: both products, the
        negated half, the gradients of both halves written into zeros, and two sums (transformers
        models/llama/modeling_llama.py, apply_rotary_pos_emb). In fp32 a cast before, of each product's operand unless
        `once` or `first`, and one after."""
        if self.pairing not in ("half", "interleaved"):
            return 0, 0
        every = self.heads * self.dim
        wide = 4 if self.upcast else 2
        cast = wide + 2 if self.upcast else 0
        if self.fused:
            return (2 * cast + 2 * wide) * every, (2 * cast + 2 * wide) * every
        half = wide if self.once or self.first else 2
        casts = (2 if self.once else 3) * cast
        forward = 2 * wide + half + 2 * half + 2 * wide + 3 * wide + casts
        backward = 4 * wide + half + 4 * half + 3 * half + 3 * wide + casts
        return forward * every, backward * every

    def angles(self) -> tuple[int, int]:
        return self.dim, self.table

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        tape = run.tape
        stream = "fp32" if tape.autocast else tape.compute
        tensor = x.tensor
        if run.implementation.rotary == "kernel" or self.fused:
            wide = tape.cast(tensor, "fp32") if self.fused and self.upcast else tensor
            out = tape.record("rotary", (wide,), tape.new(tensor.count, wide.dtype, "rotated"))
            return Value(tape.cast(out, tensor.dtype), x.width, x.divided, x.gathered)
        if run.implementation.rotary == "table":
            cos, sin = rotary_table(run, self, stream)
        else:
            cos, sin = upcast_table(
                run, self, tensor.dtype if run.implementation.rotary in ("pair", "values") else stream
            )
        if self.pairing == "halves":
            return self.rotated(run, x, by_halves(tape, tensor, cos, sin))
        return self._in_turn(run, x, turned(run, self, tensor, cos, sin))

    def _in_turn(self, run: Lowering, x: Value, out: Tensor) -> Value:
        """Return the rotated elements as the function that rotates query and key does: both are cast back at its
        end."""

        def finish() -> None:
            narrow = narrowed(run, self, x.tensor, out)
            run.values[self.name] = self.rotated(run, x, joined(run, self, x.tensor, narrow))

        run.uncast.append(finish)
        if casts_back(run, self) and self.name in run.program.rotated_first:
            return Value(out, x.width, x.divided, x.gathered)
        for one in run.uncast:
            one()
        run.uncast = []
        return run.values[self.name]

    def rotated(self, run: Lowering, x: Value, out: Tensor) -> Value:
        """Return the value of a rotated tensor."""
        if is_complex(run, self):
            return Value(out, x.width, x.divided, x.gathered)
        parts = run.implementation.joins or self.dim != self.head_dim or self.pairing == "halves"
        heads_first = parts and run.implementation.rotary != "pair"  # before heads are put behind each other
        return Value(out, x.width, x.divided, x.gathered, heads_first)

"""What networks on the unit sphere learn in addition to their matrices (nGPT, arXiv:2410.01131): a factor for each
element, and how far a branch moves the stream."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.bases import Elementwise
from napkin.operations.lowering import Lowering
from napkin.operations.roles import REPLICATED
from napkin.operations.shapes import Value
from napkin.operations.work import Weight
from napkin.record import record


@record
class LearnedScale(Elementwise):
    """x times a learned vector of `width`, which a constant multiplies; squared, or as it is. `fp32`: in fp32."""

    width: int
    squared: bool = False
    fp32: bool = False
    shard: str = REPLICATED

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.width,), self.shard),)

    def traffic(self) -> tuple[Number, Number]:
        """Read and write; backward the same for the input's gradient, and read both for the vector's."""
        return 4 * self.width, 8 * self.width

    def lower(self, run: Lowering) -> Value:
        x, tape = run.read(self), run.tape
        tensor, weight = x.tensor, run.weight(self.width)
        if self.fp32:
            tensor, weight = tape.cast(tensor, "fp32"), tape.cast(weight, "fp32")
        factor = tape.scale(weight)
        if self.squared:
            factor = tape.power(factor)
        return Value(tape.multiply(tensor, factor), x.width, x.divided, x.gathered, x.heads_first)


@record
class Interpolate(Elementwise):
    """x + |r| ⊙ (branch − x), read in this order, with a learned vector r of `width`, which a constant multiplies."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("rate", (self.width,), REPLICATED),)

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one for the difference and for the sum, read and write for the product; backward negate
        and add up the gradients, and as a product with a learned vector."""
        return 16 * self.width, 18 * self.width

    def lower(self, run: Lowering) -> Value:
        x, branch, tape = run.read(self), run.read(self, 1), run.tape
        scaled = tape.scale(run.weight(self.width))
        rate = tape.record("abs", (scaled,), tape.new(scaled.count, scaled.dtype, "rate"), (scaled,))
        moved = tape.multiply(tape.subtract(branch.tensor, x.tensor), rate)
        return Value(tape.add(x.tensor, moved), x.width, x.divided, x.gathered)

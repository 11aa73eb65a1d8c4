"""Vectors and small tensors that a layer learns, and the elementwise work with them."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.bases import Elementwise, Ordinary
from napkin.operations.facts import Cache, Served
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, division_of
from napkin.record import record


@record
class Affine(Elementwise):
    """(x + b)·w with learned vectors b and w of `width`."""

    width: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("bias", (self.width,)), Weight("scale", (self.width,)))

    def traffic(self) -> tuple[Number, Number]:
        return 8 * self.width, 14 * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        shifted = run.tape.add(x.tensor, run.weight(self.width))
        return Value(run.tape.multiply(shifted, run.weight(self.width)), self.width, x.divided, x.gathered)


@record
class Temper(Elementwise):
    """Each head of `size` elements multiplied by w·log(position) + b, with a learned w and b for each of `heads`."""

    heads: int
    size: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.heads,), HEADS), Weight("bias", (self.heads,), HEADS))

    def traffic(self) -> tuple[Number, Number]:
        return 4 * self.heads * self.size, 8 * self.heads * self.size

    def lower(self, run: Lowering) -> Value:
        x, tape = run.read(self), run.tape
        stored = x.tensor.dtype
        position = tape.new(run.own, stored, "log positions", no_grad=True)
        scale, bias = (tape.cast(run.weight(self.heads), stored) for _ in range(2))
        grown = tape.multiply(scale, position)
        factor = tape.new(run.own * self.heads, stored, "factor")
        factor = tape.record("add", (grown, bias), factor)
        return Value(tape.multiply(x.tensor, factor), x.width, x.divided, x.gathered, x.heads_first)


@record
class Parameters(Ordinary):
    """Vectors or small tensors that a layer learns in addition to its matrices (A, D, dt_bias, decay, …).
    `trained`: they get a gradient."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    shard: str = HEADS
    trained: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, shape, self.shard, trained=self.trained) for name, shape in self.tensors)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: other operations read them."""
        return 0, 0

    def division(self) -> str:
        return division_of(self.shard)

    def lower(self, run: Lowering) -> Value:
        """Small tensors of the layer's own, which no other operation makes."""
        count = sum(weight.count for weight in self.weights())
        return Value(run.weight(count), count)


@record
class TokenShift(Elementwise):
    """x·w + y·(1 − w), where y is x of the previous token and w, read second, a learned share of each of `width`
    channels (RWKV)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        """Read two and write one; backward reads three and writes two."""
        return 6 * self.width, 10 * self.width

    def cache(self, over: Served) -> Cache | None:
        """Cache the previous token's activations, once for all operations that mix them in."""
        return Cache(self.reads[0], fixed=self.width)

    def lower(self, run: Lowering) -> Value:
        """Mix x with the shifted sequence, a copy that all operations on the same x share."""
        x, share = run.read(self), run.read(self, 1).tensor
        tape = run.tape
        if id(x.tensor) not in run.derived:
            run.derived[id(x.tensor)] = tape.copy(x.tensor, "tokens before")
        before = run.derived[id(x.tensor)]
        rest = tape.scale(share, "1 - share")
        return Value(tape.add(tape.multiply(x.tensor, share), tape.multiply(before, rest)), x.width)

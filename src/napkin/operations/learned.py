"""Vectors and small tensors that a layer learns, and the elementwise work with them."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.facts import Cache, Served
from napkin.operations.lowering import Lowering, Value
from napkin.operations.ordinary import NOT_TIMED, Elementwise, Ordinary
from napkin.operations.roles import HEADS
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
class Parameters(Ordinary):
    """Vectors or small tensors that a layer learns besides its matrices (A, D, dt bias, decay, …). `trained`: a
    gradient reaches them."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    shard: str = HEADS
    trained: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return tuple(Weight(name, shape, self.shard, trained=self.trained) for name, shape in self.tensors)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Nothing: other operations read them."""
        return 0, 0

    def division(self) -> str:
        return division_of(self.shard)

    def lower(self, run: Lowering) -> Value:
        """Small tensors of the layer's own, which no other operation makes."""
        count = sum(weight.count for weight in self.weights())
        return Value(run.weight(count), count)


@record
class TokenShift(Elementwise):
    """x·w + y·(1 − w), where y is x of the token before and w the learned share of each of `width` channels, read
    second (RWKV)."""

    width: int

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

    def cache(self, over: Served) -> Cache | None:
        """The token before, once for all that mix it."""
        return Cache(self.reads[0], fixed=self.width)

    def lower(self, run: Lowering) -> Value:
        """The tensor of the tokens before is made once for all that mix the same."""
        x, share = run.read(self), run.read(self, 1).tensor
        tape = run.tape
        if id(x.tensor) not in run.derived:
            run.derived[id(x.tensor)] = tape.copy(x.tensor, "tokens before")
        before = run.derived[id(x.tensor)]
        rest = tape.scale(share, "1 - share")
        return Value(tape.add(tape.multiply(x.tensor, share), tape.multiply(before, rest)), x.width)

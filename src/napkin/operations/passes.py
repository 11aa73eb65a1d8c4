"""Several layers as one operation, run without gradient."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import Operation
from napkin.operations.bases import Ordinary
from napkin.operations.facts import Cache, Served
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record, replace


@record
class Ungraded(Ordinary):
    """`times` layers of these operations, run under no_grad with the weights of other layers: only the matmuls of a
    forward pass, and nothing is saved."""

    of: tuple[Operation, ...]
    times: int

    def weights(self) -> tuple[Weight, ...]:
        """Weights are counted if they are owned."""
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return tuple(self._often(one) for op in self.of for one in op.gemms(work))

    def _often(self, one: Gemm) -> Gemm:
        """Return a matmul of a forward pass, as often as there are layers."""
        pairs = None if one.pairs is None else replace(one.pairs, count=one.pairs.count * self.times)
        return replace(one, batch=one.batch * self.times, flops=one.flops * self.times, pairs=pairs, backward=0)

    def traffic(self) -> tuple[Number, Number]:
        """Return the traffic of the layers' forward passes; there is no backward pass."""
        return self.times * sum(op.traffic()[0] for op in self.of), 0

    def attention_width(self) -> Number:
        return self.times * sum(op.attention_width() for op in self.of)

    def cache(self, over: Served) -> Cache | None:
        """Cache the keys and values of all of these layers."""
        found: Number = 0
        for op in self.of:
            one = op.cache(over)
            if one is not None and not one.again:
                found = found + one.growing + one.tokens * one.heads * sum(one.head_dim) // over.ranks
        return Cache(self.name, growing=self.times * found)

    def lower(self, run: Lowering) -> Value:
        x = run.read(self)
        return Value(run.tape.new(x.tensor.count, x.tensor.dtype, "without gradient", no_grad=True), x.width)

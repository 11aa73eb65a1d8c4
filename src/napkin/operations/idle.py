"""Weights that a class has but does not run."""

from __future__ import annotations

from napkin.elementwise import Number, total
from napkin.operations.base import Operation
from napkin.operations.bases import Ordinary
from napkin.operations.lowering import Lowering
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work
from napkin.record import record, replace


@record
class Idle(Ordinary):
    """Operations of a class that do not run in a text-only pass: attention to an image or an encoder, and their
    projections. No gradient reaches their weights, so they have no optimizer states, unless they are `trained` in other
    steps."""

    of: tuple[Operation, ...]
    trained: bool = False

    def holds(self) -> tuple[Operation, ...]:
        return self.of

    def weights(self) -> tuple[Weight, ...]:
        return tuple(
            replace(weight, name=f"{op.name}/{weight.name}", trained=self.trained and weight.trained)
            for op in self.of
            for weight in op.weights()
        )

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return ()

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: it does not run."""
        return 0, 0

    def lower(self, run: Lowering) -> Value:
        count = total(weight.count for weight in self.weights())
        return Value(run.weight(count), count)

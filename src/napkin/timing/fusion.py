"""One rewrite pass before a layer is timed: what depends on neighbors.

Training stacks run linear layers that read the same tensor and are divided the same way as one GEMM (q, k and v; gate
and up), and an activation that feeds a multiplication in the multiplication's kernel (SwiGLU).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin import term
from napkin.elementwise import Number
from napkin.operations.base import COLUMN, MEMORY, ROW, Operation
from napkin.operations.facts import LinearLayer
from napkin.record import record
from napkin.term import Term
from napkin.timing.clock import size


@record
class FusedLinear:
    """Linear layers that run as one GEMM, d_in → d_out of all of them together."""

    name: str
    reads: tuple[str, ...]
    shard: str
    d_in: Number
    d_out: Number

    @property
    def reads_encoder(self) -> bool:
        """Whether it runs over the tokens of the other stack."""
        return self.reads == (MEMORY,)

    def local(self, name: str, tp: Term) -> tuple[Term, Term]:
        """(k, n) on one rank: a row-parallel layer divides its input, a column-parallel one its output."""
        k, n = size(f"{name}/d_in", self.d_in), size(f"{name}/d_out", self.d_out)
        if self.shard == ROW:
            k = term.divide(f"{name}/k", k, tp)
        if self.shard == COLUMN:
            n = term.divide(f"{name}/n", n, tp)
        return k, n


def fused_linears(layers: Iterable[LinearLayer]) -> list[FusedLinear]:
    """Linear layers, those that read the same tensor and are divided the same way joined."""
    alike: dict[tuple[object, ...], list[LinearLayer]] = {}
    for one in layers:
        alike.setdefault((one.reads, one.shard), []).append(one)
    return [
        FusedLinear(
            "+".join(one.name for one in together),
            together[0].reads,
            together[0].shard,
            together[0].d_in,
            sum(one.d_out for one in together),
        )
        for together in alike.values()
    ]


def fused_activations(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return a layer's operations, those that feed a multiplication reduced to what its kernel leaves of them."""
    fed = {read for op in operations for read in op.multiplies()}
    return tuple(op.fused_into_multiplication() if op.name in fed else op for op in operations)


def divided_names(operations: Iterable[Operation]) -> set[str]:
    """Return the outputs that tensor parallelism divides: from a column-parallel layer on, until a row-parallel one."""
    names: set[str] = set()
    for op in operations:
        division = op.division()
        if division == COLUMN or (division != ROW and any(read in names for read in op.reads)):
            names.add(op.name)
    return names

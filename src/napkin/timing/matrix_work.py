"""Seconds of an optimizer's matmuls and decompositions (training/optimizer_work.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from napkin import term
from napkin.elementwise import Number, is_array
from napkin.errors import Refused
from napkin.operations.base import Operation
from napkin.operations.queries import is_head_matrix
from napkin.operations.roles import REPLICATED, VOCABULARY
from napkin.term import Term
from napkin.timing.clock import MULTIPLY_ADD, Clock, size, total, zero
from napkin.training.optimizer_work import EIGENVECTORS, ORTHOGONAL, SINGULAR, Product


def work_of(clock: Clock, operations: Sequence[Operation], kind: str, tied: bool = False) -> Term:
    """Return the seconds of one layer's matrices on one GPU, before ZeRO divides them. Experts stacked in one tensor
    are not counted: the optimizers' own packages skip them (training/optimizers.py, only_matrices). tied: nor is the
    head's matrix."""
    name = f"{kind}/works"
    if clock.layout.works is None:
        return zero(name)
    shapes: Counter[tuple[int, int, bool]] = Counter()
    for op in operations:
        for weight in op.weights():
            table = weight.shard == VOCABULARY and not clock.layout.works_on_tables
            if tied and is_head_matrix(op, weight):
                continue
            if op.learning.trained and len(weight.shape) == 2 and not table and weight.copies == 1:
                rows, columns = weight.shape
                shapes[rows, columns, weight.shard != REPLICATED] += 1
    return total(name, (_matrices(clock, name, *one) for one in shapes.items()))


def _matrices(clock: Clock, name: str, shape: tuple[int, int, bool], count: int) -> Term:
    """Return the seconds for matrices of one shape. The third entry of a shape: whether tensor parallelism divides its
    longer side."""
    assert clock.layout.works is not None
    rows, columns, divided = shape
    sides: list[Number] = [rows, columns]
    if divided:
        longest = 0 if rows >= columns else 1
        sides[longest] = sides[longest] / clock.layout.tp
    work = clock.layout.works(*sides)
    name = f"{name}/{rows}x{columns}"
    parts = [_product(clock, f"{name}/{at}", one) for at, one in enumerate(work.products)]
    parts += [_decomposed(clock, name, kind, cubes) for kind, cubes in work.cubes]
    return term.multiply(name, size(f"{name}/matrices", count), total(f"{name}/each", parts))


def _product(clock: Clock, name: str, one: Product) -> Term:
    """Return the seconds of a matmul: like a linear layer's in 16 bits, or at the fp32 rate."""
    times = size(f"{name}/times", one.times)
    m, k, n = (size(f"{name}/{side}", value) for side, value in (("m", one.m), ("k", one.k), ("n", one.n)))
    if not one.full:
        return term.multiply(name, times, clock.gemm(f"{name}/product", m, k, n, wide=True))
    peak = clock.rates.peak_full
    if not is_array(peak) and not peak:
        raise Refused("the rate of fp32 matrix products is not known here, which this optimizer needs")
    reached = term.multiply(
        f"{name}/rate",
        term.leaf("peak/fp32", peak, "FLOP/s", term.TRUE, "datasheet"),
        clock.rate("matmul/16bit", clock.rates.matmul_wide),
    )
    return term.divide(name, term.multiply(f"{name}/flops", MULTIPLY_ADD, times, m, k, n), reached)


def _decomposed(clock: Clock, name: str, kind: str, cubes: Number) -> Term:
    """Return the seconds of a kind of decomposition."""
    rates = clock.rates
    seen = {EIGENVECTORS: rates.eigenvectors, ORTHOGONAL: rates.orthogonal, SINGULAR: rates.singular}[kind]
    each = clock.rate(f"{name}/{kind}/cube", seen, "byte", f"a published step with a {kind}")
    return clock.move(f"{name}/{kind}", term.multiply(f"{name}/{kind}/bytes", each, size(f"{name}/cubes", cubes)))

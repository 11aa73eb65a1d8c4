"""Attention's maps that are subtracted, or masked by the values, on the tape (operations: maps.py)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import Tensor
from napkin.elementwise import where
from napkin.operations.lowering import Lowering, Rules, Value
from napkin.operations.maps import Difference, DynamicMask, HalfHeads


def half_heads(run: Lowering, op: Any) -> Value:
    x = run.read(op)
    half = run.tape.slice(x.tensor, x.tensor.count // 2)
    return Value(run.tape.copy(half.view(x.tensor.count), "half, twice"), x.width, x.divided, x.whole, True)


def difference(run: Lowering, op: Any) -> Value:
    """The product with λ keeps λ and, as its view, both maps' results."""
    tape, first = run.tape, run.read(op)
    results = tuple(run.read(op, i).tensor for i in range(2))
    dtype = results[0].dtype
    both = tape.record("cat", results, tape.new(2 * results[0].count, dtype, "both maps"))
    upper, lower = (tape.slice(both, results[0].count) for _ in range(2))
    share = strength(run, op)
    weighed = tape.record("mul", (lower, share), tape.new(lower.count, dtype, "weighed"), (lower, share), spread=True)
    return Value(tape.add(upper, weighed), first.width, first.divided, first.whole)


def strength(run: Lowering, op: Difference) -> Tensor:
    """λ: sums in fp32, which exp keeps, cast to the type that queries have."""
    tape, parts = run.tape, []
    for _ in range(2):
        product = tape.multiply(run.weight(op.head_dim), run.weight(op.head_dim))
        total = tape.record("sum", (product,), tape.new(1, "fp32", "sum"))
        grown = tape.new(1, "fp32", "exp")
        parts.append(
            tape.cast(tape.record("exp", (total,), grown, (grown,)), "fp32" if tape.autocast else tape.compute)
        )
    return tape.shift(tape.add(parts[0], parts[1]))


def dynamic_mask(run: Lowering, op: Any) -> Value:
    """softplus keeps what it reads, the product its result, exp its own; each masking keeps its condition; the
    choice of the largest, through which no gradient passes, nothing."""
    tape = run.tape
    x = tape.raised(run.read(op).tensor)
    heads = op.heads // run.split.tensor
    plus = tape.record("softplus", (x,), tape.new(x.count, x.dtype, "softplus"), (x,))
    scaled = tape.raised(tape.multiply(plus, run.weight(heads)))
    grown = tape.new(scaled.count, scaled.dtype, "exp")
    grown = tape.record("exp", (scaled,), grown, (grown,))
    rows = run.b * heads * run.own
    later = tape.new(run.b * run.own * run.s, "bool", "later", fixed=True)
    mask = tape.record("masked_fill", (grown,), tape.new(rows * run.s, grown.dtype, "masked"), (later,))
    longer = where(run.s > op.keep, 1, 0)
    others = tape.new(rows * run.s * longer, "bool", "others", fixed=True)
    mask = tape.record("masked_fill", (mask,), tape.new(rows * run.s, mask.dtype, "masked"), (others,))
    repeated = mask.view(mask.count * op.queries)  # of one head a view
    if op.queries > 1 and op.heads > 1:
        repeated = tape.copy(repeated, "repeated")
    return Value(repeated, op.heads * op.queries, True, True, True)


RULES: Rules = {
    HalfHeads: half_heads,
    Difference: difference,
    DynamicMask: dynamic_mask,
}

"""Banded attention on the tape: a window to both sides, as products of chunks that overlap (Longformer)."""

from __future__ import annotations

from typing import Any

from napkin.autograd.tape import Tensor, select
from napkin.elementwise import ceil_div
from napkin.operations.attention import BandAttention
from napkin.operations.lowering import Lowering, Rules, Value, either
from napkin.operations.views import Transpose


def transposed(run: Lowering, op: Any) -> Value:
    """A view: where there are several sequences, their tokens are not next to each other any more."""
    x = run.read(op)
    return Value(x.tensor.view(rows_apart=True), x.width, x.divided, x.whole)


def band(run: Lowering, op: Any) -> Value:
    """Chunks of a window, each of which overlaps the next by half; their scores are put into a band of a window's
    columns, at whose ends those outside the sequence are masked, and the band is cut into diagonals again."""
    tape = run.tape
    q, k, v = (run.read(op, i).tensor for i in range(3))
    heads = op.heads // run.split.tensor
    half, groups = op.window // 2, run.b * heads
    parts = 2 * ceil_div(run.own, op.window)  # halves of windows
    length, chunks = parts * half, parts - 1

    def overlapping(x: Tensor) -> Tensor:
        """Chunks as one batch: a copy, unless there is one sequence with one head, or one chunk."""
        wide = x.view(groups * chunks * op.window * op.qk_dim)
        return select(either(groups == 1, chunks == 1), wide, tape.copy(wide, "chunks"))

    q = tape.record("scale", (q,), q.view())  # in place
    scores = tape.matmul(overlapping(q), overlapping(k), groups * chunks * op.window * op.window, "scores of chunks")
    padded = tape.new(groups * chunks * op.window * (op.window + 1), scores.dtype, "padded scores")
    padded = tape.record("pad", (scores,), padded)
    columns = op.window + 1
    placed = tape.record("place", (padded,), tape.new(groups * length * columns, scores.dtype, "band"))
    for end in ("first", "last"):
        outside = tape.new(groups * half * (half + 1), "bool", f"outside the {end} window", fixed=True)
        placed = tape.record("where", (placed,), placed.view(), (outside,))
    weights = tape.softmax(placed, "fp32")
    if "padding" not in run.masks:
        run.masks["padding"] = tape.new(run.b * length, "bool", "padding", fixed=True)
        run.masks["padding"].places[0][1].shared = True
    filled = tape.new(weights.count, weights.dtype, "weights")
    weights = tape.record("masked_fill", (weights,), filled, (run.masks["padding"],))
    weights = tape.dropout(tape.cast(weights, scores.dtype), run.dropout)
    diagonals = tape.new(groups * length * (columns + half + 1), weights.dtype, "diagonals")
    diagonals = tape.record("pad", (weights,), diagonals)
    values = tape.new(groups * (length + op.window) * op.v_dim, v.dtype, "padded values")
    values = tape.record("pad", (v,), values)
    wide = values.view(groups * parts * 3 * half * op.v_dim)
    values = select(either(groups == 1, False), wide, tape.copy(wide, "chunks of values"))
    out = tape.matmul(diagonals, values, groups * length * op.v_dim, "values")
    return Value(tape.copy(out, "attended").view(rows_apart=True), op.heads * op.v_dim, True, True)


RULES: Rules = {
    BandAttention: band,
    Transpose: transposed,
}

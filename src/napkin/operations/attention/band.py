"""Attention over a window to both sides, as matmuls of chunks that overlap (Longformer, arXiv:2004.05150)."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, select
from napkin.elementwise import Number
from napkin.operations.bases import Ordinary
from napkin.operations.lowering import Lowering, either
from napkin.operations.primitives import ceil_div
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class BandAttention(Ordinary):
    """softmax(q·kᵀ)·v over `window` / 2 keys to each side, reading q, k, v: products of chunks of a window that overlap
    by half of one, of a sequence that is padded to whole windows (Longformer, arXiv:2004.05150).

    With n half windows w a sequence, FLOP 2·b·a·d·((n − 1)·(2w)² + n·w·3w), in every convention of counting pairs."""

    heads: int
    qk_dim: int
    v_dim: int
    window: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        half, parts = self.window // 2, 2 * ceil_div(work.length, self.window)
        chunks = work.sequences * (parts - 1)
        return (
            gemm("scores", self.window, self.qk_dim, self.window, chunks * self.heads, weight=False),
            gemm("values", half, 3 * half, self.v_dim, work.sequences * self.heads * parts, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def depends_on_shapes(self, length: int) -> bool:
        """Return False where the class pads the sequence to a multiple of the window."""
        return length % self.window == 0

    def scores(self, work: Work) -> Number:
        return work.sequences * self.heads * self.window * ceil_div(work.length, self.window) * (self.window + 1)

    def attention_width(self) -> Number:
        return self.heads * (self.qk_dim + self.v_dim)

    def lower(self, run: Lowering) -> Value:
        """Chunks of a window, each of which overlaps the next by half; their scores are put into a band of a window's
        columns, at whose ends those outside the sequence are masked, and the band is cut into diagonals again."""
        tape = run.tape
        q, k, v = (run.read(self, i).tensor for i in range(3))
        heads = self.heads // run.split.tensor
        half, groups = self.window // 2, run.b * heads
        parts = 2 * ceil_div(run.own, self.window)  # halves of windows
        length, chunks = parts * half, parts - 1

        def overlapping(x: Tensor) -> Tensor:
            """Chunks as one batch: a copy, unless there is one sequence with one head, or one chunk."""
            wide = x.view(groups * chunks * self.window * self.qk_dim)
            return select(either(groups == 1, chunks == 1), wide, tape.copy(wide, "chunks"))

        q = tape.record("scale", (q,), q.view())  # in place
        scores = tape.matmul(
            overlapping(q), overlapping(k), groups * chunks * self.window * self.window, "scores of chunks"
        )
        padded = tape.new(groups * chunks * self.window * (self.window + 1), scores.dtype, "padded scores")
        padded = tape.record("pad", (scores,), padded)
        columns = self.window + 1
        placed = tape.record("place", (padded,), tape.new(groups * length * columns, scores.dtype, "band"))
        for end in ("first", "last"):
            outside = tape.new(groups * half * (half + 1), "bool", f"outside the {end} window", no_grad=True)
            placed = tape.record("where", (placed,), placed.view(), (outside,))
        weights = tape.softmax(placed, "fp32")
        if "padding" not in run.masks:
            run.masks["padding"] = tape.new(run.b * length, "bool", "padding", no_grad=True)
            run.masks["padding"].storage.shared = True
        filled = tape.new(weights.count, weights.dtype, "weights")
        weights = tape.record("masked_fill", (weights,), filled, (run.masks["padding"],))
        weights = tape.dropout(tape.cast(weights, scores.dtype), run.dropout)
        diagonals = tape.new(groups * length * (columns + half + 1), weights.dtype, "diagonals")
        diagonals = tape.record("pad", (weights,), diagonals)
        values = tape.new(groups * (length + self.window) * self.v_dim, v.dtype, "padded values")
        values = tape.record("pad", (v,), values)
        wide = values.view(groups * parts * 3 * half * self.v_dim)
        values = select(either(groups == 1, False), wide, tape.copy(wide, "chunks of values"))
        out = tape.matmul(diagonals, values, groups * length * self.v_dim, "values")
        return Value(tape.copy(out, "attended").view(rows_apart=True), self.heads * self.v_dim, True, True)

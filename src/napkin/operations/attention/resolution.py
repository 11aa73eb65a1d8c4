"""Attention at two resolutions (MRA, arXiv:2207.10284): exact in chosen blocks, by their means in the others."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, select
from napkin.elementwise import Number, ceil_div
from napkin.operations.bases import Ordinary
from napkin.operations.lowering import Lowering, either
from napkin.operations.primitives import minimum
from napkin.operations.roles import HEADS
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record, replace

BLOCK = 32
"""Queries and keys of a block, and the least elements of a head, to which smaller ones are padded."""
MASK = "mask of tokens"


@record
class ResolutionAttention(Ordinary):
    """softmax(q·kᵀ)·v with exact scores in `chosen` of the n² blocks of 32 queries and 32 keys, those with the largest
    products of their mean query and key, which all other blocks have for scores (`coarse`; else those are left out).
    Kernels of its own multiply the chosen blocks. FLOP: 4·b·a·d·(chosen·32² + n²), without coarse ones half of n²,
    which has no backward pass."""

    heads: int
    size: int
    chosen: int
    coarse: bool

    @property
    def wide(self) -> int:
        """Return the elements of a head as the kernels take it."""
        return max(self.size, BLOCK)

    def blocks(self, length: Number) -> tuple[Number, Number]:
        """Return the blocks in a row, and those that are chosen."""
        row = ceil_div(length, BLOCK)
        return row, minimum(row * row, self.chosen)

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        row, chosen = self.blocks(work.length)
        batch = work.sequences * self.heads
        scores = gemm("coarse_scores", row, self.wide, row, batch, weight=False)
        values = (gemm("coarse_values", row, row, self.wide, batch, weight=False),) if self.coarse else ()
        return (
            scores if self.coarse else replace(scores, backward=0),
            *values,
            gemm("scores", BLOCK, self.wide, BLOCK, batch * chosen, weight=False),
            gemm("values", BLOCK, BLOCK, self.wide, batch * chosen, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Return 0 bytes: `scores` counts what is between its products."""
        return 0, 0

    def scores(self, work: Work) -> Number:
        row, chosen = self.blocks(work.length)
        return work.sequences * self.heads * (chosen * BLOCK * BLOCK + row * row * self.coarse)

    def attention_width(self) -> Number:
        return self.heads * 2 * self.size

    def division(self) -> str:
        return HEADS

    def lower(self, run: Lowering) -> Value:
        """Run all in fp32, but for coarse products under autocast."""
        return _Run(self, run).attended()


class _Run:
    """One layer's attention on the tape. Every operation multiplies by the mask of tokens, a factor of 1."""

    def __init__(self, op: ResolutionAttention, run: Lowering) -> None:
        self.op, self.run, self.tape = op, run, run.tape
        self.heads = op.heads // run.split.tensor
        self.groups = run.b * self.heads
        self.row, self.chosen = op.blocks(run.own)
        self.mask = self.fixed(self.groups * run.own, "mask")
        self.given: list[Tensor] = []
        self.variables: list[Tensor] = []
        self.counts = self.fixed(self.groups * self.row, "tokens of blocks")
        if MASK not in run.masks:  # an argument of all layers
            run.masks[MASK] = self.tape.given(run.b * run.own, "fp32", MASK, no_grad=True)
            run.masks[MASK].storage.shared = True
        run.takes(run.masks[MASK])

    def fixed(self, count: Number, what: str, dtype: str = "fp32") -> Tensor:
        return self.tape.new(count, dtype, what, no_grad=True)

    def made(self, name: str, x: Tensor, count: Number, kept: tuple[Tensor, ...] = (), dtype: str = "fp32") -> Tensor:
        return self.tape.record(name, (x,), self.tape.new(count, dtype, name), kept)

    def local(self, x: Tensor) -> Tensor:
        """Return a tensor that a variable of the function refers to until it returns."""
        self.variables.append(x)
        return x

    def exponential(self, x: Tensor) -> Tensor:
        out = self.tape.new(x.count, "fp32", "exponential")
        return self.tape.record("exp", (x,), out, (out,))

    def laid_out(self, x: Tensor) -> Tensor:
        """Return queries, keys or values by heads in fp32, times the mask."""
        tape, op = self.tape, self.op
        if op.size < BLOCK:
            x = self.made("cat", x, self.groups * self.run.own * op.wide)
            self.given.append(x)
        else:
            self.given.append(x)
            wide = tape.cast(x, "fp32")
            x = select(either(self.run.b == 1, self.heads == 1), wide, tape.copy(wide, "by heads"))
        return self.local(tape.multiply(x, self.mask, "masked"))

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over each block."""
        summed = self.made("sum", x, self.groups * self.row * self.op.wide)
        return self.tape.divide(summed, self.fixed(self.groups * self.row, "divisor"), "mean")

    def coarse_scores(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of means, and the largest of each row."""
        scores = self.tape.scale(self.tape.matmul(q, k, self.groups * self.row**2, "coarse scores"))
        rows = self.groups * self.row
        peak = self.made("max", scores, rows, (self.fixed(rows, "index of maximum", "int64"),), scores.dtype)
        return self.local(self.tape.shift(scores, "masked", "fp32")), self.local(peak)

    def attended(self) -> Value:
        tape, run, op = self.tape, self.run, self.op
        q, k, v = (self.laid_out(run.read(op, i).tensor) for i in range(3))
        outer, tape.recomputed = tape.recomputed, tape.recomputed or not op.coarse
        means = [self.mean(x) for x in ((q, k, v) if op.coarse else (q, k))]
        coarse, peak = self.coarse_scores(means[0], means[1])
        tape.recomputed = outer
        attended, sums = self.of_blocks(q, k, v)
        if op.coarse:
            attended, sums = self.with_means(attended, sums, coarse, peak, means[2])
        attended = tape.divide(attended, tape.shift(sums), "attended")
        attended = tape.multiply(attended, self.mask)
        tape.hold(*self.variables)
        if op.size < BLOCK:
            attended = tape.slice(attended, self.groups * run.own * op.size, apart=True)
            attended = tape.copy(attended, "by tokens")
        else:
            attended = select(self.heads == 1, attended, tape.copy(attended, "by tokens"))
        tape.hold(*self.given)
        stored = "fp32" if tape.autocast else tape.compute
        return Value(tape.cast(attended, stored), op.heads * op.size, True, True)

    def of_blocks(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted values of the chosen blocks, and the sums of their weights."""
        tape, count = self.tape, self.groups * self.chosen
        index = self.fixed(count, "chosen blocks", "int64")
        copies = q.size + k.size  # which the kernels read
        scores = tape.record(
            "block_scores",
            (q, k),
            tape.new(count * BLOCK * BLOCK, "fp32", "scores"),
            (q, k, index),
            scratch=q.size,
            forward_scratch=copies,
        )
        scores = tape.scale(scores)
        self.local(self.made("block_max", scores, count * BLOCK))
        scores = tape.shift(tape.shift(scores, "below their maximum"), "masked")
        weights = self.exponential(self.local(scores))
        values = tape.record(
            "block_values",
            (weights, v),
            tape.new(v.count, "fp32", "values"),
            (weights, index, v),
            scratch=v.size,
            forward_scratch=2 * v.size,
        )
        summed = self.made("sum", weights, count * BLOCK)
        index_of_rows = self.fixed(count, "rows", "int64")
        sums = self.made("index_add", summed, self.groups * self.run.own, (index_of_rows, summed))
        return self.local(values), sums

    def with_means(
        self, attended: Tensor, sums: Tensor, coarse: Tensor, peak: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return both with those of the other blocks, each corrected by the difference of the maxima."""
        tape, tokens = self.tape, self.groups * self.run.own
        below = tape.shift(self.both("sub", coarse, peak, coarse.count))
        weights = tape.multiply(self.exponential(below), self.counts)
        values = tape.matmul(weights, v, self.groups * self.row * self.op.wide, "coarse values")
        values = self.made("repeat", values, tokens * self.op.wide, (), values.dtype)
        theirs = self.made("repeat", self.made("sum", weights, self.groups * self.row), tokens)
        difference = self.made("sub", self.made("repeat", peak, tokens, (), peak.dtype), tokens)
        difference = tape.multiply(difference, self.mask)
        correction = self.exponential(tape.multiply(difference, self.fixed(tokens, "is not positive")))
        values, theirs = tape.multiply(values, correction), tape.multiply(theirs, correction)
        correction = self.exponential(tape.multiply(tape.scale(difference), self.fixed(tokens, "is positive")))
        self.variables.remove(attended)  # its product takes its name
        attended, sums = tape.multiply(attended, correction), tape.multiply(sums, correction)
        self.variables += [attended, values]
        return tape.add(attended, values), tape.add(sums, theirs)

    def both(self, name: str, x: Tensor, y: Tensor, count: Number) -> Tensor:
        return self.tape.record(name, (x, y), self.tape.new(count, "fp32", name))

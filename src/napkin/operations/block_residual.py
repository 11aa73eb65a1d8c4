"""Attention of each token to the sums of earlier blocks of layers, and what Inkling 2 does around it."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.bases import Elementwise, Ordinary
from napkin.operations.lowering import Lowering
from napkin.operations.roles import HEADS, REPLICATED
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class BlockResidual(Ordinary):
    """Σ softmax(w·norm(b))·norm(b) over `states` tensors b of each token: the sums of earlier blocks and the stream, in
    fp32, with `queries` learned vectors w; `scaled`: the norm has a weight. FLOP: 4·T·queries·states·h."""

    width: int
    states: int
    queries: int = 1
    scaled: bool = False

    def weights(self) -> tuple[Weight, ...]:
        shape = (self.width,) if self.queries == 1 else (self.queries, self.width)
        scale = (Weight("norm", (self.width,), REPLICATED),) if self.scaled else ()
        return (Weight("query", shape, REPLICATED), *scale)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        tokens, queries = work.tokens, self.queries
        return (
            gemm(f"{self.name}/scores", queries, self.width, self.states, tokens, weight=False),
            gemm(f"{self.name}/sum", queries, self.states, self.width, tokens, weight=False),
        )

    def traffic(self) -> tuple[Number, Number]:
        """Join, cast, normalize and weigh the states in fp32: 2 + 2, 2 + 4, 4 + 4 and 4 bytes of each element, and the
        sums; backward once more, and the gradient of each state."""
        return 22 * self.states * self.width + 4 * self.queries * self.width, 30 * self.states * self.width

    def lower(self, run: Lowering) -> Value:
        """Normalize a copy of all states in fp32, and weigh it by each query's softmax."""
        x, tape = run.read(self), run.tape
        rows = x.tensor.count // self.width * self.states
        joined = tape.record("cat", (x.tensor,), tape.new(rows * self.width, x.tensor.dtype, "states"))
        wide = tape.cast(joined, "fp32")
        rstd = tape.rsqrt(tape.shift(tape.mean(tape.power(wide), rows)))
        states = tape.multiply(wide, rstd, "normalized")
        query = run.weight(self.queries * self.width)
        shares = tape.softmax(tape.matmul(states, query, rows * self.queries, "scores"))
        made = x.tensor.count * self.queries
        return Value(tape.matmul(shares, states, made, "weighed"), self.queries * self.width, x.divided, x.gathered)


@record
class ClippedNorm(Elementwise):
    """Each of `groups` vectors of `width` elements, scaled down to a largest length, in fp32; `learned`: multiplied by
    learned elements before."""

    width: int
    groups: int
    learned: bool = False

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.groups, self.width), HEADS),) if self.learned else ()

    def traffic(self) -> tuple[Number, Number]:
        return 6 * self.width * self.groups, 10 * self.width * self.groups

    def lower(self, run: Lowering) -> Value:
        x, tape = run.read(self), run.tape
        wide = tape.cast(x.tensor, "fp32")
        if self.learned:
            wide = tape.multiply(wide, tape.cast(run.weight(self.groups * self.width), "fp32"))
        rows = wide.count // self.width
        length = tape.record("norm", (wide,), tape.new(rows, "fp32", "length"), (wide,))
        factor = tape.record("reciprocal", (length,), tape.new(rows, "fp32", "reciprocal"), (length,))
        cut = tape.record("clamp", (factor,), tape.new(rows, "fp32", "cut"), (factor,))
        return Value(tape.cast(tape.multiply(wide, cut), x.tensor.dtype), x.width, x.divided, x.gathered)


@record
class DynamicConvolution(Elementwise):
    """x + a depthwise causal convolution of it over `kernel` steps, whose taps are learned for each channel plus those
    that each token makes for each head (read second), in fp32."""

    channels: int
    kernel: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("static_weight", (self.kernel, self.channels), HEADS),)

    def traffic(self) -> tuple[Number, Number]:
        return 8 * self.channels * self.kernel, 12 * self.channels * self.kernel

    def lower(self, run: Lowering) -> Value:
        """Multiply copies of the last tokens by the taps, and add them up."""
        x, taps, tape = run.read(self), run.read(self, 1), run.tape
        wide = tape.cast(x.tensor, "fp32")
        weights = tape.new(wide.count * self.kernel, "fp32", "taps")
        weights = tape.record("add", (tape.cast(taps.tensor, "fp32"),), weights)
        windows = tape.record("cat", (wide,), tape.new(wide.count * self.kernel, "fp32", "windows"))
        product = tape.multiply(windows, weights)
        total = tape.record("sum", (product,), tape.new(wide.count, "fp32", "summed"))
        return Value(tape.cast(tape.add(total, wide), x.tensor.dtype), x.width, x.divided, x.gathered)

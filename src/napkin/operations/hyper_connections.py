"""Operations of hyper-connections (Zhu et al. 2024, arXiv:2409.19606; DeepSeek-V4): the residual is n streams of h
elements; weights computed from each token say how a branch reads the streams, writes to them, and how they mix."""

from __future__ import annotations

from napkin.autograd.tensors import Tensor, promoted
from napkin.elementwise import Number
from napkin.operations.bases import Elementwise, Ordinary
from napkin.operations.lowering import Lowering
from napkin.operations.norms import Norm
from napkin.operations.shapes import Value
from napkin.operations.work import Gemm, Weight, Work, gemm
from napkin.record import record


@record
class CopyToStreams(Elementwise):
    """The streams' beginning: `streams` copies of `width` elements per token."""

    width: int
    streams: int

    def traffic(self) -> tuple[Number, Number]:
        return 2 * (1 + self.streams) * self.width, 2 * (1 + self.streams) * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self).tensor
        return Value(run.tape.copy(x.view(x.count * self.streams), "streams"), self.width * self.streams)


@record
class MeanOfStreams(Elementwise):
    """The mean of `streams` streams of `width` elements per token."""

    width: int
    streams: int

    def traffic(self) -> tuple[Number, Number]:
        return 2 * (1 + self.streams) * self.width, 2 * (1 + self.streams) * self.width

    def lower(self, run: Lowering) -> Value:
        x = run.read(self).tensor
        return Value(run.tape.record("mean", (x,), run.tape.new(x.count // self.streams, x.dtype, "mean")), self.width)


@record
class ReadStreams(Ordinary):
    """What a branch reads: Σ over the n streams of a weight each. A linear layer of all streams together makes that
    and the n weights of the branch's result; where the streams `mix`, n² more, which `iterations` of dividing by the
    sums of columns and rows (Sinkhorn and Knopp 1967) make doubly stochastic. FLOP: 2·T·n·h·(2·n or 2·n + n²).

    last    after the last layer: only the n weights of the reading
    behind  the streams' reciprocal root mean square multiplies the linear layer's result, outside of autocast"""

    width: int
    streams: int
    mixes: bool = True
    iterations: int = 0
    last: bool = False
    behind: bool = False

    @property
    def made(self) -> int:
        """Numbers that the linear layer makes."""
        n = self.streams
        return n if self.last else 2 * n + n * n * self.mixes

    def weights(self) -> tuple[Weight, ...]:
        scales = 1 if self.last else 2 + self.mixes
        shapes = (("weight", (self.made, self.streams * self.width)), ("base", (self.made,)), ("scale", (scales,)))
        return tuple(Weight(name, shape) for name, shape in shapes)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.streams * self.width, self.made),)

    def traffic(self) -> tuple[Number, Number]:
        wide = self.streams * self.width
        return 2 * (3 * wide + self.width), 2 * (5 * wide + self.width)

    def lower(self, run: Lowering) -> Value:
        """Compute the branch's input, and the weights with which its result is written back to the streams."""
        tape = run.tape
        x = run.read(self).tensor
        n, tokens = self.streams, x.count // (self.width * self.streams)
        outer = tape.autocast, tape.compute
        if self.behind:
            tape.autocast, tape.compute = "", "fp32"
        wide = tape.cast(x, "fp32")
        if self.behind:
            made = tape.linear(wide, self.width * n, self.made, weight=f"{self.name}/weight")
            variance = tape.mean(tape.power(wide), tokens)
            made = tape.multiply(made, tape.rsqrt(tape.shift(variance)), "normalized")
        else:
            style = Norm("input_norm", (), self.width * n, weight=False, arithmetic="cast_rstd")
            made = tape.linear(
                style.normalized(run, wide, False), self.width * n, self.made, weight=f"{self.name}/weight"
            )

        def part(count: int) -> Tensor:
            scaled = tape.multiply(tape.slice(made, tokens * count), run.fp32_weight(1))
            return tape.add(scaled, run.fp32_weight(count))

        reads = tape.shift(tape.sigmoid(part(n)))
        if not self.last:
            writes = tape.scale(tape.sigmoid(part(n)))
            run.values[f"{self.name}/writes"] = Value(tape.shift(writes) if self.behind else writes, n)
            if self.mixes:
                run.values[f"{self.name}/mixes"] = Value(doubly_stochastic(run, part(n * n), self.iterations, n), n * n)
        product = tape.new(x.count, promoted(x, reads), "weighted")
        product = tape.record("mul", (x, reads), product, (x, reads), broadcast=True)
        read = tape.cast(tape.record("sum", (product,), tape.new(tokens * self.width, product.dtype, "read")), x.dtype)
        tape.autocast, tape.compute = outer
        return Value(read, self.width)


@record
class WriteStreams(Ordinary):
    """What a branch made, read second, goes to each stream with the weight that the collapse, read first, made for it,
    and the streams, read third, are added, mixed by their n×n weights where these exist. FLOP: 2·T·n²·h."""

    width: int
    streams: int
    mixes: bool = True

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        n = self.streams
        return (gemm(f"{self.name}/mix", n, n, self.width, work.tokens, weight=False),) if self.mixes else ()

    def traffic(self) -> tuple[Number, Number]:
        wide = self.streams * self.width
        return 2 * (4 * wide + self.width), 2 * (6 * wide + self.width)

    def lower(self, run: Lowering) -> Value:
        tape = run.tape
        branch, x = run.read(self, 1).tensor, run.read(self, 2).tensor
        writes, stream = run.values[f"{self.reads[0]}/writes"].tensor, x
        if self.mixes:
            writes = tape.cast(writes, x.dtype)
            mixes = tape.cast(run.values[f"{self.reads[0]}/mixes"].tensor, x.dtype)
        else:  # in fp32
            branch = tape.cast(branch, "fp32")
        out = tape.new(x.count, promoted(writes, branch), "written")
        out = tape.record("mul", (writes, branch), out, (writes, branch), broadcast=True)
        stream = tape.matmul(mixes, x, x.count, "mixed") if self.mixes else tape.cast(x, "fp32")
        total = tape.add(out, stream)
        return Value(total if self.mixes else tape.cast(total, x.dtype), self.width * self.streams)


def doubly_stochastic(run: Lowering, logits: Tensor, iterations: int, n: int) -> Tensor:
    """Softmax, then divided by the sums of columns, rows, columns, …: each division keeps what it divides and by
    what."""
    tape = run.tape
    share = tape.shift(tape.softmax(logits))
    for _ in range(max(2 * iterations - 1, 1)):
        total = tape.shift(tape.record("sum", (share,), tape.new(share.count // n, share.dtype, "sums")))
        divided = tape.new(share.count, share.dtype, "divided")
        share = tape.record("div", (share, total), divided, (share, total))
    return share

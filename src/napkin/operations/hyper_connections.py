"""Operations of hyper-connections (Zhu et al. 2024, arXiv:2409.19606; DeepSeek-V4): the residual is n streams of h
numbers, and learnt weights of each token say how a branch reads them, writes to them, and how they mix."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import Elementwise, Gemm, Ordinary, Weight, Work, gemm
from napkin.record import record


@record
class Fan(Elementwise):
    """The streams' beginning: `streams` copies of `width` numbers a token."""

    width: int
    streams: int

    def traffic(self) -> tuple[Number, Number]:
        return 2 * (1 + self.streams) * self.width, 2 * (1 + self.streams) * self.width


@record
class Collapse(Ordinary):
    """What a branch reads: Σ over the n streams of a weight each. A linear layer of all streams together makes that
    and the n weights of the branch's result; where the streams `mix`, n² more, which `iterations` of dividing by the
    sums of columns and rows (Sinkhorn and Knopp 1967) make doubly stochastic. FLOP: 2·T·n·h·(2·n or 2·n + n²).

    last    after the last layer: the n weights of the reading alone
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


@record
class Spread(Ordinary):
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

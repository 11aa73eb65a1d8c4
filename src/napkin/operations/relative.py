"""Operations of Inkling's layers: scores by the distance of keys, short convolutions of the stream, and shared experts
that take part in the router's shares."""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import NOT_TIMED, Elementwise, Gemm, Ordinary, Weight, Work, gemm
from napkin.operations.experts import Router
from napkin.record import record


@record
class DistanceBias(Ordinary):
    """What is added to the score of each query and key: the query's `rank` numbers for each head mix learnt profiles
    over `extent` distances. FLOP: 2·T·a·rank·extent."""

    heads: int
    rank: int
    extent: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("profiles", (self.rank, self.extent)),)

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens * self.heads, self.rank, self.extent),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet


@record
class ShortConvolution(Elementwise):
    """x + a depthwise causal convolution of it over `kernel` steps, in fp32. Elementwise work: no matrix product."""

    channels: int
    kernel: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.channels, 1, self.kernel)),)

    def traffic(self) -> tuple[int, int]:
        return 16 * self.channels, 24 * self.channels


@record
class SinkRouter(Router):
    """A router that scores `shared` experts, which all tokens pass, beside those that it chooses: each one's share is
    its sigmoid over the sum of all of these, times a learnt scale. Its value: the shares of the chosen, then those of
    the shared. FLOP: 2·T·h·(E + S)."""

    shared: int = 1

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("weight", (self.experts + self.shared, self.d_in)), Weight("scale", (1,)))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        return (gemm(self.name, work.tokens, self.d_in, self.experts + self.shared),)


@record
class SharedExperts(Ordinary):
    """Σ over `experts` that all tokens pass of down(f(gate(x)) ⊙ up(x) ⊙ share), as batched products. Reads the tokens
    and the shares. FLOP: 6·T·S·h·f."""

    d_model: int
    d_ff: int
    experts: int
    function: str = "silu"

    def weights(self) -> tuple[Weight, ...]:
        wide, narrow = (self.experts, self.d_ff, self.d_model), (self.experts, self.d_model, self.d_ff)
        return (Weight("gate", wide), Weight("up", wide), Weight("down", narrow))

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        shapes = (("gate", self.d_model, self.d_ff), ("up", self.d_model, self.d_ff), ("down", self.d_ff, self.d_model))
        return tuple(gemm(f"{self.name}/{part}", work.tokens, a, b, self.experts) for part, a, b in shapes)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

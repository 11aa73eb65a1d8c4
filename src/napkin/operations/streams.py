"""Operations of networks whose layers do more than read one stream and hand it on: several streams side by side (AltUp,
Baykal et al. 2023, arXiv:2301.13310), activations cut by their spread, experts with a learnt weight each.

Symbols as in base.py; n streams of h numbers a token. Weights of AltUp stand in ordinary linear layers and norms: here
is what joins them.
"""

from __future__ import annotations

from napkin.elementwise import Number
from napkin.operations.base import NOT_TIMED, Elementwise, Gemm, Weight, Work, gemm
from napkin.operations.linear import Matmul
from napkin.record import record


@record
class Streaming(Elementwise, abstract=True):
    """What these operations share: elementwise work that moves bytes of its own."""

    width: int

    def traffic(self) -> tuple[int, int]:
        """Bytes a token that must move, forward and backward, 16-bit tensors: what is read and what is written."""
        return 0, 0


@record
class Stream(Streaming):
    """One of the streams, `width` numbers a token: a view, or a copy."""

    copied: bool = False

    def traffic(self) -> tuple[int, int]:
        return (4 * self.width, 4 * self.width) if self.copied else (0, 0)


@record
class Stack(Streaming):
    """Streams of equal width put together: a new tensor of `width` numbers a token."""

    def traffic(self) -> tuple[int, int]:
        return 4 * self.width, 4 * self.width


@record
class StreamMean(Streaming):
    """The mean of all streams, of `width` numbers a token."""

    streams: int

    def traffic(self) -> tuple[int, int]:
        both = 2 * (self.streams + 1) * self.width
        return both, both


@record
class Magnitude(Streaming):
    """The root mean square of `width` numbers: one number a token."""

    def traffic(self) -> tuple[int, int]:
        return 2 * self.width, 4 * self.width


@record
class Rescale(Streaming):
    """A tensor of `width` numbers a token, brought to the magnitude that is read second."""

    def traffic(self) -> tuple[int, int]:
        return 4 * self.width, 6 * self.width


@record
class Blend(Streaming):
    """AltUp's prediction: each stream plus a sum of all, by n² coefficients of each token that are read second.
    FLOP: 2·T·h·n²."""

    streams: int

    def weights(self) -> tuple[Weight, ...]:
        return ()

    def gemms(self, work: Work) -> tuple[Gemm, ...]:
        n = self.streams
        return (gemm(self.name, self.width, n, n, work.tokens, weight=False),)

    def traffic(self) -> tuple[int, int]:
        both = 2 * self.streams * self.width  # the streams that are added; the product moves its own
        return both, both


@record
class Correct(Streaming):
    """AltUp's correction: every predicted stream plus a multiple (1 + a coefficient, read third) of what the layer made
    (read second) beyond the stream that it worked on."""

    streams: int

    def traffic(self) -> tuple[int, int]:
        return 2 * (2 * self.streams + 1) * self.width, 2 * (2 * self.streams + 2) * self.width


@record
class AddToOthers(Streaming):
    """A tensor of `width` numbers a token, added in place to all streams but the first."""

    streams: int

    def traffic(self) -> tuple[int, int]:
        others = self.streams - 1
        return 2 * (2 * others + 1) * self.width, 2 * (others + 1) * self.width


@record
class GaussianTopK(Streaming):
    """max(x − c, 0) over `width` numbers a token: the cut c is their mean and so many of their deviations, as if they
    were normally distributed, so that about a given share of them stays (Gemma 3n)."""

    def traffic(self) -> tuple[int, int]:
        return 6 * self.width, 8 * self.width  # read for the cut, and again for the result


@record
class ClampedMatmul(Matmul):
    """A linear layer whose weight is cut to an interval on every pass."""


@record
class ExpertScale(Elementwise):
    """The weights of a token's chosen experts, each multiplied by a learnt number of its expert. Reads a router."""

    experts: int
    top_k: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.experts,)),)

    def traffic(self) -> tuple[Number, Number]:
        return NOT_TIMED  # not timed yet

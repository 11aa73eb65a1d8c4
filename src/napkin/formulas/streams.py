"""Operations of networks whose layers do more than read one stream and hand it on: several streams side by side (AltUp,
Baykal et al. 2023, arXiv:2301.13310), tensors that layers lend to those that follow, activations cut by their spread.

Symbols as in layer.py; n streams of h numbers a token. Weights of AltUp stand in ordinary linear layers and norms: here
is what joins them.
"""

from __future__ import annotations

from napkin.formulas.layer import Matmul, Operation, Product, Weight, Work, product
from napkin.record import record

LENT = "lent/"
"""How a tensor that was lent is read: this and the name of the operation that lends it."""


@record
class Lend(Operation):
    """Hands what it reads on to all layers that follow: keys and values that several layers share, or numbers of which
    each layer has a part. Every later layer may read it, so that no pipeline stage stands alone."""


@record
class Stream(Operation):
    """One of the streams, `width` numbers a token: a view, or a copy."""

    width: int
    copied: bool = False


@record
class Stack(Operation):
    """Streams of equal width put together: a new tensor of `width` numbers a token."""

    width: int


@record
class StreamMean(Operation):
    """The mean of all streams, of `width` numbers a token."""

    width: int


@record
class Magnitude(Operation):
    """The root mean square of `width` numbers: one number a token."""

    width: int


@record
class Rescale(Operation):
    """A tensor of `width` numbers a token, brought to the magnitude that is read second."""

    width: int


@record
class Blend(Operation):
    """AltUp's prediction: each stream plus a sum of all, by n² coefficients of each token that are read second.
    FLOP: 2·T·h·n²."""

    width: int
    streams: int

    def products(self, work: Work) -> tuple[Product, ...]:
        n = self.streams
        return (product(self.name, self.width, n, n, work.tokens, weight=False),)


@record
class Correct(Operation):
    """AltUp's correction: every predicted stream plus a multiple (1 + a coefficient, read third) of what the layer made
    (read second) beyond the stream that it worked on."""

    width: int
    streams: int


@record
class AddToOthers(Operation):
    """A tensor of `width` numbers a token, added in place to all streams but the first."""

    width: int
    streams: int


@record
class ClampedMatmul(Matmul):
    """A linear layer whose weight is cut to an interval on every pass."""


@record
class GaussianTopK(Operation):
    """max(x − c, 0) over `width` numbers a token: the cut c is their mean and so many of their deviations, as if they
    were normally distributed, so that about a given share of them stays (Gemma 3n)."""

    width: int


@record
class ExpertScale(Operation):
    """The weights of a token's chosen experts, each multiplied by a learnt number of its expert. Reads a router."""

    experts: int
    top_k: int

    def weights(self) -> tuple[Weight, ...]:
        return (Weight("scale", (self.experts,)),)

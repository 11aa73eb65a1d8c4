"""A scaling law as it was published: its constants, what they count, where they were fitted, and who says so.

N parameters, D tokens, C training FLOP. Two forms:

    Surface    L = E + A/N^alpha + B/D^beta, minimized where D tokens at the price of N parameters cost C
    Frontier   the optimum itself, N or D or FLOPs per token as a power of C; no loss is known off it
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.counting.six_n import six
from napkin.planning.laws.price import ONE, PARAM, TokenPrice, pure, root
from napkin.record import record
from napkin.term import SEEN, TRUE, Term, add, define, divide, leaf, make, multiply, power

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


@record
class FittedRange:
    """The range in which a law was fitted, ends included."""

    low: float
    high: float

    def beyond(self, value: float) -> float:
        """Return how many times outside the range a value lies; 1 inside."""
        return max(self.low / value, value / self.high, 1.0)


@record
class Surface:
    """L(N, D) = E + A/N^alpha + B/D^beta, in nats per token of its own data and tokenizer.

    covariance  of (ln A, ln B, ln E, alpha, beta), if the fit's uncertainty is known
    price       what a token costs a model of N parameters
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    covariance: tuple[tuple[float, ...], ...] = ()
    price: TokenPrice = TokenPrice()

    def loss(self, params: Term, tokens: Term) -> Term:
        """Return the loss of N parameters on D tokens, none of which is repeated."""
        floor = _fitted("E", self.E).renamed("loss/irreducible")
        size = divide(
            "loss/size", _fitted("A", self.A), power("law/N^alpha", pure(params), _fitted("alpha", self.alpha))
        )
        data = divide("loss/data", _fitted("B", self.B), power("law/D^beta", pure(tokens), _fitted("beta", self.beta)))
        return add("loss", floor, size, data)

    def params(self, compute: Term) -> Term:
        """Return the N of the lowest loss of a compute: where every parameter costs the same, in closed form (Hoffmann
        et al. 2022, equation 4); else as a number."""
        if self.price.extra is not None:
            source = "the lowest loss at the law's own price of a token"
            return leaf("params/exact", self.balanced(float(compute.value), 0.0), "param", TRUE, source)
        alpha, beta = _fitted("alpha", self.alpha), _fitted("beta", self.beta)
        both = add("law/alpha+beta", alpha, beta)
        size, data = (
            multiply("law/alpha·A", alpha, _fitted("A", self.A)),
            multiply("law/beta·B", beta, _fitted("B", self.B)),
        )
        inverse = divide("law/1/(alpha+beta)", ONE, both)
        scale = power("law/G", divide("law/alpha·A/(beta·B)", size, data), inverse)
        pairs = divide("law/C/6", compute, *self.price.per_pair)
        grown = power("law/(C/6)^a", pure(pairs), divide("law/a", beta, both))
        return multiply("params/exact", scale, grown, PARAM)

    def balanced(self, compute: float, served: float) -> float:
        """Return the N whose quality nothing else has for less compute, in training and serving together.

        Where the quality stays, moving ln N and ln D against each other must change neither its cost: the loss falls
        with ln N as many times as fast as with ln D, as the cost of a life grows with one against the other. With 6·N
        FLOP a token in training and 2·N in serving that is 1 + served/(3·D) times (Sardana et al. 2024,
        arXiv:2401.00448, equation 3).
        """

        def wedge(log_n: float) -> float:
            params = math.exp(log_n)
            tokens = self.price.tokens(compute, params)
            size, data = self.reducible(params, tokens)
            costs = self.price.slope(params, served / tokens) / self.price.training(params)
            return math.log(self.alpha * size / (self.beta * data)) - math.log(costs)

        return math.exp(root(wedge))

    def params_for(self, tokens: float) -> float:
        """Return the N for which these tokens are optimal: G·(D·G)^(beta/alpha) (Muennighoff et al. 2023)."""
        scale = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        return float(scale * (tokens * scale) ** (self.beta / self.alpha))

    def reducible(self, params: float, tokens: float) -> tuple[float, float]:
        """Return A/N^alpha and B/D^beta as numbers."""
        return self.A * params**-self.alpha, self.B * tokens**-self.beta

    def deviation(self, params: float, tokens: float) -> float:
        """Return the standard error of the loss that the fit's covariance gives (the delta method); 0 where unknown."""
        size, data = self.reducible(params, tokens)
        return self._deviation((size, data, self.E, -size * math.log(params), -data * math.log(tokens)))

    def deviation_of_params(self, compute: float) -> float:
        """Return the standard error of ln(optimal N); 0 if the covariance is unknown."""
        total, log_c = self.alpha + self.beta, math.log(compute / six().value)
        log_g = math.log(self.alpha * self.A / (self.beta * self.B)) / total
        by_alpha = (1 / self.alpha - log_g) / total - self.beta / total**2 * log_c
        by_beta = (-1 / self.beta - log_g) / total + self.alpha / total**2 * log_c
        return self._deviation((1 / total, -1 / total, 0.0, by_alpha, by_beta))

    def _deviation(self, slope: tuple[float, ...]) -> float:
        found = sum(slope[i] * slope[j] * value for i, row in enumerate(self.covariance) for j, value in enumerate(row))
        return math.sqrt(max(found, 0.0))


@record
class Frontier:
    """The optimum as a power of C: `of` is "params", "tokens", or "flops_per_token" (then N is a sixth of it).

    value at `at` FLOP, growing with C^exponent
    """

    of: str
    value: float
    at: float
    exponent: float

    def params(self, compute: Term) -> Term:
        """Return the optimal N."""
        share = divide("law/C/C0", compute, leaf("law/C0", self.at, "FLOP", SEEN))
        grown = power("law/(C/C0)^a", share, leaf("law/a", self.exponent, "1", SEEN))
        if self.of == "params":
            return multiply("params/exact", leaf("law/N0", self.value, "param", SEEN), grown)
        if self.of == "tokens":
            tokens = multiply("law/D", leaf("law/D0", self.value, "token", SEEN), grown)
            return divide("params/exact", compute, six(), tokens)
        per_token = multiply("law/M", leaf("law/M0", self.value, "FLOP/token", SEEN), grown)
        return divide("params/exact", per_token, six())


@record
class Dimension:
    """What a law has next to parameters and tokens: the option that states it, the values it was fitted to, the usual
    one ("" if the compute says which is best)."""

    option: str
    values: tuple[int, ...]
    usual: str = ""


class Variants(Protocol):
    """A law's further dimensions, and the law at values of them; those after the last that is given are free."""

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What it takes values of."""

    def law_at(self, law: ScalingLaw, values: tuple[int, ...]) -> ScalingLaw:
        """Return the law at values."""


@record
class ScalingLaw:
    """A published law.

    name      for --law                        title     authors and year, as a person cites them
    source    where the constants are printed  counts    what its N counts
    form      its loss as a Surface, or only its optimum as a Frontier
    data      what it was fitted on: losses of laws with the same data compare
    flop, params, tokens  where it was fitted
    stands    whether its answer belongs to the spread of today's laws for dense models
    remark    what to know before using it
    variants  its further dimensions, if it has some        told  their values, in words
    at        values that were searched, and where they were fitted
    mixture   whether a token takes some of its parameters only
    choices   the law at each value of what is left free, of which a compute chooses
    total     parameters for each one that is counted, if the law says so
    """

    name: str
    title: str
    source: str
    form: Surface | Frontier
    data: str
    counts: str = "all parameters"
    flop: FittedRange | None = None
    params: FittedRange | None = None
    tokens: FittedRange | None = None
    stands: bool = True
    remark: str = ""
    variants: Variants | None = None
    told: str = ""
    at: Mapping[str, tuple[int, FittedRange]] = {}
    mixture: bool = False
    choices: tuple[ScalingLaw, ...] = ()
    total: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether it is about dense models in bf16, every parameter of which costs 6 FLOP a token."""
        return not self.mixture and self.price == TokenPrice()

    @property
    def price(self) -> TokenPrice:
        """What a token costs."""
        return TokenPrice() if self.surface is None else self.surface.price

    @property
    def surface(self) -> Surface | None:
        """Its loss, if it has one."""
        return self.form if isinstance(self.form, Surface) else None


def _fitted(name: str, value: float) -> Term:
    return leaf(f"law/{name}", value, "1", SEEN)


def worth(passes: float, scale: float) -> float:
    """Return how many passes over fresh data this many passes over the same data are worth: 1 + R*(1 − exp(−R/R*))."""
    return passes if passes <= 1 else 1 - scale * math.expm1(-(passes - 1) / scale)


define("worth", worth)


@record
class Repetition:
    """Repeated data (Muennighoff et al. 2023, arXiv:2305.16264, equations 5 and 6): each further pass is worth less.

    unique  tokens that are all different
    of_tokens, of_params  R*_D and R*_N of their table of fits: passes after which most of the worth is used up
    """

    unique: Term
    of_tokens: float = 15.387756
    of_params: float = 5.309743

    def tokens(self, tokens: Term) -> Term:
        """Return how many unique tokens D tokens are worth."""
        epochs = divide("epochs", tokens, self.unique)
        of_these = make("worth", "epochs/effective", (epochs, leaf("law/R*_D", self.of_tokens, "1", SEEN)))
        return multiply("tokens/effective", self.unique, of_these)

    def params(self, surface: Surface, params: Term) -> Term:
        """Return how many parameters N are worth: those beyond what the unique tokens suit are worth less."""
        suited = leaf("params/suited", surface.params_for(float(self.unique.value)), "param", SEEN)
        share = divide("params/share", params, suited)
        of_these = make("worth", "params/worth", (share, leaf("law/R*_N", self.of_params, "1", SEEN)))
        return multiply("params/effective", suited, of_these)


def loss(surface: Surface, params: Term, tokens: Term, repeated: Repetition | None) -> Term:
    """Return the loss of N parameters on D tokens, drawn again and again from the different ones if they are few."""
    if repeated is None:
        return surface.loss(params, tokens)
    return surface.loss(repeated.params(surface, params), repeated.tokens(tokens))

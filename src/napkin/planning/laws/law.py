"""A scaling law as published: its constants, what they count, the range of the fit, and the source.

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
        """Return the factor by which a value is outside the range; 1 inside."""
        return max(self.low / value, value / self.high, 1.0)


@record
class Surface:
    """L(N, D) = E + A/N^alpha + B/D^beta, in nats per token of its own data and tokenizer.

    covariance  of (ln A, ln B, ln E, alpha, beta), if the fit's uncertainty is known
    price       FLOP per token of a model of N parameters
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    covariance: tuple[tuple[float, ...], ...] = ()
    price: TokenPrice = TokenPrice()

    def loss(self, params: Term, tokens: Term) -> Term:
        """Return the loss of N parameters on D unique tokens."""
        floor = _fitted("E", self.E).renamed("loss/irreducible")
        size = divide(
            "loss/size", _fitted("A", self.A), power("law/N^alpha", pure(params), _fitted("alpha", self.alpha))
        )
        data = divide("loss/data", _fitted("B", self.B), power("law/D^beta", pure(tokens), _fitted("beta", self.beta)))
        return add("loss", floor, size, data)

    def params(self, compute: Term) -> Term:
        """Return the N with the lowest loss for a compute: in closed form if every parameter costs the same (Hoffmann
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
        """Return the N with the least compute, in training and serving together, for its loss.

        At the optimum, the ratio of the loss slopes in ln N and ln D equals the ratio of the cost slopes. With 6·N FLOP
        per token in training and 2·N in serving, that ratio is 1 + served/(3·D) (Sardana et al. 2024, arXiv:2401.00448,
        equation 3)."""

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
        """Return the optimal N, in parameters."""
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
    """A further dimension of a law: its option, the values of the fit, and the default ("" if the compute determines
    the best)."""

    option: str
    values: tuple[int, ...]
    usual: str = ""


class Variants(Protocol):
    """A law's further dimensions, and the law at values of them; dimensions without a value are free."""

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions that take values."""

    def law_at(self, law: ScalingLaw, values: tuple[int, ...]) -> ScalingLaw:
        """Return the law at values."""


@record
class ScalingLaw:
    """A published law.

    name      for --law                        title     authors and year
    source    citation of the constants              counts    what its N counts
    form      its loss as a Surface, or only its optimum as a Frontier
    data      data of the fit: losses of laws with the same data are comparable
    flop, params, tokens  ranges of the fit
    current   whether it belongs to the spread of current laws for dense models
    remark    caveat
    variants  its further dimensions, if it has some        told  their values, in words
    at        searched values, and the range of their fit
    mixture   whether a token uses only some of its parameters
    choices   the law at each value of its free dimensions, from which a compute selects
    total     total parameters per counted one, if the law relates them
    repeats   whether repeated data was studied with it (Repetition)
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
    current: bool = True
    remark: str = ""
    variants: Variants | None = None
    told: str = ""
    at: Mapping[str, tuple[int, FittedRange]] = {}
    mixture: bool = False
    choices: tuple[ScalingLaw, ...] = ()
    total: float = 1.0
    repeats: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is about dense models in bf16, every parameter of which costs 6 FLOP a token."""
        return not self.mixture and self.price == TokenPrice()

    @property
    def price(self) -> TokenPrice:
        """The FLOP per token."""
        return TokenPrice() if self.surface is None else self.surface.price

    @property
    def surface(self) -> Surface | None:
        """Its loss, if it has one."""
        return self.form if isinstance(self.form, Surface) else None


def _fitted(name: str, value: float) -> Term:
    return leaf(f"law/{name}", value, "1", SEEN)


def worth(passes: float, scale: float) -> float:
    """Return the number of passes over fresh data that equal this many passes over the same data: 1 + R*(1 −
    exp(−R/R*))."""
    return passes if passes <= 1 else 1 - scale * math.expm1(-(passes - 1) / scale)


define("worth", worth)


@record
class Repetition:
    """Repeated data (Muennighoff et al. 2023, arXiv:2305.16264, equations 5 and 6): each further pass is worth less.

    unique  number of distinct tokens
    of_tokens, of_params  R*_D and R*_N of their table of fits: passes after which most of the worth is used up
    """

    unique: Term
    of_tokens: float = 15.387756
    of_params: float = 5.309743

    def tokens(self, tokens: Term) -> Term:
        """Return the effective unique tokens of D tokens."""
        epochs = divide("epochs", tokens, self.unique)
        of_these = make("worth", "epochs/effective", (epochs, leaf("law/R*_D", self.of_tokens, "1", SEEN)))
        return multiply("tokens/effective", self.unique, of_these)

    def params(self, surface: Surface, params: Term) -> Term:
        """Return the effective parameters of N: those beyond the optimum for the unique tokens count less."""
        suited = leaf("params/suited", surface.params_for(float(self.unique.value)), "param", SEEN)
        share = divide("params/share", params, suited)
        of_these = make("worth", "params/worth", (share, leaf("law/R*_N", self.of_params, "1", SEEN)))
        return multiply("params/effective", suited, of_these)


def loss(surface: Surface, params: Term, tokens: Term, repeated: Repetition | None) -> Term:
    """Return the loss of N parameters on D tokens, drawn repeatedly from the unique ones."""
    if repeated is None:
        return surface.loss(params, tokens)
    return surface.loss(repeated.params(surface, params), repeated.tokens(tokens))

"""FLOP per token of a model with N parameters, in training and in serving: 6·N and 2·N FLOP, unless a law says more."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.counting.six_n import six
from napkin.record import record
from napkin.term import SEEN, TRUE, Term, add, constant, divide, floor, leaf, multiply, power

SMALLEST, LARGEST = 1.0, 1e24
"""Bounds of the search for parameters and for tokens."""
ONE = constant("1", 1)
PARAM = constant("1 param", 1, "param")
TWO = constant("2", 2, "FLOP/param/token", "the forward pass: 2 FLOP per parameter and token")


def pure(term: Term) -> Term:
    """Return a quantity as a number without its unit, which can be raised to a power."""
    return divide(f"{term.name} as a number", term, constant(f"1 {term.unit}", 1, term.unit))


def root(falling: Callable[[float], float], low: float = SMALLEST, high: float = LARGEST) -> float:
    """Return the logarithm at which a falling function of a logarithm crosses 0."""
    low, high = math.log(low), math.log(high)
    for _ in range(100):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@record
class ExtraWork:
    """FLOP of a token that are not in proportion to N: a factor times N^exponent.

    training  the factor in training        serving  in serving        source  citation
    """

    name: str
    training: float
    serving: float
    exponent: float
    source: str

    def term(self, factor: float, params: Term) -> Term:
        """Return the FLOP per token of N parameters."""
        grown = power(f"law/N^{self.exponent:.3g}", pure(params), leaf("law/exponent", self.exponent, "1", SEEN))
        return multiply(f"flops/{self.name}", leaf("law/factor", factor, "FLOP/token", SEEN, self.source), grown)


@record
class TokenPrice:
    """The FLOP per token in training and serving.

    flop   cost of a FLOP of this training in FLOP of bf16: 0.5 in 8 bits
    extra  work in addition to 6·N in training and 2·N in serving, if the law counts it
    """

    flop: float = 1.0
    extra: ExtraWork | None = None

    @property
    def per_pair(self) -> tuple[Term, ...]:
        """The factors of the FLOP of one parameter and one token in training: 6, and the price of a FLOP if not 1."""
        return (six(),) if self.flop == 1 else (six(), constant("price of a FLOP", self.flop))

    def factors(self, params: Term) -> tuple[Term, ...]:
        """Return the factors of the FLOP of one token in training."""
        if self.extra is None:
            return (*self.per_pair, params)
        weights = multiply("flops/weights", *self.per_pair, params)
        return (add("flops/per_token", weights, self.extra.term(self.extra.training, params)),)

    def training(self, params: float) -> float:
        """Return the FLOP of a token in training."""
        more = 0.0 if self.extra is None else self.extra.training * params**self.extra.exponent
        return float(six().value) * self.flop * params + more

    def serving(self, params: float) -> float:
        """Return the FLOP of a token in serving."""
        more = 0.0 if self.extra is None else self.extra.serving * params**self.extra.exponent
        return float(TWO.value) * params + more

    def slope(self, params: float, served: float) -> float:
        """Return the derivative with respect to ln N of the FLOP per token in training plus that of this many served
        tokens."""
        each = float(six().value) * self.flop + float(TWO.value) * served
        extra = self.extra
        more = 0.0 if extra is None else extra.exponent * (extra.training + served * extra.serving)
        return each * params + more * (0.0 if extra is None else params**extra.exponent)

    def tokens(self, compute: float, params: float) -> float:
        """Return the tokens on which a compute trains N parameters."""
        return compute / self.training(params)

    def divided(self, compute: Term, params: Term) -> Term:
        """Return the tokens that N parameters get of a budget, rounded down."""
        return floor("tokens", divide("tokens/exact", compute, *self.factors(params)))

    def sized(self, compute: Term, tokens: Term) -> Term:
        """Return the parameters that a budget trains on D tokens, rounded down."""
        if self.extra is None:
            return floor("params", divide("params/exact", compute, *self.per_pair, tokens))
        each = float(compute.value) / float(tokens.value)
        found = math.exp(root(lambda log_n: each - self.training(math.exp(log_n))))
        source = "the size that the budget trains on these tokens, at the law's price of a token"
        return floor("params", leaf("params/exact", found, "param", TRUE, source))

    def spent(self, params: Term, tokens: Term) -> Term:
        """Return the FLOP of a run."""
        return multiply("flops/total", *self.factors(params), tokens)

    def served(self, params: Term, tokens: Term) -> Term:
        """Return the FLOP of serving."""
        if self.extra is None:
            return multiply("flops/served", TWO, params, tokens)
        weights = multiply("flops/served/weights", TWO, params)
        each = add("flops/served/per_token", weights, self.extra.term(self.extra.serving, params))
        return multiply("flops/served", each, tokens)

    @property
    def words(self) -> str:
        """The price of D tokens, as a formula."""
        flop = "" if self.flop == 1 else f"{self.flop:g}·"
        extra = "" if self.extra is None else f" + {self.extra.training:.4g}·N^{self.extra.exponent:.3g}·D"
        return f"C = {flop}6·N·D{extra}"

"""The division of a budget that a law leads to, and what another division costs. Sizes are solved for by bisection or
by golden section where no closed form is known; every loss is that of the law's terms."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.counting.six_n import six
from napkin.planning.laws.law import Repetition, ScalingLaw, Surface, loss, per_pair
from napkin.record import record
from napkin.term import TRUE, Term, constant, divide, floor, leaf, multiply

SMALLEST, LARGEST = 1.0, 1e24
"""Parameters, and tokens, between which an optimum is looked for."""
GOLDEN = (math.sqrt(5) - 1) / 2
TWO = constant("2", 2, "FLOP/param/token", "the forward pass: 2 FLOP per parameter and token")


@record
class Aims:
    """What the model is for, next to its loss.

    served    tokens that it will process in its life, prompts and answers together
    repeated  the different tokens that there are, where they are few
    """

    served: Term | None = None
    repeated: Repetition | None = None


def optimum(law: ScalingLaw, compute: Term, aims: Aims) -> Term:
    """Return the law's parameters for a training budget.

    With few different tokens, those of the lowest loss. With tokens to serve, those of the model whose quality nothing
    else has for less compute in training and serving together (Sardana et al. 2024, arXiv:2401.00448, equation 3): the
    loss falls 1 + served/(3·D) times as fast with ln N as with ln D there.
    """
    surface = law.surface
    if surface is None or (aims.served is None and aims.repeated is None):
        return law.form.params(compute)
    budget = float(surface.budget(compute).value)

    def of_size(log_n: float) -> float:
        return value_of(surface, math.exp(log_n), budget / math.exp(log_n), aims.repeated)

    if aims.served is None:
        found = _lowest(of_size, _middle(surface, compute))
        return leaf("params/exact", found, "param", TRUE, "the size of the lowest loss with this many different tokens")
    served = float(aims.served.value)

    def wedge(log_n: float) -> float:
        params = math.exp(log_n)
        tokens = budget / params
        size, data = surface.reducible(params, tokens)
        return math.log(surface.alpha * size / (surface.beta * data)) - math.log1p(served / (3 * tokens))

    found = math.exp(_root(wedge, math.log(SMALLEST), math.log(LARGEST)))
    return leaf("params/exact", found, "param", TRUE, "Sardana et al. 2024, arXiv:2401.00448, equation 3")


def _middle(surface: Surface, compute: Term) -> float:
    return math.log(surface.params(compute).value)


def value_of(surface: Surface, params: float, tokens: float, repeated: Repetition | None) -> float:
    """Return the loss of N parameters on D tokens as a number."""
    sized, read = leaf("params", params, "param"), leaf("tokens", tokens, "token")
    return float(loss(surface, sized, read, repeated).value)


def tokens_for(surface: Surface, params: float, target: float, repeated: Repetition | None = None) -> float | None:
    """Return the tokens with which N parameters reach a loss; None where no number does."""

    def above(log_d: float) -> float:
        return value_of(surface, params, math.exp(log_d), repeated) - target

    low, high = math.log(SMALLEST), math.log(LARGEST)
    if above(high) > 0:
        return None
    return math.exp(_root(above, low, high))


def same_loss(surface: Surface, params: float, target: float, repeated: Repetition | None = None) -> float | None:
    """Return the FLOP with which N parameters reach a loss; None where no number does."""
    tokens = tokens_for(surface, params, target, repeated)
    return None if tokens is None else float(six().value) * surface.price * params * tokens


def least_compute(surface: Surface, target: float, repeated: Repetition | None = None) -> float:
    """Return the FLOP with which the law's own division reaches a loss."""
    aims = Aims(repeated=repeated)

    def above(log_c: float) -> float:
        compute = leaf("flops/total", math.exp(log_c), "FLOP")
        params = float(_of(surface, compute, aims))
        return value_of(surface, params, float(surface.budget(compute).value) / params, repeated) - target

    return math.exp(_root(above, math.log(1e6), math.log(1e40)))


def _of(surface: Surface, compute: Term, aims: Aims) -> float:
    return float(optimum(ScalingLaw("", "", "", surface, ""), compute, aims).value)


def cheapest(surface: Surface, target: float, served: float) -> tuple[float, float]:
    """Return (N, D) of a loss with the least compute in training and serving together (Sardana et al. 2024)."""

    def total(log_n: float) -> float:
        tokens = tokens_for(surface, math.exp(log_n), target)
        each = float(six().value) * surface.price
        return math.inf if tokens is None else math.exp(log_n) * (each * tokens + float(TWO.value) * served)

    compute = leaf("flops/total", least_compute(surface, target), "FLOP")
    params = _lowest(total, _middle(surface, compute))
    tokens = tokens_for(surface, params, target)
    assert tokens is not None
    return params, tokens


def divided(compute: Term, params: Term, price: float = 1.0) -> Term:
    """Return the tokens that N parameters get of a budget: C/(6·N), rounded down."""
    return floor("tokens", divide("tokens/exact", compute, *per_pair(price), params))


def sized(compute: Term, tokens: Term, price: float = 1.0) -> Term:
    """Return the parameters that a budget trains on D tokens: C/(6·D), rounded down."""
    return floor("params", divide("params/exact", compute, *per_pair(price), tokens))


def spent(params: Term, tokens: Term, price: float = 1.0) -> Term:
    """Return the FLOP of a run: 6·N·D."""
    return multiply("flops/total", *per_pair(price), params, tokens)


def serving(params: Term, served: Term) -> Term:
    """Return the FLOP of serving: 2·N for each token."""
    return multiply("flops/served", TWO, params, served)


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function crosses 0."""
    for _ in range(100):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _lowest(function: Callable[[float], float], near: float) -> float:
    """Return e to the argument of the lowest value of a function that falls and then rises, near ± ln 10^6."""
    low, high = near - math.log(1e6), near + math.log(1e6)
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    of_a, of_b = function(a), function(b)
    for _ in range(80):
        if of_a <= of_b:
            high, b, of_b = b, a, of_a
            a = high - GOLDEN * (high - low)
            of_a = function(a)
        else:
            low, a, of_a = a, b, of_b
            b = low + GOLDEN * (high - low)
            of_b = function(b)
    return math.exp((low + high) / 2)

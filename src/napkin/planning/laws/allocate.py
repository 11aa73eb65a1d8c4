"""The split of a budget by a law, and the cost of other splits. Sizes without a closed form are found by bisection or
golden-section search; every loss comes from the law's terms."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.errors import BROKEN, NapkinError
from napkin.planning.laws.law import Repetition, ScalingLaw, Surface, loss
from napkin.planning.laws.price import LARGEST, SMALLEST, root
from napkin.record import record
from napkin.term import TRUE, Term, leaf

UNSUITED = 0.2
"""Tolerance, as a share, between the optimum of the solved compute and the given size: finer experts come in steps."""
GOLDEN = (math.sqrt(5) - 1) / 2


@record
class Aims:
    """Objectives of a model besides its loss.

    served    tokens that it will process in its lifetime, prompts and responses together
    repeated  the number of unique tokens, if limited
    """

    served: Term | None = None
    repeated: Repetition | None = None


def optimum(law: ScalingLaw, compute: Term, aims: Aims) -> Term:
    """Return the law's parameters for a training budget.

    With few unique tokens, the parameters with the lowest loss. With tokens to serve, the model with the least compute
    in training and serving together for its loss (Sardana et al. 2024, arXiv:2401.00448, equation 3)."""
    surface = law.surface
    if surface is None or (aims.served is None and aims.repeated is None):
        return law.form.params(compute)
    budget = float(compute.value)
    if aims.served is not None:
        found = surface.balanced(budget, float(aims.served.value))
        return leaf("params/exact", found, "param", TRUE, "Sardana et al. 2024, arXiv:2401.00448, equation 3")

    def of_size(log_n: float) -> float:
        params = math.exp(log_n)
        return value_of(surface, params, surface.price.tokens(budget, params), aims.repeated)

    found = _lowest(of_size, _middle(surface, compute))
    return leaf("params/exact", found, "param", TRUE, "the size of the lowest loss with this many unique tokens")


def at_compute(
    law: ScalingLaw, compute: Term, aims: Aims, params: Term | None = None, tokens: Term | None = None
) -> ScalingLaw:
    """Return the law with its free dimensions chosen for the lowest loss at this compute, at its own optimum or with
    the given parameters or tokens."""

    def of_choice(one: ScalingLaw) -> float:
        surface = one.surface
        assert surface is not None
        size = float((optimum(one, compute, aims) if params is None else params).value)
        if tokens is not None:
            size = float(surface.price.sized(compute, tokens).value)
        size = max(size, SMALLEST)
        return value_of(surface, size, surface.price.tokens(float(compute.value), size), aims.repeated)

    return min(law.choices, key=of_choice) if law.choices else law


def suited(law: ScalingLaw, aims: Aims, params: float | None, tokens: float | None) -> float:
    """Return the compute for which a size, or a number of tokens, is optimal; both grow with compute. Raises
    NapkinError (1) if none does."""

    def short(log_c: float) -> float:
        compute = leaf("flops/total", math.exp(log_c), "FLOP")
        at = at_compute(law, compute, aims)
        found = float(optimum(at, compute, aims).value)
        if params is not None:
            return params - found
        assert tokens is not None
        return tokens - at.price.tokens(math.exp(log_c), found)

    log_c = root(short, 1.0, 1e60)
    if abs(short(log_c)) > (params or tokens or 0.0) * UNSUITED:
        raise NapkinError("no compute suits that", "--params 7B, or --tokens 1T", status=BROKEN)
    return math.exp(log_c)


def _middle(surface: Surface, compute: Term) -> float:
    return math.log(max(float(surface.params(compute).value), SMALLEST))


def value_of(surface: Surface, params: float, tokens: float, repeated: Repetition | None) -> float:
    """Return the loss of N parameters on D tokens as a number."""
    sized, read = leaf("params", params, "param"), leaf("tokens", tokens, "token")
    return float(loss(surface, sized, read, repeated).value)


def tokens_for(surface: Surface, params: float, target: float, repeated: Repetition | None = None) -> float | None:
    """Return the tokens with which N parameters reach a loss; None if no number does."""

    def above(log_d: float) -> float:
        return value_of(surface, params, math.exp(log_d), repeated) - target

    if above(math.log(LARGEST)) > 0:
        return None
    return math.exp(root(above))


def same_loss(surface: Surface, params: float, target: float, repeated: Repetition | None = None) -> float | None:
    """Return the FLOP with which N parameters reach a loss; None if no number does."""
    tokens = tokens_for(surface, params, target, repeated)
    return None if tokens is None else surface.price.training(params) * tokens


def least_compute(surface: Surface, target: float, repeated: Repetition | None = None) -> float:
    """Return the FLOP with which the law's own split reaches a loss."""
    aims = Aims(repeated=repeated)

    def above(log_c: float) -> float:
        compute = leaf("flops/total", math.exp(log_c), "FLOP")
        params = float(_of(surface, compute, aims))
        return value_of(surface, params, surface.price.tokens(float(compute.value), params), repeated) - target

    return math.exp(root(above, 1e6, 1e40))


def _of(surface: Surface, compute: Term, aims: Aims) -> float:
    return float(optimum(ScalingLaw("", "", "", surface, ""), compute, aims).value)


def cheapest(surface: Surface, target: float, served: float) -> tuple[float, float]:
    """Return the (N, D) that reach a loss with the least compute in training and serving together (Sardana et al.
    2024)."""

    def total(log_n: float) -> float:
        params, price = math.exp(log_n), surface.price
        tokens = tokens_for(surface, params, target)
        return math.inf if tokens is None else price.training(params) * tokens + price.serving(params) * served

    compute = leaf("flops/total", least_compute(surface, target), "FLOP")
    params = _lowest(total, _middle(surface, compute))
    tokens = tokens_for(surface, params, target)
    assert tokens is not None
    return params, tokens


def _lowest(function: Callable[[float], float], near: float) -> float:
    """Return exp of the minimizer of a unimodal function, searched within near ± ln 10^6."""
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

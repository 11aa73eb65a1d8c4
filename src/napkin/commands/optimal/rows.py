"""The cost of deviating from an optimum, and the results of other laws, as rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from napkin.planning.laws.allocate import Aims, cheapest, least_compute, optimum, same_loss, value_of
from napkin.planning.laws.known import current_laws
from napkin.planning.laws.law import ScalingLaw, Surface
from napkin.record import record
from napkin.render.answer import Cell
from napkin.render.figures import amount
from napkin.term import Term, leaf

FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)
"""Sizes that are compared, as multiples of the best one."""
AIMLESS = Aims()
COLUMNS = {
    "params": "param",
    "tokens": "token",
    "tokens_per_param": "token/param",
    "loss": "1",
    "flops/same_loss": "FLOP",
    "flops/lifetime": "FLOP",
    "extra": "1",
    "cost": "USD",
}
"""Units of the columns that have one."""


@record
class Deviations:
    """Inputs for the cost of other sizes.

    surface  the law that gives the losses     best      parameters of its optimum for this compute
    compute  FLOP of training                    target    the loss of the optimum
    spent    FLOP of training and serving the optimum
    cost     USD of that compute, None if it has no price
    """

    surface: Surface
    aims: Aims
    compute: float
    best: float
    target: float
    spent: float
    cost: float | None

    def tokens(self, params: float) -> float:
        """Return the tokens that the compute pays for."""
        return self.surface.price.tokens(self.compute, params)

    def lifetime(self, params: float, training: float) -> float:
        """Return the FLOP of training and of serving."""
        served = self.aims.served
        return training if served is None else training + self.surface.price.serving(params) * float(served.value)

    def extra(self, params: float) -> float | None:
        """Return the extra compute, as a share, for a model of this size to reach the target loss; None if it
        cannot."""
        training = same_loss(self.surface, params, self.target, self.aims.repeated)
        return None if training is None else max(self.lifetime(params, training) / self.spent - 1, 0.0)

    def row(self, params: float, which: str) -> dict[str, Cell]:
        """Return a size as a row: tokens and loss at the same compute, and the compute for the same loss."""
        tokens = self.tokens(params)
        extra = self.extra(params)
        row: dict[str, Cell] = {
            "params": round(params),
            "tokens": round(tokens),
            "tokens_per_param": tokens / params,
            "loss": value_of(self.surface, params, tokens, self.aims.repeated),
            "extra": extra,
            "which": which,
        }
        if extra is not None and self.cost is not None:
            row["cost"] = self.cost * (1 + extra)
        return row


def deviations_of(surface: Surface, aims: Aims, compute: float, cost: float | None) -> Deviations:
    """Return the inputs for other sizes at a compute."""
    total = leaf("flops/total", compute, "FLOP")
    best = float(optimum(ScalingLaw("", "", "", surface, ""), total, aims).value)
    target = value_of(surface, best, surface.price.tokens(compute, best), aims.repeated)
    plain = Deviations(surface, aims, compute, best, target, 1.0, cost)
    return Deviations(surface, aims, compute, best, target, plain.lifetime(best, compute), cost)


def rows_of(deviations: Deviations, chosen: float) -> list[dict[str, Cell]]:
    """Return rows for sizes around the best one and for the chosen one, in ascending order."""
    sizes = {deviations.best * factor: "optimal" if factor == 1 else "" for factor in FACTORS}
    if all(abs(math.log(chosen / size)) > 0.02 for size in sizes):
        sizes[chosen] = "asked"
    return [deviations.row(size, which) for size, which in sorted(sizes.items())]


def wasted(others: Deviations, params: float, loss: float) -> float:
    """Return the share of the compute that a size wastes (including lifetime serving, if any): the best split reaches
    the same loss without it."""
    if others.aims.served is None:
        return max(1 - least_compute(others.surface, loss, others.aims.repeated) / others.compute, 0.0)
    best, tokens = cheapest(others.surface, loss, float(others.aims.served.value))
    training = others.surface.price.training(best) * tokens
    return max(1 - others.lifetime(best, training) / others.lifetime(params, others.compute), 0.0)


def law_rows(compute: Term, used: ScalingLaw) -> Iterator[dict[str, Cell]]:
    """Yield the results of the current laws for dense models, and of the chosen law, for a compute."""
    for law in current_laws() if used.current else (used, *current_laws()):
        yield row_of_law(law, compute)


def row_of_law(law: ScalingLaw, compute: Term, aims: Aims = AIMLESS) -> dict[str, Cell]:
    """Return the result of a law for a compute."""
    params = float(optimum(law, compute, aims).value)
    tokens = law.price.tokens(float(compute.value), params)
    return {
        "law": law.name,
        "params": round(params),
        "tokens": round(tokens),
        "tokens_per_param": tokens / params,
        "beyond": beyond(law, float(compute.value), params, tokens),
    }


def beyond(law: ScalingLaw, compute: float, params: float, tokens: float) -> float:
    """Return by what factor a law is extrapolated beyond its fitted range; 1 inside."""
    return max((times for times, _ in _stretches(law, compute, params, tokens)), default=1.0)


def stretched(law: ScalingLaw, compute: float, params: float, tokens: float) -> str:
    """Return where a law is extrapolated beyond its fitted range, in words; "" inside."""
    found = [(words, times) for times, words in _stretches(law, compute, params, tokens) if times > 1]
    said = [f"{words} ({_beyond(times)} beyond)" for words, times in found]
    return f"{', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 else "".join(said)


def _beyond(times: float) -> str:
    """Return a factor above 1 in words: `39 times`, `1.6 times`, `0.9%`."""
    return f"{times - 1:.1%}" if times < 1.1 else f"{f'{times:,.0f}' if times >= 10 else f'{times:.2g}'} times"


def _stretches(law: ScalingLaw, compute: float, params: float, tokens: float) -> Iterator[tuple[float, str]]:
    """Yield the factor by which each quantity is outside the fitted range, and that range in words."""
    if law.flop is not None:
        yield law.flop.beyond(compute), f"{law.flop.low:.2g} to {law.flop.high:.2g} FLOP"
    of = "active " if law.mixture else ""
    if law.params is not None:
        yield law.params.beyond(params), f"{amount(law.params.low)} to {amount(law.params.high)} {of}parameters"
    if law.tokens is not None:
        yield law.tokens.beyond(tokens), f"{amount(law.tokens.low)} to {amount(law.tokens.high)} tokens"
    for name, (value, fitted) in law.at.items():
        yield fitted.beyond(value), f"{name} {fitted.low:g} to {fitted.high:g}"

"""Plots of `napkin optimal`: loss against size at equal compute, and compute for equal loss."""

from __future__ import annotations

import math

from napkin.commands.optimal.question import OptimalQuestion
from napkin.commands.optimal.rows import Deviations
from napkin.planning.laws.allocate import value_of
from napkin.render.chart import Chart, Series, axis, titled
from napkin.render.figures import amount
from napkin.units import human

POINTS = 41
WIDEST = 3.0
"""Upper end of the second panel, as a multiple of the least compute."""


def charts(question: OptimalQuestion, others: Deviations, chosen: float) -> tuple[Chart, ...]:
    """Return the two panels; the second in money if the run has a price."""
    sizes = [others.best * 16 ** (2 * i / (POINTS - 1) - 1) for i in range(POINTS)]
    billions = [size / 1e9 for size in sizes]
    repeated = others.aims.repeated
    losses = [value_of(others.surface, size, others.tokens(size), repeated) for size in sizes]
    at = value_of(others.surface, chosen, others.tokens(chosen), repeated)
    named = f"{amount(round(chosen))} parameters"
    extra = [(size, others.extra(size)) for size in sizes]
    kept = [(size / 1e9, 1 + more) for size, more in extra if more is not None and 1 + more <= WIDEST]
    paid = others.cost
    scale, unit = 1.0, "times the least compute"
    if paid is not None:
        each, unit = axis([paid], "USD")
        scale = paid / each
    of_chosen = others.extra(chosen)
    star = [] if of_chosen is None else [Series(named, [chosen / 1e9], [(1 + of_chosen) * scale], style="points")]
    return (
        Chart(
            "lines",
            f"{human(others.compute, 'FLOP', 3)} by {question.law.name}: loss against size",
            "parameters (billions)",
            "loss (nats per token)",
            [
                Series("at this compute", billions, losses, style="line"),
                Series(named, [chosen / 1e9], [at], style="points"),
            ],
            log_x=True,
            log_y=math.isfinite(losses[0]),
        ),
        Chart(
            "lines",
            "compute to reach the optimal loss, by model size",
            "parameters (billions)",
            titled("cost" if paid is not None else "compute", unit),
            [Series("equal loss", [x for x, _ in kept], [y * scale for _, y in kept], style="line"), *star],
            log_x=True,
        ),
    )

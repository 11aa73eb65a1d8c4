"""Plot of several machines: what the run costs against how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.plan.market_question import MarketQuestion
from napkin.render.answer import Cell, number_in
from napkin.render.chart import Chart, Series
from napkin.render.scale import axis, titled

COLORS = 6
"""Number of machines that colors can distinguish; with more, each point is labeled."""


def chart(question: MarketQuestion, rows: Sequence[Mapping[str, Cell]]) -> Chart:
    """Return the machines as points, with the Pareto front joined and the recommended one first."""
    long, times = axis((number_in(row, "time") for row in rows), "second")
    dear, sums = axis((number_in(row, "cost") for row in rows), "USD")

    def points(name: str, taken: Sequence[Mapping[str, Cell]], style: str = "", labels: bool = False) -> Series:
        rising = sorted(taken, key=lambda row: number_in(row, "time"))
        said = [str(row["name"]) for row in rising] if labels else []
        run = [number_in(row, "time") / long for row in rising]
        return Series(name, run, [number_in(row, "cost") / dear for row in rising], style=style, labels=said)

    series = [points(one.name, [row for row in rows if row["hardware"] == one.slug]) for one in question.offers]
    series = [one for one in series if one.x]
    many = len(series) > COLORS
    if many:
        series = [points("the other machines", [row for row in rows if not row["pareto"]], labels=True)]
    chosen = [row for row in rows if row["recommended"]]
    series.append(points("no other is faster and cheaper", [row for row in rows if row["pareto"]], "front", many))
    series.append(points(f"use: {number_in(chosen[0], 'gpus'):,.0f} × {chosen[0]['name']}", chosen, "star"))
    limits = [] if question.deadline is None else [(question.deadline / long, "deadline")]
    return Chart(
        "points",
        f"{question.model}: cost against time",
        times,
        titled("cost", sums),
        series,
        limits=limits,
    )

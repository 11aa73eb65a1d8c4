"""The picture of several machines: what the run costs against how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.plan.market_question import MarketQuestion
from napkin.render.answer import Cell, number_in
from napkin.render.chart import Chart, Series

DAY = 86400.0


def chart(question: MarketQuestion, rows: Sequence[Mapping[str, Cell]]) -> Chart:
    """Return the machines as points, those that no other beats joined, the recommended one first."""

    def points(name: str, taken: Sequence[Mapping[str, Cell]], style: str = "") -> Series:
        rising = sorted(taken, key=lambda row: number_in(row, "time"))
        days = [number_in(row, "time") / DAY for row in rising]
        return Series(name, days, [number_in(row, "cost") / 1e3 for row in rising], style=style)

    series = [points(one.name, [row for row in rows if row["hardware"] == one.slug]) for one in question.offers]
    series = [one for one in series if one.x]
    chosen = [row for row in rows if row["recommended"]]
    series.append(points("no other is faster and cheaper", [row for row in rows if row["pareto"]], "front"))
    series.append(points(f"use: {number_in(chosen[0], 'gpus'):,.0f} × {chosen[0]['name']}", chosen, "star"))
    limits = [] if question.deadline is None else [(question.deadline / DAY, "deadline")]
    return Chart(
        "points",
        f"{question.model}: cost against time",
        "days",
        "cost (thousand USD)",
        series,
        limits=limits,
    )

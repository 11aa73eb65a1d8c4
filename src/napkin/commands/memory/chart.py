"""The memory of a rank as a plot, and pipeline stages as rows."""

from __future__ import annotations

from napkin.commands.screens.memory import PHASES
from napkin.commands.screens.setup import of_setup
from napkin.footprint import buckets, memory
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.rank import BUCKETS, Rank
from napkin.footprint.stages import places
from napkin.planning.verdicts import Fit
from napkin.render.answer import Answer, Row
from napkin.render.chart import Chart, Series, spoken
from napkin.term import Term

USED = "used (nvidia-smi)"
"""The column that must fit."""
LEAST = 0.001
"""Share of the total below which a bucket is too thin to be drawn."""
STAGES = 32
"""Number of stages up to which all are listed; of more stages, only those that can be the worst."""


def show(answer: Answer, found: Fit, terms: dict[str, Term], capacity: Term | None, hardware: str) -> None:
    """Add the location of the peak, the pipeline stages, and a plot. hardware: its name, or ""."""
    stages = stages_shown(found.step)
    answer.plot = (chart(found, terms, capacity, hardware),)
    answer.extra["worst"] = {"stage": int(found.rank.stage.index), "moment": buckets.peak_of(found.rank).name}
    if stages:
        answer.extra["stages"] = [stage_row(rank) for rank in stages]


def stages_shown(step: PreparedStep) -> list[Rank]:
    """Return the stages of a pipeline: all of up to STAGES, else those that can be the worst; none without one."""
    count = int(step.setup.layout.pp)
    if count == 1:
        return []
    shown = range(count) if count <= STAGES else sorted({int(place) for place in places(step)})
    return [memory.rank_of(step, place) for place in shown]


def stage_row(rank: Rank) -> Row:
    """Return one stage as a row: its layers, its memory by category at the peak, and the phase of the peak."""
    peak = buckets.peak_of(rank)
    return {
        "stage": int(rank.stage.index),
        "layers": int(sum(rank.stage.layers)),
        "in_flight": rank.stage.in_flight,
        **{name: getattr(peak, name) for name in BUCKETS},
        "live": rank.live,
        "moment": peak.name,
    }


def chart(found: Fit, terms: dict[str, Term], capacity: Term | None, hardware: str) -> Chart:
    """Return a plot: the categories of each phase as stacked bars, then the used memory with its interval, and capacity
    as a line."""
    moments = found.rank.moments
    columns = [*(PHASES.get(moment.name, moment.name) for moment in moments), USED]
    peak = buckets.peak_of(found.rank)
    series = []
    for name in BUCKETS:
        sizes = [float(getattr(moment, name)) / 2**30 for moment in (*moments, peak)]
        if max(sizes) > LEAST * terms["memory/total"].value / 2**30:
            series.append(Series(spoken(name), columns, sizes))
    over = terms["memory/overhead"].value / 2**30
    series.append(Series("overhead", columns, [0.0] * len(moments) + [over]))
    asked = of_setup(found.step.model, found.step.setup, hardware)
    low, high = (float(end) / 2**30 for end in found.reported.ends["memory/used"])
    return Chart(
        "stack",
        f"memory of one GPU in each phase of a step: {' '.join(asked[:1])} {', '.join(asked[1:])}",
        "",
        "GiB",
        series,
        marks=[(capacity.value / 2**30, f"capacity\n{capacity.value / 2**30:.1f}")] if capacity is not None else [],
        whisker=(USED, low, high),
    )

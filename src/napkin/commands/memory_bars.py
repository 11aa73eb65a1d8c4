"""A rank's memory as a person reads it: buckets stacked at the peak, what a GPU reports, the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.footprint import buckets, memory
from napkin.footprint.prepared import Step
from napkin.footprint.rank import BUCKETS, Rank
from napkin.footprint.stages import places
from napkin.planning.verdicts import Fit
from napkin.render.answer import Answer, Row
from napkin.render.chart import Chart, Series
from napkin.term import Term
from napkin.units import human

REPORTED = ("live", "allocated", "reserved", "used")
HOSTED = {
    "memory/host/optimizer": "of optimizer states, for each GPU",
    "memory/host/parameters": "of parameters, for each GPU",
    "memory/host/gradients": "of gradients, for each GPU",
    "memory/host/activations": "of activations, for each GPU",
    "offload/bytes": "over the host's link, both ways, in a step",
}
WIDTH = 36
NAME, SIZE = 13, 23
"""Cells of a name and of a size: a line fits a terminal of 80 columns."""
STAGES = 32
"""Up to this many stages are listed one by one; of more, those that can be the worst."""


def show(answer: Answer, found: Fit, terms: dict[str, Term], capacity: Term | None) -> None:
    """Add the memory as bars, as a table of the pipeline's stages, and as a picture."""
    stages = stages_shown(found.step)
    answer.pictures = (*answer.pictures, *summary(found, terms, answer, capacity), *stage_table(stages))
    answer.listed = False
    answer.plot = (chart(found, terms, capacity, answer.title),)
    answer.extra["worst"] = {"stage": int(found.rank.stage.index), "moment": buckets.peak_of(found.rank).name}
    if stages:
        answer.extra["stages"] = [stage_row(rank) for rank in stages]


def summary(found: Fit, terms: dict[str, Term], answer: Answer, capacity: Term | None) -> tuple[str, ...]:
    """Return the buckets at the peak, stacked up to what is used, then the figures that a GPU reports, as lines."""
    peak = buckets.peak_of(found.rank)
    room = None if capacity is None else int(capacity.value)
    parts = [(name, int(getattr(peak, name))) for name in BUCKETS]
    parts.append(("overhead", int(terms["memory/overhead"].value)))
    lines = [line("at the peak", f"in the {peak.name}"), *stacked(parts, room)]
    lines.append("")
    for name in REPORTED:
        path, ends = f"memory/{name}", ""
        if path in answer.intervals:
            low, high = answer.intervals[path]
            ends = f"[{low / 2**30:.4g} – {high / 2**30:.4g} GiB]"
        lines.append(line(name, human(terms[path].value, "byte"), ends))
    if capacity is not None:
        lines.append(line("capacity", human(capacity.value, "byte")))
        budget = next(term for term in answer.terms if term.name == "memory/activation_budget")
        lines.append(line("budget", human(budget.value, "byte"), "for activations, after states and overhead"))
    if found.rank.gradients > peak.gradients:
        lines.append(line("all gradients", human(found.rank.gradients, "byte"), "after the backward pass"))
    for path, says in HOSTED.items():
        if path in terms:
            lines.append(
                line("in the host" if path != "offload/bytes" else "offloading", human(terms[path].value, "byte"), says)
            )
    return tuple(lines)


def stacked(parts: Sequence[tuple[str, int]], room: int | None) -> list[str]:
    """Return sizes as bars, each from where the previous one ends; then what is free, or beyond `room` bytes."""
    lines, start = [], 0
    whole = max(room or 0, sum(size for _, size in parts), 1)
    for name, size in parts:
        lines.append(line(name, human(size, "byte"), bar(start, start + size, whole, room)))
        start += size
    if room is not None:
        word, left = ("free", room - start) if room >= start else ("beyond", start - room)
        lines.append(line(word, human(left, "byte"), bar(start, room, whole, None, "·") if room > start else ""))
    return lines


def line(name: str, size: str, rest: str = "") -> str:
    """Return one line: a name, a size, and what follows."""
    return f"  {name.ljust(NAME)} {size.ljust(SIZE)} {rest}".rstrip()


def bar(start: int, end: int, whole: int, room: int | None, cell: str = "█") -> str:
    """Return a bar from `start` to `end`, of WIDTH cells for `whole` bytes; beyond `room` in another shade."""
    first, last = round(WIDTH * start / whole), round(WIDTH * end / whole)
    edge = WIDTH if room is None else round(WIDTH * room / whole)
    cells = "".join(cell if at < edge else "▒" for at in range(first, last))
    return " " * first + cells if cells else ""


def stages_shown(step: Step) -> list[Rank]:
    """Return the stages of a pipeline: all of up to STAGES, else those that can be the worst; none without one."""
    count = int(step.setup.layout.pp)
    if count == 1:
        return []
    shown = range(count) if count <= STAGES else sorted({int(place) for place in places(step)})
    return [memory.rank_of(step, place) for place in shown]


def stage_row(rank: Rank) -> Row:
    """Return one stage as a row: its layers, its buckets at the peak, and when that is."""
    peak = buckets.peak_of(rank)
    return {
        "stage": int(rank.stage.index),
        "layers": int(sum(rank.stage.layers)),
        "in_flight": rank.stage.in_flight,
        **{name: getattr(peak, name) for name in BUCKETS},
        "live": rank.live,
        "moment": peak.name,
    }


def stage_table(ranks: list[Rank]) -> tuple[str, ...]:
    """Return the stages as lines."""
    if not ranks:
        return ()
    lines = ["", "  stage  layers  in flight  live                     peak in the"]
    for rank in ranks:
        live, layers = human(rank.live, "byte").ljust(SIZE), int(sum(rank.stage.layers))
        when = buckets.peak_of(rank).name
        lines.append(f"  {int(rank.stage.index):5}  {layers:6}  {rank.stage.in_flight:9g}  {live}  {when}")
    return tuple(lines)


def chart(found: Fit, terms: dict[str, Term], capacity: Term | None, title: str) -> Chart:
    """Return a picture: the buckets of each phase stacked, then what is used, with capacity as a line."""
    moments = [moment.name for moment in found.rank.moments]
    series = []
    for name in BUCKETS:
        sizes = [float(getattr(moment, name)) / 2**30 for moment in found.rank.moments]
        peak = float(getattr(buckets.peak_of(found.rank), name)) / 2**30
        series.append(Series(name, [*moments, "used"], [*sizes, peak]))
    over = terms["memory/overhead"].value / 2**30
    series.append(Series("overhead", [*moments, "used"], [0.0] * len(moments) + [over]))
    marks = [(capacity.value / 2**30, "capacity")] if capacity is not None else []
    return Chart("stack", title, "", "GiB", series, marks=marks)

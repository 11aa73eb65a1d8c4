"""The contents of a plot, independent of how it is drawn: series of numbers, names and units of the axes."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.record import record


@record
class Series:
    """One named run of points. `low` and `high` are the ends of each point's interval, if there is one; `labels` are
    written next to the points of a chart of points.

    style  of a run in a chart of lines: "" a line with a dot at each point, "line", "dashed", "points"; in a chart of
           points also "star" (the one to see first) and "front" (points joined from left to right)
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: str = ""
    labels: Sequence[str] = ()


@record
class Span:
    """A bar of a timeline: on `row`, from `start`, lasting `length`, of a `kind` that has one color; a `shade` below 1
    is fainter."""

    row: int
    start: float
    length: float
    kind: str
    label: str = ""
    shade: float = 1.0


@record
class Chart:
    """One panel. Bars, and lines on a linear axis, start from zero.

    kind     lines, points, bars (one color a series), rows (horizontal bars, the last one the total), stack (series
             stacked), tornado (low–high bars around a middle, series "low" and "high" over the same names), waterfall
             (one series of signed steps from `ends[0]` to `ends[1]`), timeline
    x, y     axis titles with their units             log_x, log_y  logarithmic axes
    marks    horizontal lines: (value, name)          limits        vertical lines: (value, name)
    whisker  an interval on a stack's column: (column, low, high)
    diagonal draw y = x (predicted against measured), on two axes of one range
    spans    a timeline's bars                        rows  names of a timeline's rows
    until    if a timeline is cut, 0 for its end   idle  what the empty parts of a timeline's rows are
    """

    kind: str
    title: str
    x: str = ""
    y: str = ""
    series: Sequence[Series] = ()
    log_x: bool = False
    log_y: bool = False
    marks: Sequence[tuple[float, str]] = ()
    limits: Sequence[tuple[float, str]] = ()
    whisker: tuple[str, float, float] | None = None
    middle: float = 0.0
    ends: tuple[str, str] = ("A", "B")
    diagonal: bool = False
    spans: Sequence[Span] = ()
    rows: Sequence[str] = ()
    until: float = 0.0
    idle: str = ""

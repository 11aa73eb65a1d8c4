"""What a picture shows, without saying how it is drawn: series of numbers, names and units of the axes."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.record import record


@record
class Series:
    """One named run of points. `low` and `high` are the ends of each point's interval, where there is one."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@record
class Span:
    """A bar of a timeline: on `row`, from `start`, lasting `length`, of a `kind` that has one color."""

    row: int
    start: float
    length: float
    kind: str
    label: str = ""


@record
class Chart:
    """One panel.

    kind     lines, points, bars (one color a series), stack (series stacked), tornado (low–high bars around a
             middle, series "low" and "high" over the same names), waterfall (one series of signed steps), timeline
    x, y     axis titles with their units             log_x, log_y  logarithmic axes
    marks    horizontal lines: (value, name)          diagonal  draw y = x (predicted against measured)
    spans    a timeline's bars                        rows  names of a timeline's rows
    """

    kind: str
    title: str
    x: str = ""
    y: str = ""
    series: Sequence[Series] = ()
    log_x: bool = False
    log_y: bool = False
    marks: Sequence[tuple[float, str]] = ()
    middle: float = 0.0
    diagonal: bool = False
    spans: Sequence[Span] = ()
    rows: Sequence[str] = ()

"""The contents of a plot, independent of how it is drawn: series of numbers, names and units of the axes, and
one unit for an entire axis or column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


_TIMES = ((365 * 86400.0 * 2, 365 * 86400.0, "years"), (172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"))
_SMALL_TIMES = ((120.0, 60.0, "minutes"), (1.0, 1.0, "seconds"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"))
_SI = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTS = ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "))
_SUMS = (*((scale, scale, name) for scale, name in _COUNTS), (1e4, 1e3, "thousand "))
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (0.0, "bytes"))
_SPOKEN = {
    "memory/total": "memory per GPU",
    "step/time": "time of a step",
    "time/uninterrupted": "time without interruptions",
    "time/published": "time by published runs' MFU",
    "memory/used": "memory used per GPU",
    "carbon": "CO2e",
}
_LETTERS = {"mfu": "MFU", "hfu": "HFU", "gpu": "GPU", "gpus": "GPUs", "flops": "FLOPs", "kv": "KV", "lm": "LM"}
_PLURAL = {"param": "parameters", "token": "tokens", "GPU": "GPUs", "GPU-hour": "GPU-hours", "joule": "Wh"}


def axis(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Return what to divide the numbers by, and the unit's name next to the axis ("" if there is none)."""
    largest = max((abs(v) for v in values), default=0.0)
    if unit == "second":
        return next((scale, name) for least, scale, name in (*_TIMES, *_SMALL_TIMES) if largest >= least)
    if unit == "1":
        return 1.0, ""
    if unit == "byte":
        return next((scale or 1.0, name) for scale, name in _BINARY if largest >= scale)
    if unit in ("param", "token", "GPU-hour"):
        for least, name in _COUNTS:
            if largest >= least:
                return least, name + _PLURAL[unit]
        return 1.0, _PLURAL[unit]
    base = 3600.0 if unit == "joule" else 1.0
    name = _PLURAL.get(unit, unit.replace("byte", "B"))
    if unit == "kg" and largest >= 1000:
        return 1000.0, "t"
    if unit in ("GPU", "USD/GPU-hour", "kg"):
        return 1.0, name
    if unit == "USD":
        return next(((scale, word + unit) for least, scale, word in _SUMS if largest >= least), (1.0, unit))
    for least, letter in _SI:
        if largest / base >= least:
            return base * least, letter + name
    return base, name


def spoken(path: str) -> str:
    """Return a quantity's path in words, for a title: `memory/optimizer` → `memory: optimizer`."""
    if path in _SPOKEN:
        return _SPOKEN[path]
    words = path.replace("/", ": ").replace("_", " ").replace("-", " ").split(" ")
    return " ".join(_LETTERS.get(word.rstrip(":"), word.rstrip(":")) + ":" * word.endswith(":") for word in words)


def titled(name: str, unit: str) -> str:
    """Return an axis title: `time (days)`; the unit alone if it says the same (`GPUs`)."""
    return f"{name} ({unit})" if unit and unit.lower() != name.lower() else unit or name

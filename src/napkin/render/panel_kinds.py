"""Drawing of each kind of chart: lines, points, bars and the other kinds of render/chart.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from napkin.render.chart import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart by color-blind readers too
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#7F7F7F")
GRAY = COLORS[-1]
INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 3, "elinewidth": 1.1}
"""Style of an interval on a bar."""


# --- over two axes of numbers ----------------------------------------------------------------------------------------


def _lines(chart: Chart, axis: Axes, ink: str) -> None:
    axis.grid(True)
    for series, color in zip(chart.series, _colors(chart, ink), strict=True):
        form = {"line": "-", "dashed": "--", "points": "o"}.get(series.style, "o-")
        size = 7 if form == "o" else 3.5
        axis.plot(series.x, series.y, form, markersize=size, linewidth=1.4, color=color, label=series.name, zorder=3)
        if series.low:
            axis.fill_between(series.x, series.low, series.high, color=color, alpha=0.18, linewidth=0)


def _points(chart: Chart, axis: Axes, ink: str) -> None:
    axis.grid(True)
    for series, color in zip(chart.series, _colors(chart, ink), strict=True):
        if series.style == "star":
            axis.plot(
                series.x, series.y, "*", markersize=13, color=color, label=series.name, zorder=4, markeredgecolor=ink,
                markeredgewidth=0.6,
            )  # fmt: skip
        else:
            form = "o-" if series.style == "front" else "o"
            axis.plot(series.x, series.y, form, markersize=3, linewidth=1, alpha=0.75, color=color, label=series.name)
        for x, y, label in zip(series.x, series.y, series.labels, strict=False):
            axis.annotate(label, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
        if series.low:
            _whiskers(axis, series, color if series.style != "star" else ink, faint=series.style != "star")
    ends = [float(v) for s in chart.series for v in (*s.x, *s.y)]
    if chart.diagonal and ends:
        axis.plot([min(ends) / 2, max(ends) * 2], [min(ends) / 2, max(ends) * 2], color=ink, linewidth=0.8)


def _whiskers(axis: Axes, series: Series, color: str, faint: bool) -> None:
    """Draw each point's interval as a vertical line."""
    axis.vlines(
        series.x, series.low, series.high, color=color, linewidth=0.8 if faint else 1.2, alpha=0.35 if faint else 1
    )


# --- bars ------------------------------------------------------------------------------------------------------------


def _bars(chart: Chart, axis: Axes, ink: str) -> None:
    axis.grid(True, axis="y")
    names = list(dict.fromkeys(str(x) for series in chart.series for x in series.x))
    width = 0.8 / len(chart.series)
    for number, (series, color) in enumerate(zip(chart.series, _colors(chart, ink), strict=True)):
        shift = (number - (len(chart.series) - 1) / 2) * width
        at = [names.index(str(x)) + shift for x in series.x]
        axis.bar(at, series.y, width, color=color, label=series.name)
        tops = list(series.high or series.y)
        if series.low:
            axis.errorbar(at, series.y, yerr=_around(series), color=ink, **INTERVAL)
        if len(names) * len(chart.series) <= 12:
            for x, y, top in zip(at, series.y, tops, strict=True):
                axis.annotate(_figure(y), (x, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)
    axis.set_xticks(range(len(names)), names)
    axis.margins(y=0.12)


def _figure(value: float) -> str:
    """Return a number in three digits, never with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"


def _around(series: Series) -> list[list[float]]:
    """Return the distances of each interval's ends below and above its value."""
    return [
        [y - low for y, low in zip(series.y, series.low, strict=True)],
        [high - y for y, high in zip(series.y, series.high, strict=True)],
    ]


def _rows(chart: Chart, axis: Axes, ink: str) -> None:
    """Draw horizontal bars with their values; the last is the total of the others."""
    axis.grid(True, axis="x")
    series = chart.series[0]
    names, last = [str(x) for x in series.x], len(series.x) - 1
    axis.barh(range(len(names)), series.y, 0.66, color=[COLORS[0]] * last + [GRAY])
    ends = list(series.high or series.y)
    if series.low:
        low, high = series.low[last], series.high[last]
        axis.errorbar(
            [series.y[last]], [last], xerr=[[series.y[last] - low], [high - series.y[last]]], color=ink, **INTERVAL
        )
    for row, (value, end) in enumerate(zip(series.y, ends, strict=True)):
        share = "" if row == last or not series.y[last] else f"  {value / series.y[last]:.0%}"
        axis.annotate(
            f"{_figure(value)}{share}", (end, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.set_yticks(range(len(names)), names)
    axis.set_xlim(0.0, max(ends) * 1.12)
    axis.invert_yaxis()


def _stack(chart: Chart, axis: Axes, ink: str) -> None:
    """Draw the series on top of each other, each column's sum above it, and the interval of one of them."""
    axis.grid(True, axis="y")
    columns = [str(x) for x in chart.series[0].x]
    floor = [0.0] * len(columns)
    width = min(0.66, 0.22 * len(columns))
    for series, color in zip(chart.series, _colors(chart, ink), strict=True):
        axis.bar(columns, series.y, width, bottom=floor, color=color, label=series.name)
        floor = [a + b for a, b in zip(floor, series.y, strict=True)]
    for at, (name, total) in enumerate(zip(columns, floor, strict=True)):
        top = total
        if chart.whisker is not None and chart.whisker[0] == name:
            _, low, high = chart.whisker
            top = max(high, total)
            axis.errorbar(
                [at], [total], yerr=[[max(total - low, 0.0)], [max(high - total, 0.0)]], color=ink, **INTERVAL
            )
        axis.annotate(
            _figure(total), (at, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8, zorder=5,
            bbox={"pad": 0.6, "facecolor": axis.get_facecolor(), "edgecolor": "none"},
        )  # fmt: skip
    axis.margins(y=0.1)
    if len(columns) == 1:
        axis.set_xlim(-1.0, 1.0)


def _tornado(chart: Chart, axis: Axes, ink: str) -> None:
    """Draw bars from the middle to the answer at each end of an input, labeled with the answer."""
    axis.grid(True, axis="x")
    reached = [y for series in chart.series for y in series.y]
    for series, color in zip(chart.series, _colors(chart, ink), strict=True):
        names = [str(x) for x in series.x]
        axis.barh(names, [y - chart.middle for y in series.y], 0.62, left=chart.middle, color=color, label=series.name)
        for row, y in enumerate(series.y):
            if y != chart.middle:
                side = 1 if y > chart.middle else -1
                axis.annotate(
                    f"{y:,.4g}", (y, row), xytext=(4 * side, 0), textcoords="offset points", va="center",
                    ha="left" if side > 0 else "right", fontsize=8,
                )  # fmt: skip
    axis.axvline(chart.middle, color=ink, linewidth=0.8)
    low, high = min([chart.middle, *reached]), max([chart.middle, *reached])
    room = 0.1 * (high - low)
    axis.set_xlim(low - room if low - room > 0 or low < 0 else 0.0, high + room)
    axis.invert_yaxis()


def _waterfall(chart: Chart, axis: Axes, ink: str) -> None:
    """Draw the first end, each signed step from the end of the last one, and the other end; steps of zero are
    omitted."""
    axis.grid(True, axis="x")
    series, at = chart.series[0], chart.middle
    steps = [(str(name), step) for name, step in zip(series.x, series.y, strict=True) if step]
    names = [chart.ends[0], *(name for name, _ in steps), chart.ends[1]]
    axis.barh(0, at, 0.62, color=GRAY)
    labels = [(at, f"{at:,.4g}")]
    for row, (_, step) in enumerate(steps, 1):
        axis.barh(row, step, 0.62, left=at, color=COLORS[3] if step > 0 else COLORS[2])
        axis.plot([at, at], [row - 1.31, row + 0.31], color=ink, linewidth=0.6)
        labels.append((max(at, at + step), f"{step:+,.4g}".replace("-", "−")))
        at += step
    axis.barh(len(names) - 1, at, 0.62, color=GRAY)
    axis.plot([at, at], [len(names) - 2.31, len(names) - 0.69], color=ink, linewidth=0.6)
    labels.append((at, f"{at:,.4g}"))
    for row, (x, text) in enumerate(labels):
        axis.annotate(text, (x, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(range(len(names)), names)
    ends = [x for x, _ in labels]
    axis.set_xlim(min(0.0, *ends), max(ends) * 1.15)
    axis.invert_yaxis()


def _timeline(chart: Chart, axis: Axes, ink: str) -> None:
    """Draw each row's spans; the empty rest of a row has a color of its meaning."""
    end = max(span.start + span.length for span in chart.spans)
    shown = chart.until or end
    kinds = list(dict.fromkeys(span.kind for span in chart.spans))
    if chart.idle:
        axis.barh(
            range(len(chart.rows)), [end] * len(chart.rows), 0.82, color=GRAY, alpha=0.22, label=chart.idle, linewidth=0
        )
    for kind, color in zip(kinds, (COLORS * (1 + len(kinds) // len(COLORS)))[: len(kinds)], strict=True):
        for shade in sorted({span.shade for span in chart.spans if span.kind == kind}, reverse=True):
            mine = [span for span in chart.spans if span.kind == kind and span.shade == shade]
            face = _mixed(color, "#FFFFFF", 1 - shade)
            axis.barh(
                [s.row for s in mine],
                [s.length for s in mine],
                0.82,
                left=[s.start for s in mine],
                color=face,
                label=kind if shade == 1 else None,
                edgecolor=axis.get_facecolor(),
                linewidth=0.4,
            )
            for span in mine:
                if span.label and span.length > 0.011 * shown * len(span.label) and span.start + span.length <= shown:
                    axis.text(
                        span.start + span.length / 2, span.row, span.label, ha="center", va="center", fontsize=6,
                        color=_readable_on(face),
                    )  # fmt: skip
    axis.set_xlim(0.0, shown * (1.0 if chart.until else 1.01))
    axis.set_yticks(range(len(chart.rows)), list(chart.rows))
    axis.invert_yaxis()


def _mixed(color: str, other: str, share: float) -> str:
    """Return a color with a share of another."""
    ends = [[int(one[at : at + 2], 16) for at in (1, 3, 5)] for one in (color, other)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(*ends, strict=True))


def _readable_on(color: str) -> str:
    """Return black or white, whichever can be read on a color (by its luminance)."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#FFFFFF" if 0.299 * red + 0.587 * green + 0.114 * blue < 128 else "#111111"


def _colors(chart: Chart, ink: str) -> list[str]:
    """Return the series' colors in turn; a dashed line is a reference in gray, a plain one in ink, a star is
    vermilion."""
    fixed = {"dashed": GRAY, "line": ink, "star": COLORS[3]}
    turn = iter(COLORS * len(chart.series))
    return [fixed.get(series.style) or next(turn) for series in chart.series]


DRAWN: dict[str, Callable[[Chart, Axes, str], None]] = {
    "lines": _lines,
    "points": _points,
    "bars": _bars,
    "rows": _rows,
    "stack": _stack,
    "tornado": _tornado,
    "waterfall": _waterfall,
    "timeline": _timeline,
}

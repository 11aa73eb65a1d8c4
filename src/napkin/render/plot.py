"""Charts by matplotlib (the `plot` extra), as SVG or PNG, light or dark: legible in a paper and in a README."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from napkin.errors import ABSENT, WRITE_FAILED, NapkinError
from napkin.inputs.load import printable
from napkin.render.answer import Answer
from napkin.render.chart import Chart
from napkin.render.files import write_whole
from napkin.render.panel_kinds import DRAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

ROW = {"timeline": 0.28, "rows": 0.3, "tornado": 0.32, "waterfall": 0.32}
"""Kind of chart whose height grows with its rows → inches of a row."""
TITLE, ENTRY, LINE = 76, 60, 112
"""Maximum characters of a title's line, of a legend's entry, and of a legend's line."""


def draw_panel(chart: Chart, axis: Axes, ink: str) -> None:
    """Draw a chart on its axes; ink: the color of text and lines."""
    DRAWN[chart.kind](chart, axis, ink)
    axis.set_xlabel(chart.x)
    axis.set_ylabel(chart.y)
    for value, name in chart.marks:
        axis.axhline(value, color=ink, linewidth=0.9, linestyle="--")
        axis.annotate(
            name, (1.01, value), xycoords=("axes fraction", "data"), ha="left", va="center", fontsize=8, color=ink
        )
    for value, name in chart.limits:
        axis.axvline(value, color=ink, linewidth=0.9, linestyle="--")
        axis.annotate(
            name, (value, 0.03), xycoords=("data", "axes fraction"), xytext=(-3, 0), textcoords="offset points",
            ha="right", va="bottom", rotation=90, fontsize=8, color=ink, zorder=5,
            bbox={"pad": 0.6, "facecolor": axis.get_facecolor(), "edgecolor": "none"},
        )  # fmt: skip
    _scales(chart, axis)
    above = _legend(axis)
    title = textwrap.fill(chart.title, TITLE - max((len(name) for name in _names(chart)), default=0))
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=6 + above)


def _legend(axis: Axes) -> float:
    """Put the legend between the title and the axes; return its height in points, 0 if one is not needed."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) < 2:
        return 0.0
    shown = [textwrap.shorten(label, ENTRY, placeholder="…") for label in labels]
    columns = max(1, min(6, LINE // (6 + max(len(label) for label in shown))))
    size = 8 if len(shown) < 13 else 6.5
    axis.legend(
        handles, shown, fontsize=size, ncols=columns, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2,
        handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
    return 4 + 1.75 * size * -(-len(shown) // columns)


def _scales(chart: Chart, axis: Axes) -> None:
    """Set the ranges and labels of the axes."""
    if chart.log_x:
        axis.set_xscale("log")
        _plain_ticks(axis.xaxis, sorted({float(x) for s in chart.series for x in s.x if s.style != "line"}))
    if chart.log_y:
        axis.set_yscale("log")
        _plain_ticks(axis.yaxis)
    shown = [float(v) for s in chart.series for v in (*s.y, *s.low)]
    if chart.kind in ("lines", "points", "bars", "stack") and not chart.log_y and min(shown, default=0.0) >= 0:
        axis.set_ylim(bottom=0.0)
    if chart.kind == "points" and not chart.log_x and min(map(float, _every_x(chart)), default=0.0) >= 0:
        axis.set_xlim(left=0.0)
    if chart.diagonal:
        ends = [v for s in chart.series for v in (*map(float, s.x), *s.y) if v > 0]
        if ends:
            low, high = min(ends) / 1.15, max(ends) * 1.15
            axis.set_xlim(low, high)
            axis.set_ylim(low, high)
            for one in (axis.xaxis, axis.yaxis):
                _plain_ticks(one, span=(low, high))


def _names(chart: Chart) -> list[str]:
    """Return the names to the left of a chart of rows, which reduce the room for its title."""
    if chart.kind not in ROW:
        return []
    return [*chart.rows, *(line for x in _every_x(chart) for line in str(x).split("\n"))]


def _every_x(chart: Chart) -> list[float | str]:
    return [x for s in chart.series for x in s.x]


def _plain_ticks(axis: Axis, at: Sequence[float] = (), span: tuple[float, float] | None = None) -> None:
    """Write plain numbers on a logarithmic axis: at the points if they are few and far apart, else at 1, 2 and 5; at
    round steps for spans below a factor of ten, at powers of ten for spans above a thousand."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = span or axis.get_data_interval()
    apart = 1 < len(at) <= 10 and low > 0 and min(b / a for a, b in pairwise(at)) > (high / low) ** 0.04
    if apart:
        locator: Any = FixedLocator(at)
    elif low > 0 and high < 10 * low:
        locator = MaxNLocator(nbins=6, steps=[1, 2, 5, 10])
    else:
        locator = LogLocator(subs=(1.0,), numticks=6) if high > 1000 * low else LogLocator(subs=(1.0, 2.0, 5.0))
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"))


THEMES = {
    "light": {"figure.facecolor": "white", "axes.facecolor": "white", "ink": "#222222", "grid": "#DDDDDD"},
    "dark": {"figure.facecolor": "#0d1117", "axes.facecolor": "#0d1117", "ink": "#E6EDF3", "grid": "#30363D"},
}
FORMATS = (".svg", ".png")
WIDTH = 7.2
SIDE_BY_SIDE = 3
"""Inches of a panel; from more panels than this on, they are drawn in two columns."""


def checked(path: str) -> str:
    """Return the file's format. Raises NapkinError (2), before anything is computed, if it cannot be written."""
    ending, shown = os.path.splitext(path)[1].lower(), printable(path)
    if ending not in FORMATS:
        raise NapkinError(f"--plot: '{shown}' is neither .svg nor .png", "name a file such as plot.svg")
    if not os.path.isdir(os.path.dirname(path) or os.curdir):
        raise NapkinError(f"--plot: {shown}: its folder does not exist", "name a file in a folder that exists")
    return ending[1:]


def draw(answer: Answer, path: str, theme: str = "light") -> None:
    """Write the answer's charts, one panel each, to a file atomically."""
    form = checked(path)
    charts = answer.plot
    if not charts:
        raise NapkinError(f"--plot: this answer of {answer.command} has nothing to draw", "leave out --plot")
    try:
        import matplotlib
    except ImportError:
        raise NapkinError(
            "--plot needs matplotlib, which is not installed", "pip install 'napkin-math[plot]'", ABSENT
        ) from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(_settings(theme)):  # type: ignore[arg-type]
        columns = 2 if len(charts) > SIDE_BY_SIDE else 1
        rows = [charts[at : at + columns] for at in range(0, len(charts), columns)]
        heights = [max(_height(chart) for chart in row) for row in rows]
        figure, axes = pyplot.subplots(
            len(rows),
            columns,
            figsize=(WIDTH * columns, sum(heights)),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        try:
            for axis in axes.flat[len(charts) :]:
                axis.set_axis_off()
            for chart, axis in zip(charts, axes.flat, strict=False):
                draw_panel(chart, axis, THEMES[theme]["ink"])
            out = io.BytesIO()
            figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)
        finally:
            pyplot.close(figure)
    try:
        write_whole(path, out.getvalue())
    except OSError as problem:
        raise NapkinError(
            f"--plot: {printable(path)}: {problem.strerror or 'cannot be written'}", "check the path", WRITE_FAILED
        ) from None


def _settings(theme: str) -> dict[str, Any]:
    """Return the rc parameters of matplotlib for a theme."""
    look = THEMES[theme]
    inked = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")
    return {
        **{name: value for name, value in look.items() if "." in name},
        **dict.fromkeys(inked, look["ink"]),
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": look["grid"],
        "legend.frameon": False,
        "axes.formatter.useoffset": False,
        "axes.formatter.limits": (-4, 7),
        "svg.hashsalt": "napkin",  # the same answer gives the same file
        "svg.fonttype": "none",
        "savefig.dpi": 160,
    }


def _height(chart: Chart) -> float:
    """Return the height of a panel in inches; charts of rows grow with their number."""
    if chart.kind in ROW:
        count = len(chart.rows) or max((len(s.x) for s in chart.series), default=1)
        return 1.6 + ROW[chart.kind] * count
    return 4.0

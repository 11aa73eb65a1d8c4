"""Charts by matplotlib (the `plot` extra), as SVG or PNG, light or dark: legible in a paper and in a README."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from napkin.errors import ABSENT, NapkinError
from napkin.render.answer import Answer
from napkin.render.chart import Chart
from napkin.render.files import write_whole

# Okabe and Ito's palette, told apart by color-blind readers too
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#7F7F7F")
THEMES = {
    "light": {"figure.facecolor": "white", "axes.facecolor": "white", "ink": "#222222", "grid": "#DDDDDD"},
    "dark": {"figure.facecolor": "#0d1117", "axes.facecolor": "#0d1117", "ink": "#E6EDF3", "grid": "#30363D"},
}
FORMATS = (".svg", ".png")
TITLE, LEGEND, LINE = 70, 30, 80
"""Letters of a title's line, of a legend's entry, and of a legend's line."""


def checked(path: str) -> str:
    """Return the file's format, refused (2) before anything is computed if it cannot be drawn."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in FORMATS:
        raise NapkinError(f"--plot: {path!r} is neither .svg nor .png", "name a file such as picture.svg")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise NapkinError(f"--plot: {path}: its folder does not exist", "name a file in a folder that exists")
    return ending[1:]


def draw(answer: Answer, path: str, theme: str = "light") -> None:
    """Write the answer's charts, one panel each, to a file, whole or not at all."""
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

    look = THEMES[theme]
    settings: dict[str, Any] = {k: v for k, v in look.items() if "." in k}
    settings |= dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), look["ink"]
    )
    settings |= {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": look["grid"],
        "legend.frameon": False,
        "svg.hashsalt": "napkin",  # the same answer gives the same file
        "svg.fonttype": "none",
        "savefig.dpi": 160,
    }
    with matplotlib.rc_context(settings):  # type: ignore[arg-type]
        figure, axes = pyplot.subplots(len(charts), 1, figsize=(7.2, sum(_height(c) for c in charts)), squeeze=False)
        try:
            for chart, axis in zip(charts, axes[:, 0], strict=True):
                _panel(chart, axis, look["ink"])
            figure.tight_layout()
            out = io.BytesIO()
            figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)
        finally:
            pyplot.close(figure)
    try:
        write_whole(path, out.getvalue())
    except OSError as problem:
        raise NapkinError(f"--plot: {path}: {problem.strerror or 'cannot be written'}", "check the path") from None


def _height(chart: Chart) -> float:
    if chart.kind == "timeline":
        return 1.6 + 0.28 * len(chart.rows)
    if chart.kind in ("tornado", "waterfall"):
        return 1.8 + 0.32 * max((len(s.x) for s in chart.series), default=1)
    return 4.0


def _panel(chart: Chart, axis: Any, ink: str) -> None:
    {
        "lines": _lines,
        "points": _points,
        "bars": _bars,
        "stack": _stack,
        "tornado": _tornado,
        "waterfall": _waterfall,
        "timeline": _timeline,
    }[chart.kind](chart, axis, ink)
    axis.set_title(textwrap.fill(chart.title, TITLE), loc="left", fontsize=10, fontweight="bold")
    axis.set_xlabel(chart.x)
    axis.set_ylabel(chart.y)
    if chart.log_x:
        axis.set_xscale("log")
        _plain_ticks(axis.xaxis, sorted({float(x) for s in chart.series for x in s.x}))
    if chart.log_y:
        axis.set_yscale("log")
        _plain_ticks(axis.yaxis)
    for value, name in chart.marks:
        axis.axhline(value, color=ink, linewidth=0.8, linestyle="--")
        axis.annotate(name, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > 1 or (labels and chart.kind in ("timeline", "stack")):
        shown = [textwrap.shorten(label, LEGEND, placeholder="…") for label in labels]
        columns = max(1, min(4, LINE // (4 + max(len(label) for label in shown))))
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0)} if chart.kind == "tornado" else {}
        if chart.kind in ("points", "timeline"):  # inside they would hide points and bars
            place = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.6 / _height(chart))}
        axis.legend(handles, shown, fontsize=8 if len(shown) < 9 else 6.5, ncols=columns, **place)


def _plain_ticks(axis: Any, at: Sequence[float] = ()) -> None:
    """Write plain numbers on a logarithmic axis: at the points where they are few and apart, else at 1, 2 and 5,
    or at each power of ten where the axis spans more than three."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_data_interval()
    wide = low > 0 and high > 1000 * low
    apart = 1 < len(at) <= 10 and min(b / a for a, b in pairwise(at)) > (high / low) ** 0.04 if low > 0 else False
    axis.set_major_locator(
        FixedLocator(at) if apart else LogLocator(subs=(1.0,), numticks=6) if wide else LogLocator(subs=(1.0, 2.0, 5.0))
    )
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"))


def _lines(chart: Chart, axis: Any, ink: str) -> None:
    axis.grid(True)
    for series, color in zip(chart.series, _colors(chart), strict=True):
        axis.plot(series.x, series.y, marker="o", markersize=3.5, linewidth=1.4, color=color, label=series.name)
        if series.low:
            axis.fill_between(series.x, series.low, series.high, color=color, alpha=0.18, linewidth=0)


def _points(chart: Chart, axis: Any, ink: str) -> None:
    axis.grid(True)
    for series, color in zip(chart.series, _colors(chart), strict=True):
        axis.plot(series.x, series.y, "o", markersize=3, alpha=0.7, color=color, label=series.name)
    ends = [float(v) for s in chart.series for v in (*s.x, *s.y)]
    if chart.diagonal and ends:
        axis.plot([min(ends), max(ends)], [min(ends), max(ends)], color=ink, linewidth=0.8)


def _bars(chart: Chart, axis: Any, ink: str) -> None:
    axis.grid(True, axis="y")
    width = 0.8 / len(chart.series)
    for number, (series, color) in enumerate(zip(chart.series, _colors(chart), strict=True)):
        at = [i + (number - (len(chart.series) - 1) / 2) * width for i in range(len(series.x))]
        axis.bar(at, series.y, width, color=color, label=series.name)
        axis.set_xticks(range(len(series.x)), [str(x) for x in series.x])


def _stack(chart: Chart, axis: Any, ink: str) -> None:
    axis.grid(True, axis="y")
    floor = [0.0] * len(chart.series[0].x)
    for series, color in zip(chart.series, _colors(chart), strict=True):
        names = [str(x) for x in series.x]
        axis.bar(names, series.y, 0.7, bottom=floor, color=color, label=series.name)
        floor = [a + b for a, b in zip(floor, series.y, strict=True)]


def _tornado(chart: Chart, axis: Any, ink: str) -> None:
    axis.grid(True, axis="x")
    for series, color in zip(chart.series, _colors(chart), strict=True):
        names = [str(x) for x in series.x]
        axis.barh(names, [y - chart.middle for y in series.y], 0.62, left=chart.middle, color=color, label=series.name)
    axis.axvline(chart.middle, color=ink, linewidth=0.8)
    axis.invert_yaxis()


def _waterfall(chart: Chart, axis: Any, ink: str) -> None:
    """Draw A, each signed step from where the last one ended, B; steps that add nothing are omitted."""
    axis.grid(True, axis="x")
    series, at = chart.series[0], chart.middle
    steps = [(str(name), step) for name, step in zip(series.x, series.y, strict=True) if step]
    names = ["A", *(name for name, _ in steps), "B"]
    axis.barh(0, at, 0.62, color=COLORS[7])
    labels = [(at, f"{at:,.4g}")]
    for row, (_, step) in enumerate(steps, 1):
        axis.barh(row, step, 0.62, left=at, color=COLORS[3] if step > 0 else COLORS[2])
        axis.plot([at, at], [row - 1.31, row + 0.31], color=ink, linewidth=0.6)
        labels.append((max(at, at + step), f"{step:+,.4g}".replace("-", "−")))
        at += step
    axis.barh(len(names) - 1, at, 0.62, color=COLORS[7])
    axis.plot([at, at], [len(names) - 2.31, len(names) - 0.69], color=ink, linewidth=0.6)
    labels.append((at, f"{at:,.4g}"))
    for row, (x, text) in enumerate(labels):
        axis.annotate(text, (x, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(range(len(names)), names)
    ends = [x for x, _ in labels]
    axis.set_xlim(min(0.0, *ends), max(ends) * 1.15)
    axis.invert_yaxis()


def _timeline(chart: Chart, axis: Any, ink: str) -> None:
    kinds = list(dict.fromkeys(span.kind for span in chart.spans))
    for kind, color in zip(kinds, (COLORS * (1 + len(kinds) // len(COLORS)))[: len(kinds)], strict=True):
        mine = [span for span in chart.spans if span.kind == kind]
        axis.barh(
            [s.row for s in mine],
            [s.length for s in mine],
            0.82,
            left=[s.start for s in mine],
            color=color,
            label=kind,
            edgecolor=axis.get_facecolor(),
            linewidth=0.4,
        )
        least = 0.011 * max(s.start + s.length for s in chart.spans)
        for span in mine:
            if span.label and span.length > least * len(span.label):
                axis.text(span.start + span.length / 2, span.row, span.label, ha="center", va="center", fontsize=6)
    axis.set_yticks(range(len(chart.rows)), list(chart.rows))
    axis.invert_yaxis()


def _colors(chart: Chart) -> list[str]:
    count = len(chart.series)
    return [COLORS[i % len(COLORS)] for i in range(count)]

"""Charts by matplotlib (the `plot` extra), as SVG or PNG, light or dark: legible in a paper and in a README."""

from __future__ import annotations

import io
import os
from typing import Any

from napkin.errors import ABSENT, WRITE_FAILED, NapkinError
from napkin.inputs.load import printable
from napkin.render.answer import Answer
from napkin.render.chart import Chart
from napkin.render.files import write_whole
from napkin.render.panels import ROW, draw_panel

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

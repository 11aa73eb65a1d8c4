"""Charts as SVG for notebooks and the browser page: the same numbers as `--plot`, without a library.

Colors are CSS classes (s0 to s7), so that the surrounding page chooses them, for light and dark. The label of a picture
has its numbers, for screen readers; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from napkin.render.chart import Chart, Span

COLORS = 8
ROW, LANE = 26, 18
"""Pixels of a row of bars, and of a stage of a schedule."""
NUMBERS, LABELS = 46, 130
"""Width in pixels of the numbers at the right, and maximum width of the names at the left."""


def figures(charts: Sequence[Chart], width: float) -> list[str]:
    """Return the pictures of the charts that can be drawn here; width in pixels."""
    return [
        _DRAWN[chart.kind](chart, width) for chart in charts if chart.kind in _DRAWN and (chart.series or chart.spans)
    ]


def colored(charts: Sequence[Chart]) -> list[str]:
    """Return the entries with a color in the first picture, in the order of the colors."""
    if not charts:
        return []
    first = charts[0]
    if first.kind == "stack":
        return [one.name for one in first.series]
    return [name for name, _ in _parts(first)] if first.kind == "rows" else []


def color(index: int) -> str:
    """Return the class of a color."""
    return f"s{index % COLORS}"


def _stack(chart: Chart, width: float) -> str:
    """Return a stack as rows: a bar for each column, the limits as dashed lines, the interval as a whisker."""
    names = [str(name) for name in chart.series[0].x]
    sums = [sum(float(one.y[i]) for one in chart.series) for i in range(len(names))]
    left = min(LABELS, 0.3 * width)
    most = max([*sums, *(value for value, _ in chart.marks), *((chart.whisker[2],) if chart.whisker else ())]) or 1.0
    scale = (width - left - NUMBERS) / most
    body = []
    for i, name in enumerate(names):
        last = chart.whisker is not None and chart.whisker[0] == name
        strong = ' class="strong"' if last else ""
        middle, at = i * ROW + ROW / 2, left
        body.append(_text(left - 8, middle + 4, name.partition(" (")[0], strong, "end"))
        for k, one in enumerate(chart.series):
            body.append(_rect(at, i * ROW + 5, scale * float(one.y[i]), ROW - 10, color(k)))
            at += scale * float(one.y[i])
        if chart.whisker is not None and last:
            low, high = (left + scale * end for end in chart.whisker[1:])
            ends = "".join(f"M{x:.1f} {middle - 5:.1f}v10" for x in (low, high))
            body.append(f'<path class="whisker" d="{ends}M{low:.1f} {middle:.1f}H{high:.1f}"/>')
        body.append(_text(width, middle + 4, _rounded(sums[i]), strong, "end"))
    bottom = len(names) * ROW
    for value, name in chart.marks:
        at = left + scale * value
        body.append(f'<path class="capacity" d="M{at:.1f} 0V{bottom}"/>')
        body.append(_text(at, bottom + 14, " ".join(name.split()), "", "middle"))
    label = ", ".join(f"{name} {_rounded(value)}" for name, value in zip(names, sums, strict=True))
    return _figure(
        f"{_topic(chart)}, {chart.y}", _svg(width, bottom + 20, label, body), [one.name for one in chart.series]
    )


def _parts(chart: Chart) -> list[tuple[str, float]]:
    """Return the parts of a chart of rows; its last row is the total."""
    one = chart.series[0]
    return [(str(name), float(value)) for name, value in zip(one.x[:-1], one.y[:-1], strict=True) if value > 0]


def _strip(chart: Chart, width: float) -> str:
    """Return the parts of a total as one strip."""
    parts = _parts(chart)
    whole = sum(value for _, value in parts) or 1.0
    at, body = 0.0, []
    for i, (_, value) in enumerate(parts):
        body.append(_rect(at, 0, width * value / whole, 22, color(i)))
        at += width * value / whole
    label = ", ".join(f"{name} {100 * value / whole:.0f}%" for name, value in parts)
    return _figure(_topic(chart), _svg(width, 22, label, body), [name for name, _ in parts])


def _timeline(chart: Chart, width: float) -> str:
    """Return the schedule of a pipeline: a lane for each stage, a bar for each pass."""
    kinds = list(dict.fromkeys(span.kind for span in chart.spans))
    until = chart.until or max(span.start + span.length for span in chart.spans) or 1.0
    left = 60.0
    scale = (width - left) / until
    body = [_text(left - 6, i * LANE + 13, name, "", "end") for i, name in enumerate(chart.rows)]
    body += [
        _bar(span, left, scale, until, color(kinds.index(span.kind))) for span in chart.spans if span.start < until
    ]
    return _figure(chart.title, _svg(width, len(chart.rows) * LANE + 4, chart.title, body), kinds)


def _bar(span: Span, left: float, scale: float, until: float, name: str) -> str:
    """Return a pass of a schedule, cut where the picture ends."""
    wide = scale * (min(span.start + span.length, until) - span.start) - 0.5
    shade = "" if span.shade == 1 else f' fill-opacity="{span.shade:.2f}"'
    return _rect(left + scale * span.start, span.row * LANE + 1, max(wide, 0.3), LANE - 2, name, shade)


_DRAWN = {"stack": _stack, "rows": _strip, "timeline": _timeline}


def _topic(chart: Chart) -> str:
    """Return a title without the question, which the answer states above its pictures."""
    return chart.title.partition(": ")[0]


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rect(x: float, y: float, width: float, height: float, name: str, more: str = "") -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.0f}" width="{max(width, 0):.1f}" height="{height:.0f}"{more}/>'


def _text(x: float, y: float, said: str, more: str, anchor: str) -> str:
    return f'<text{more} x="{x:.1f}" y="{y:.0f}" text-anchor="{anchor}">{escape(said)}</text>'


def _svg(width: float, height: float, label: str, body: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">{"".join(body)}</svg>'


def _figure(title: str, picture: str, names: Sequence[str]) -> str:
    swatch = '<svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{}" width="10" height="10" rx="2"/></svg>'
    legend = "".join(f"<li>{swatch.format(color(i))}{escape(name)}</li>" for i, name in enumerate(names))
    return f'<figure><figcaption>{escape(title)}</figcaption>{picture}<ul class="legend">{legend}</ul></figure>'

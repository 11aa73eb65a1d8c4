"""Plots of `serve`: tokens per second and cost per million tokens against the time per token, over batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.commands.serve.served import ServedModel
from napkin.evidence.serving.errors import half_width
from napkin.render.answer import Row, number_in
from napkin.render.chart import Chart, Series

MILLI = 1e3
WIDE = 16
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def charts(found: ServedModel, rows: Sequence[Row], rests: str, shown: Sequence[int]) -> tuple[Chart, ...]:
    """Return the panels, none if only one batch fits. rests: class of evidence; shown: batches that are labeled."""
    if len(rows) < 2:
        return ()
    later = all("tpot" in row for row in rows)
    x = f"time of each {'further' if later else 'first'} token (ms)"
    times = [MILLI * number_in(row, "tpot" if later else "ttft") for row in rows]
    half = math.exp(half_width("output_tokens_per_second", rests, found.question.confidence))
    own, bound = found.service.at_once, found.question.limits.tpot if later else found.question.limits.ttft
    limits = [] if bound is None else [(MILLI * bound, "bound")]

    def panel(title: str, name: str, column: str, low: float, high: float) -> Chart:
        values = [number_in(row, column) for row in rows]
        line = Series("any batch", times, values, [v * low for v in values], [v * high for v in values], "line")
        named = [
            Series(f"batch {n:,}{' (asked)' if n == own else ''}", [times[at]], [values[at]], style="points")
            for at, n in enumerate(int(number_in(row, "batch")) for row in rows)
            if n in shown
        ]
        return Chart(
            "lines",
            title,
            x,
            name,
            [line, *named],
            log_x=max(times) > WIDE * min(times),
            log_y=column == "cost" and max(values) > WIDE * min(values),
            limits=limits,
        )

    where = f"{found.setup.model.name} on {found.setup.gpus:,} × {found.question.hardware.name}"
    rates = panel(f"serving {where}: output tokens a second", "token/s", "output_tokens_per_second", 1 / half, half)
    price = found.price
    if price is None:
        return (rates,)
    low, high = price.low / price.middle / half, price.high / price.middle * half
    said = f"{price.middle:g} USD per GPU-hour{f', {price.date}' if price.date else ''}"
    return rates, panel(f"a million output tokens at {said}", "USD", "cost", low, high)

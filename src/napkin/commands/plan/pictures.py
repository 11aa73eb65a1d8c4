"""Plots of `napkin plan`: layouts by MFU and memory, and the best layout by the number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from napkin.commands.plan.question import PlanQuestion
from napkin.commands.plan.rows import Row
from napkin.commands.screens.setup import degrees_of
from napkin.planning.fitting_layouts import FittingLayouts
from napkin.planning.grid import Array
from napkin.planning.layouts import Scored
from napkin.render.chart import Chart, Series, titled


def mfu_of(question: PlanQuestion, found: FittingLayouts, i: int | Sequence[int]) -> Array:
    """Return the MFU of layouts by index, comparable even if the batch is free."""
    request = found.request
    return question.layouts.per_sequence / (question.layouts.peak * found.score[i] * request.seq)


def scatter(question: PlanQuestion, found: FittingLayouts, front: list[int], chosen: Scored, half: float) -> Chart:
    """Draw MFU against memory: the Pareto front, a sample of the other layouts, the recommended layout with its
    interval, and the capacity of a GPU. half: half-width of the interval in ln(time)."""
    rest = list(range(0, len(found), max(len(found) // 1500, 1)))

    def points(name: str, which: Sequence[int], style: str = "") -> Series:
        return Series(name, list(found.used[which] / 2**30), list(mfu_of(question, found, which)), style=style)

    ways = ", ".join(degrees_of(chosen.layout)) or "one GPU"
    factor = math.exp(half)
    best = Series(
        f"use: {ways}", [chosen.used / 2**30], [chosen.mfu], [chosen.mfu / factor], [chosen.mfu * factor], "star"
    )
    capacity = question.layouts.hardware.term("capacity", "memory/capacity", "byte").value / 2**30
    rising = sorted(front, key=lambda i: found.used[i])
    return Chart(
        "points",
        f"layouts of {question.layouts.request.model.name} on {found.request.gpus:,} × "
        f"{question.layouts.hardware.name}: MFU against memory",
        "memory of one GPU (GiB)",
        "MFU",
        [points("layouts that fit", rest), points("best MFU for the memory", rising, "front"), best],
        limits=[(capacity, f"capacity {capacity:.1f}")],
    )


def curves(question: PlanQuestion, rows: Sequence[Row]) -> Iterator[Chart]:
    """Draw speed against linear scaling, and MFU, over the number of GPUs."""
    gpus = [row["gpus"] for row in rows]
    if len(rows) < 2:
        return
    speeds = [row["tokens_per_second"] for row in rows]
    scale = next((s for s in (1e6, 1e3) if max(speeds) >= s), 1.0)
    unit = {1e6: "million tokens/s", 1e3: "thousand tokens/s", 1.0: "tokens/s"}[scale]
    ideal = [speeds[0] / gpus[0] * n / scale for n in gpus]
    factors = [[row["step/time"] / row[end] for row in rows] for end in ("step/high", "step/low")]
    name = f"{question.layouts.request.model.name} on {question.layouts.hardware.name}, the best layout each time"
    low, high = ([s * f / scale for s, f in zip(speeds, factor, strict=True)] for factor in factors)
    speed = Series(
        "predicted, 90% band" if question.confidence == 0.9 else "predicted",
        gpus,
        [s / scale for s in speeds],
        low,
        high,
    )
    wide = max(gpus) >= 4 * min(gpus)
    yield Chart(
        "lines",
        f"{name}: speed",
        "GPUs",
        titled("speed", unit),
        [speed, Series("linear scaling", gpus, ideal, style="dashed")],
        log_x=wide,
        log_y=wide,
    )
    utilized = [row["mfu"] for row in rows]
    least, most = ([m * f for m, f in zip(utilized, factor, strict=True)] for factor in factors)
    yield Chart("lines", f"{name}: MFU", "GPUs", "MFU", [Series("MFU", gpus, utilized, least, most)], log_x=wide)

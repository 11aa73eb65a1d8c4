"""What `napkin plan` draws: layouts by MFU and memory, and how the best grows with the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from napkin.commands.plan.question import PlanQuestion
from napkin.commands.plan.rows import Row
from napkin.planning.search import Found
from napkin.render.chart import Chart, Series
from napkin.render.scale import titled


def mfu_of(question: PlanQuestion, found: Found, i: Any) -> Any:
    """Return the MFU of layouts by index, comparable also where the batch is free."""
    request = found.request
    return question.layouts.per_sequence / (question.layouts.peak * found.score[i] * request.seq)


def scatter(question: PlanQuestion, found: Found, front: list[int]) -> Chart:
    """Draw MFU against memory: the Pareto front, and a sample of the rest."""
    rest = list(range(0, len(found), max(len(found) // 1500, 1)))

    def points(name: str, which: Any) -> Series:
        return Series(name, list(found.used[which] / 2**30), list(mfu_of(question, found, which)))

    return Chart(
        "points",
        f"plan: layouts of {question.layouts.request.model.name} on {found.request.gpus:,} GPUs",
        "memory of one GPU (GiB)",
        "MFU",
        [points("layouts that fit", rest), points("no other beats in both", front)],
    )


def curves(question: PlanQuestion, rows: Sequence[Row]) -> Iterator[Chart]:
    """Draw speed against the ideal, and MFU, over the number of GPUs."""
    gpus = [row["gpus"] for row in rows]
    if len(rows) < 2:
        return
    speeds = [row["tokens_per_second"] for row in rows]
    scale = next((s for s in (1e6, 1e3) if max(speeds) >= s), 1.0)
    unit = {1e6: "million tokens/s", 1e3: "thousand tokens/s", 1.0: "tokens/s"}[scale]
    ideal = [speeds[0] / gpus[0] * n / scale for n in gpus]
    name = f"plan: {question.layouts.request.model.name} on {question.layouts.hardware.name}"
    band = [
        [row["tokens_per_second"] * row["step/time"] / row[end] / scale for row in rows]
        for end in ("step/high", "step/low")
    ]
    speed = Series("best layout", gpus, [s / scale for s in speeds], *band)
    ends = {"log_x": max(gpus) >= 4 * min(gpus)}
    yield Chart(
        "lines",
        name,
        "GPUs",
        titled("speed", unit),
        [speed, Series("in proportion", gpus, ideal)],
        log_y=ends["log_x"],
        **ends,
    )
    yield Chart("lines", "", "GPUs", "MFU", [Series("best layout", gpus, [row["mfu"] for row in rows])], **ends)

"""Plots of `step --plot`: the breakdown of the step, and the pipeline schedule by stage."""

from __future__ import annotations

import math

from napkin.planning.schedule import interleaved
from napkin.render.chart import Chart, Series, Span, axis
from napkin.timing.step import StepTime
from napkin.timing.step_layout import StepLayout

MOST_STAGES, MOST_MICRO_BATCHES, MOST_SLOTS = 16, 24, 20_000
"""Limits of a drawn schedule: stages, micro-batches (of more, the first are shown), and computed slots."""
SCHEDULED = ("step/compute", "step/memory_bound", "step/communication", "step/bubble")
"""Parts of a step inside the pipeline schedule; the others follow it."""


def charts(found: StepTime, plan: StepLayout, title: str, half: float) -> list[Chart]:
    """Draw the breakdown as bars, with the step and its interval below; with a pipeline, draw its schedule as well.
    half: half-width of the interval in ln(time)."""
    parts = [part for part in found.time.parts if part.value > 0]
    total = float(found.time.value)
    if not math.isfinite(total):
        return []  # out of range: the answer says so in words
    scale, unit = axis([total], "second")
    names = [part.name.removeprefix("step/").replace("_", " ") for part in parts]
    values = [*(float(part.value) / scale for part in parts), total / scale]
    low, high = ([*values[:-1], values[-1] * math.exp(by)] for by in (-half, half))
    series = Series("step", [*names, "whole step"], values, low, high)
    drawn = [Chart("rows", title, unit, "", [series])]
    if plan.pp > 1 and plan.pp * plan.vp * plan.micro_batches <= MOST_SLOTS:
        drawn.append(_schedule(found, plan))
    return drawn


def _schedule(found: StepTime, plan: StepLayout) -> Chart:
    """Draw when each stage works on which micro-batch, scaled to the length of the step: 1F1B takes m + (p − 1)/v times
    the passes of a micro-batch."""
    stages, batches, chunks = int(plan.pp), int(plan.micro_batches), int(plan.vp)
    parts = {part.name: float(part.value) for part in found.time.parts}
    end = sum(parts[name] for name in SCHEDULED)
    after = max(float(found.time.value) - end, 0.0)
    slot = end / (batches + (stages - 1) / chunks) / chunks
    slots = interleaved(stages, batches, chunks, slot / 3, 2 * slot / 3)
    scale, unit = axis([end + after], "second")
    rows = min(stages, MOST_STAGES)
    spans = [
        Span(
            one.stage,
            one.start / scale,
            one.length / scale,
            one.kind,
            str(one.micro_batch + 1),
            1 - 0.5 * one.chunk / max(chunks - 1, 1),
        )
        for one in slots
        if one.stage < rows
    ]
    until = 0.0
    if batches > MOST_MICRO_BATCHES:
        until = max(s.start + s.length for s in slots if s.micro_batch < MOST_MICRO_BATCHES and s.kind == "forward")
        until = max(until, 2 * max(s.start for s in slots if s.micro_batch == 0)) / scale
        until = until if until < 0.8 * end / scale else 0.0
    finish = max(one.start + one.length for one in slots)
    if after and not until:
        spans += [Span(row, finish / scale, after / scale, "optimizer, overhead") for row in range(rows)]
    name = "1F1B" if chunks == 1 else f"interleaved 1F1B, {chunks} model chunks a stage, later ones lighter"
    cut = f"; the first {until:.3g} of {(end + after) / scale:.3g} {unit}" if until else ""
    first = f", the first {rows}" if rows < stages else ""
    return Chart(
        "timeline",
        f"schedule of the pipeline ({name}): {stages} stages{first}, {batches} micro-batches by number; "
        f"a backward is drawn as twice a forward{cut}",
        f"time ({unit})",
        "",
        spans=spans,
        rows=[f"stage {i + 1}" for i in range(rows)],
        until=until,
        idle="idle (bubble)",
    )

"""What `step --plot` draws: the breakdown of the step, and the pipeline's schedule stage by stage."""

from __future__ import annotations

from napkin.planning.schedule import one_forward_one_backward
from napkin.render.chart import Chart, Series, Span
from napkin.timing.step import StepTime
from napkin.timing.step_layout import StepLayout

MOST_STAGES, MOST_MICRO_BATCHES = 16, 24
"""Beyond this many stages or micro-batches a schedule cannot be read: only the first ones are drawn."""


def charts(found: StepTime, plan: StepLayout, title: str) -> list[Chart]:
    """Draw the breakdown as bars; with a pipeline, its schedule too."""
    parts = [part for part in found.time.parts if part.value > 0]
    names = [part.name.removeprefix("step/").replace("_", " ") for part in parts]
    drawn = [Chart("bars", title, "", "seconds", [Series("step", names, [float(part.value) for part in parts])])]
    if plan.pp > 1:
        stages, batches = min(int(plan.pp), MOST_STAGES), min(int(plan.micro_batches), MOST_MICRO_BATCHES)
        busy = sum(part.value for part in parts if part.name in BUSY) / plan.micro_batches
        slots = one_forward_one_backward(stages, batches, busy / 3, 2 * busy / 3)
        spans = [Span(one.stage, one.start, one.length, one.kind, str(one.micro_batch + 1)) for one in slots]
        cut = "" if (stages, batches) == (plan.pp, plan.micro_batches) else ", the first of them"
        words = f"1F1B: {plan.pp} stages, {int(plan.micro_batches)} micro-batches{cut}; backward twice forward"
        rows = [f"stage {i + 1}" for i in range(stages)]
        drawn.append(Chart("timeline", words, "seconds", "", spans=spans, rows=rows))
    return drawn


BUSY = ("step/compute", "step/memory_bound", "step/communication")

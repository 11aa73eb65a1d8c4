"""What `step --plot` draws: the breakdown of the step, and the pipeline's schedule stage by stage."""

from __future__ import annotations

from napkin.render.chart import Chart, Series, Span
from napkin.timing.step import StepTime
from napkin.timing.step_layout import StepLayout

MOST_STAGES, MOST_MICRO_BATCHES = 16, 24
"""Beyond so many stages or micro-batches a schedule cannot be read: the first ones stand for the rest."""


def schedule(stages: int, micro_batches: int, forward: float, backward: float) -> list[Span]:
    """1F1B: each stage fills up with forwards, then alternates, then drains (Narayanan et al. 2021, figure 4)."""
    order: list[list[tuple[str, int]]] = []
    for stage in range(stages):
        ahead = min(stages - stage, micro_batches)
        jobs = [("forward", i) for i in range(ahead)]
        for i in range(micro_batches):
            jobs.append(("backward", i))
            if ahead + i < micro_batches:
                jobs.append(("forward", ahead + i))
        order.append(jobs)
    ends: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    spans: list[Span] = []
    waiting = [0] * stages
    while any(waiting[s] < len(order[s]) for s in range(stages)):
        for stage in range(stages):
            while waiting[stage] < len(order[stage]):
                kind, i = order[stage][waiting[stage]]
                before = (kind, stage - 1, i) if kind == "forward" else (kind, stage + 1, i)
                if before not in ends and 0 <= before[1] < stages:
                    break
                start = max(free[stage], ends.get(before, 0.0))
                length = forward if kind == "forward" else backward
                ends[(kind, stage, i)] = free[stage] = start + length
                spans.append(Span(stage, start, length, kind, str(i + 1)))
                waiting[stage] += 1
    return spans


def charts(found: StepTime, plan: StepLayout, title: str) -> list[Chart]:
    """The breakdown as bars; with a pipeline, its schedule too."""
    parts = [part for part in found.time.parts if part.value > 0]
    names = [part.name.removeprefix("step/").replace("_", " ") for part in parts]
    drawn = [Chart("bars", title, "", "seconds", [Series("step", names, [float(part.value) for part in parts])])]
    if plan.pp > 1:
        stages, batches = min(int(plan.pp), MOST_STAGES), min(int(plan.micro_batches), MOST_MICRO_BATCHES)
        busy = sum(part.value for part in parts if part.name in BUSY) / plan.micro_batches
        spans = schedule(stages, batches, busy / 3, 2 * busy / 3)
        cut = "" if (stages, batches) == (plan.pp, plan.micro_batches) else ", the first of them"
        words = f"1F1B: {plan.pp} stages, {int(plan.micro_batches)} micro-batches{cut}; backward twice forward"
        rows = [f"stage {i + 1}" for i in range(stages)]
        drawn.append(Chart("timeline", words, "seconds", "", spans=spans, rows=rows))
    return drawn


BUSY = ("step/compute", "step/memory_bound", "step/communication")

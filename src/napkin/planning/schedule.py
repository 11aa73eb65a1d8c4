"""The schedule of a pipeline, slot by slot."""

from __future__ import annotations

from napkin.record import record


@record
class Slot:
    """A forward or backward pass of one micro-batch (from 0) on one stage, in seconds."""

    stage: int
    start: float
    length: float
    kind: str
    micro_batch: int


def one_forward_one_backward(stages: int, micro_batches: int, forward: float, backward: float) -> list[Slot]:
    """Return the slots of 1F1B: each stage fills up with forwards, alternates, then drains (Narayanan et al. 2021,
    figure 4). forward, backward: seconds of one micro-batch on one stage."""
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
    slots: list[Slot] = []
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
                slots.append(Slot(stage, start, length, kind, i))
                waiting[stage] += 1
    return slots

"""The schedule of a pipeline, slot by slot."""

from __future__ import annotations

from napkin.record import record


@record
class Slot:
    """A forward or backward pass of one micro-batch through one model chunk of a stage (all from 0), in seconds."""

    stage: int
    start: float
    length: float
    kind: str
    micro_batch: int
    chunk: int = 0


Job = tuple[str, int, int]
"""forward or backward, the model chunk, the micro-batch."""


def interleaved(stages: int, micro_batches: int, chunks: int, forward: float, backward: float) -> list[Slot]:
    """Return the slots of 1F1B: each stage fills up with forwards, alternates, then drains; with several chunks, those
    of interleaved 1F1B, in which each stage holds that many chunks of the model (Narayanan et al. 2021, figure 4 and
    section 2.2; Megatron-Core's schedules.py). forward, backward: seconds of one micro-batch in one chunk."""
    waiting = [_jobs(stage, stages, micro_batches, chunks)[::-1] for stage in range(stages)]
    ends: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    slots: list[Slot] = []
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while waiting[stage]:
                kind, chunk, i = waiting[stage][-1]
                place = chunk * stages + stage
                before = _before(kind, place, stages * chunks, i)
                if before is not None and before not in ends:
                    break
                start = max(free[stage], 0.0 if before is None else ends[before])
                length = forward if kind == "forward" else backward
                ends[(kind, place, i)] = free[stage] = start + length
                slots.append(Slot(stage, start, length, kind, i, chunk))
                waiting[stage].pop()
                moved = True
    return slots


def _before(kind: str, place: int, places: int, i: int) -> tuple[str, int, int] | None:
    """Return the pass of the same micro-batch that must end first; place: of a chunk in the order of the layers."""
    if kind == "forward":
        return ("forward", place - 1, i) if place else None
    return ("backward", place + 1, i) if place + 1 < places else ("forward", place, i)


def _jobs(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Job]:
    """Return a stage's passes in order: forwards to fill the pipeline, alternating forwards and backwards, then the
    remaining backwards. Micro-batches pass through the chunks in groups of the number of stages."""
    groups = [range(at, min(at + stages, micro_batches)) for at in range(0, micro_batches, stages)]
    ahead: list[Job] = [("forward", chunk, i) for group in groups for chunk in range(chunks) for i in group]
    back: list[Job] = [("backward", chunk, i) for group in groups for chunk in reversed(range(chunks)) for i in group]
    fill = stages - 1 - stage if chunks == 1 else 2 * (stages - 1 - stage) + (chunks - 1) * stages
    fill = min(fill, len(ahead))
    turns = [job for pair in zip(ahead[fill:], back, strict=False) for job in pair]
    return [*ahead[:fill], *turns, *back[len(ahead) - fill :]]

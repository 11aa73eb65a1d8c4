"""The answer for one machine: its layouts ranked, why the best wins, and what else there is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from napkin.commands.layout import degrees
from napkin.commands.plan.exact import Scored, scored, step_terms
from napkin.commands.plan.pictures import mfu_of, scatter
from napkin.commands.plan.question import Planner
from napkin.commands.plan.table import COLUMNS, command_line, displayed, row_of, table, whole_run
from napkin.commands.plan.usual import usual_choices
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, leaf
from napkin.units import human

if TYPE_CHECKING:
    from napkin.planning.search import Found


def ranked(planner: Planner, found: Found, best: Scored) -> Answer:
    """The best layouts as rows; the best as quantities; beside it the runner-up, the front and the usual choices."""
    request, inputs = found.request, planner.inputs
    half = planner.half_width(request.gpus)
    wanted = inputs.get("rows")
    front = found.front()
    listed = front[:wanted] if inputs.get("pareto") else found.distinct(wanted)
    entries = [(scored(planner, found.layout(i)), i in front) for i in listed]
    rows = [row_of(planner, n, one, best, half, on_front) for n, (one, on_front) in enumerate(entries, 1)]
    answer = Answer(
        "plan",
        _title(planner, request.gpus, found.layouts, len(found)),
        _terms(planner, best, found),
        rows=rows,
        display=table([displayed(row) for row in rows]),
    )
    for term in answer.terms:
        if term.name in ("step/time", "mfu", "hfu", "tokens_per_second_per_gpu"):
            answer.intervals[term.name] = (term.value / math.exp(half), term.value * math.exp(half))
    answer.extra["columns"] = COLUMNS
    answer.extra["pareto"] = [
        {
            **degrees(found.layout(i)),
            "step/time": float(found.seconds[i]),
            "mfu": float(mfu_of(planner, found, i)),
            "memory/total": float(found.used[i]),
        }
        for i in front
    ]
    popular = list(usual_choices(planner, request, best))
    answer.extra["popular"] = popular
    why = _why(entries[0][0], entries[1][0]) if len(entries) > 1 else ""
    answer.pictures = tuple(
        line
        for line in (
            why,
            f"time against memory: {_front_line(planner, found, front)}",
            *(f"{one['name']}: {one['why']}" for one in popular),
            f"as a step: {command_line(planner, best.layout)}",
        )
        if line
    )
    ties = int((found.score <= found.score.min() * math.exp(2 * half)).sum())
    answer.extra["ties"] = ties
    answer.notes.append(
        f"{ties:,} of {len(found):,} layouts that fit lie within each other's {planner.level:.0%} intervals "
        f"(×/÷ {math.exp(half):.2f}); `tie` marks those listed"
    )
    if request.batch is None:
        answer.notes.append(
            "the batch is free: each layout takes the largest step that it can; they are ranked by time per token"
        )
    answer.plot = (scatter(planner, found, front),)
    return answer


def _terms(planner: Planner, best: Scored, found: Found) -> list[Term]:
    """The best layout as `step` publishes it, what it holds, and what the whole run takes."""
    terms = step_terms(planner, best.layout)
    terms.append(planner.hardware.term("capacity", "memory/capacity", "byte"))
    terms.append(leaf("layouts", found.layouts, "1", TRUE, "divide machine, model and batch"))
    terms.append(leaf("layouts/fit", len(found), "1", TRUE, "and fit the memory"))
    terms += [leaf(name, value, COLUMNS[name], TRUE) for name, value in whole_run(planner, best).items()]
    return terms


def _why(first: Scored, second: Scored) -> str:
    """Where the runner-up loses its time, part by part, per token where steps are not alike."""
    share = second.token / first.token - 1
    scale = 1 / (second.layout.global_batch * second.layout.seq), 1 / (first.layout.global_batch * first.layout.seq)
    gaps = {
        b.name.removeprefix("step/"): b.value * scale[0] - a.value * scale[1]
        for a, b in zip(first.time.parts, second.time.parts, strict=True)
    }
    tokens = first.layout.global_batch * first.layout.seq
    worst = sorted(gaps.items(), key=lambda gap: -abs(gap[1]))[:3]
    parts = ", ".join(
        f"{name} {'+' if gap > 0 else '−'}{human(abs(gap) * tokens, 'second')}" for name, gap in worst if gap
    )
    moved = [
        f"{name} {value} for {degrees(first.layout)[name]}"
        for name, value in degrees(second.layout).items()
        if value != degrees(first.layout)[name]
    ]
    return f"the runner-up ({', '.join(moved)}) takes {share:.2%} more" + (f": {parts}" if parts else "")


def _front_line(planner: Planner, found: Found, front: list[int]) -> str:
    """The Pareto front in a few words: its ends and how many layouts lie on it."""
    ends = [front[0], front[-1]] if len(front) > 1 else [front[0]]
    shown = " … ".join(f"MFU {mfu_of(planner, found, i):.1%} at {found.used[i] / 2**30:.1f} GiB" for i in ends)
    return f"{len(front)} layout{'s' if len(front) > 1 else ''} that no other beats in both: {shown}"


def _title(planner: Planner, gpus: int, layouts: int, fitting: int) -> str:
    request = planner.request
    batch = f"{request.batch:,}" if request.batch else f"up to {request.most:,}"
    return (
        f"{request.model.name} on {gpus:,} × {planner.hardware.name}, {batch} × {request.seq:,} tokens a step: "
        f"{layouts:,} layouts, {fitting:,} fit"
    )

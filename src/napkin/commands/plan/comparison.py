"""Compare the layouts of a plan: rows and sentences on the runner-up, the Pareto front and common choices."""

from __future__ import annotations

from napkin.commands.plan.pictures import mfu_of
from napkin.commands.plan.question import PlanQuestion
from napkin.commands.question.layout import degrees
from napkin.planning.common_layouts import UsualChoice
from napkin.planning.fitting_layouts import FittingLayouts
from napkin.planning.layouts import Scored
from napkin.planning.verdicts import FITS, NOT
from napkin.render.answer import Cell
from napkin.units import human


def says_recommended(chosen: Scored, leader: Scored) -> tuple[str, ...]:
    """Return why the recommended layout is not the fastest; "" if it is."""
    if chosen.layout == leader.layout:
        return ()
    slower = chosen.token / leader.token - 1
    return (
        f"recommended: surely fits ({human(chosen.used, 'byte')}), {slower:.1%} slower than the fastest, which may not "
        f"({human(leader.used, 'byte')}): less than predictions tell apart",
    )


def front_row(question: PlanQuestion, found: FittingLayouts, i: int) -> dict[str, Cell]:
    """Return a layout of the Pareto front as a row."""
    return {
        **degrees(found.layout(i)),
        "step/time": float(found.seconds[i]),
        "mfu": float(mfu_of(question, found, i)),
        "memory/total": float(found.used[i]),
    }


def usual_row(one: UsualChoice) -> dict[str, Cell]:
    """Return a common choice as a row; unknown values are omitted. fit: the verdict, as in ranked rows, null for no
    valid layout; fits: null too where it is too close to call."""
    figures = {"memory/total": one.used, "step/time": one.seconds}
    known = {name: value for name, value in figures.items() if value is not None}
    fits = {FITS: True, NOT: False}.get(one.fit)
    how = {"name": one.name, "recompute": one.recompute}
    return {**how, "fits": fits, "fit": one.fit or None, **known, "why": one.why}


def why(first: Scored, second: Scored) -> str:
    """Return where the runner-up loses time, part by part; per token if the steps differ in size."""
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


def front_line(question: PlanQuestion, found: FittingLayouts, front: list[int]) -> str:
    """Return the Pareto front in a few words: its ends and how many layouts lie on it."""
    ends = [front[0], front[-1]] if len(front) > 1 else [front[0]]
    shown = " … ".join(f"MFU {mfu_of(question, found, i):.1%} at {found.used[i] / 2**30:.1f} GiB" for i in ends)
    return f"{len(front)} Pareto-optimal layout{'s' if len(front) > 1 else ''}: {shown}"

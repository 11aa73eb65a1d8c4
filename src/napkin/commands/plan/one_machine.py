"""The answer of `napkin plan` about one machine: its layouts ranked, or the nearest question that has an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.commands.memory import loading
from napkin.commands.memory.host import judge as judge_node
from napkin.commands.memory.host import keeps, read_node, read_whether_kept
from napkin.commands.plan.backends import record_software
from napkin.commands.plan.pictures import mfu_of, scatter
from napkin.commands.plan.published import add_published_time
from napkin.commands.plan.question import PlanQuestion
from napkin.commands.plan.rows import COLUMNS, Standing, goodput_on, row_of, run_halves, whole_run
from napkin.commands.question.layout import degrees
from napkin.commands.question.step_model import memory_terms
from napkin.elementwise import Number
from napkin.errors import BROKEN, HELD, IMPOSSIBLE, UNDECIDED, NapkinError
from napkin.evidence.predictions.utilization import utilization_terms
from napkin.evidence.rates.constants import deviations
from napkin.inputs.limits import status_of_most
from napkin.planning.alternatives import nearest, reasons
from napkin.planning.common_layouts import UsualChoice, usual_choices
from napkin.planning.fitting_layouts import FittingLayouts
from napkin.planning.grid import Request
from napkin.planning.layouts import Scored, best, chosen_on, half_of, listed, recommended, scored
from napkin.planning.step_memory import terms_of
from napkin.planning.verdicts import FITS, NOT, evaluate
from napkin.render.answer import Answer, Cell, Row
from napkin.term import TRUE, Term, leaf
from napkin.training.layout import Layout
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


def on_one(question: PlanQuestion, request: Request) -> Answer:
    """Answer with the ranked layouts of one machine, or with the nearest machine or request that has any."""
    if question.brief:
        answer, chosen = _quantities(question, request)
    else:
        found = question.layouts.find(request)
        if not len(found):
            return impossible(question, request, question.layouts.find_least(request) if found.layouts else found)
        answer, chosen = ranked_answer(question, found)
    record_software(question.asked, request, chosen.layout)
    judge(question, answer, chosen.fit)
    judge_host(question, answer, chosen.layout)
    if chosen.fit == UNDECIDED and request.setup.tunes and question.counts and not question.brief:
        from napkin.commands.plan.remedies import suggest

        answer.extra["suggestions"], _ = suggest(question, request.gpus)
    loading.add(answer, request.model, question.layouts.setup(chosen.layout))
    return answer


def judge_host(question: PlanQuestion, answer: Answer, layout: Layout) -> None:
    """Add the host memory that the recommended layout uses, against the size if given."""
    layouts, inputs = question.layouts, question.asked
    request, setup = layouts.request, layouts.setup(layout)
    read_whether_kept(inputs, keeps(setup))
    if not keeps(setup) or question.brief:
        return
    found = evaluate(request.model, setup, layouts.hardware.capacity)
    node, there = read_node(inputs, setup, layouts.hardware)
    judge_node(answer, terms_of(found, ""), node, there)


def judge(question: PlanQuestion, answer: Answer, fit: str) -> None:
    """State whether the run meets its deadline and budget, as `train-time` does; without these, whether it fits.
    Commands that vary an input skip the latter, because the layout is chosen to fit."""
    answer.verdict = None if question.brief else fit
    if question.limits and question.counts:  # else the machine is chosen to keep them
        answer.status = status_of_most(question.limits, answer.quantities(), answer.intervals)
        answer.verdict = HELD[answer.status]


def impossible(
    question: PlanQuestion, request: Request, found: FittingLayouts | None, known: Sequence[str] = ()
) -> Answer:
    """Answer with the nearest question that has an answer, with status 1. known: why the request has none."""
    why = list(known) or reasons(question.layouts, request, found)
    near = nearest(question.layouts, request)
    rows, tried = _suggested(question, request.gpus, found)
    if near is None:
        raise NapkinError(
            f"{request.model.name} on {request.gpus:,} × {question.layouts.hardware.name}: {'; '.join(why)}",
            str(rows[0]["command"])
            if rows
            else "no number of GPUs that was tried and no single relaxed option changes that",
            status=BROKEN,
        )
    what, other = near
    answer, _ = ranked_answer(question, other)
    answer.status, answer.verdict = BROKEN, IMPOSSIBLE
    answer.extra["reasons"] = why
    answer.extra["nearest"] = what
    if tried:
        answer.extra["suggestions"] = rows
        why += [] if rows else [f"none fits with other {', '.join(f'--{name}' for name in tried)} either"]
    return answer


def _suggested(question: PlanQuestion, gpus: int, found: FittingLayouts | None) -> tuple[list[Row], list[str]]:
    """Return changes besides the layout with which one fits, and the options that were tried, if layouts exist."""
    if question.brief or not question.counts or found is None or not found.layouts:
        return [], []
    from napkin.commands.plan.remedies import suggest

    return suggest(question, gpus)


def ranked_answer(question: PlanQuestion, found: FittingLayouts) -> tuple[Answer, Scored]:
    """Answer with the best layouts as rows, and the recommended one as quantities; then the runner-up, the Pareto front
    and common choices. Return it with the recommended layout."""
    layouts, request = question.layouts, found.request
    front = found.front()
    shown = front[: question.rows] if question.pareto else found.distinct(question.rows)
    leader = best(layouts, found)
    chosen = recommended(layouts, found, leader)
    half, apart = half_of(layouts, chosen), layouts.apart(request.gpus)
    entries = [listed(layouts, found, i) for i in shown]
    rows = [
        row_of(question, one, Standing(n, leader, i in front, one.layout == chosen.layout))
        for n, (one, i) in enumerate(zip(entries, shown, strict=True), 1)
    ]
    if not question.pareto and not any(row["recommended"] for row in rows):
        faster = int((found.score < chosen.token * (1 - 1e-9)).sum())
        rows.append(row_of(question, chosen, Standing(max(faster, len(rows)) + 1, leader, recommended=True)))
    terms, notes = _terms(question, chosen, found.layouts)
    terms.append(leaf("layouts/fit", len(found), "1", TRUE, "and fit the memory"))
    terms += _run_terms(question, chosen)
    answer = Answer("plan", terms, rows=rows, notes=notes)
    answer.intervals = ends_of(question, answer.terms, half, request.gpus)
    add_published_time(answer, question, request.gpus)
    usual = list(usual_choices(layouts, request, chosen))
    answer.extra["columns"] = COLUMNS
    answer.extra["pareto"] = [front_row(question, found, i) for i in front]
    answer.extra["popular"] = [usual_row(one) for one in usual]
    answer.notes += [
        *says_recommended(chosen, leader),
        *((why(entries[0], entries[1]),) if len(entries) > 1 else ()),
        f"time against memory: {front_line(question, found, front)}",
        *(f"{one.name}: {one.why}" for one in usual),
    ]
    ties = int((found.score <= found.score.min() * math.exp(2 * apart)).sum())
    answer.extra["ties"] = ties
    answer.notes.append(
        f"{ties:,} of {len(found):,} layouts that fit lie within each other's {question.confidence:.0%} intervals "
        f"(×/÷ {math.exp(apart):.2f}); `tie` marks those listed"
    )
    if request.batch is None:
        answer.notes.append(
            "the batch is free: each layout takes the largest step that it can; they are ranked by time per token"
        )
    answer.plot = (scatter(question, found, front, chosen, half),)
    return answer, chosen


def _quantities(question: PlanQuestion, request: Request) -> tuple[Answer, Scored]:
    """Answer with only the quantities of the recommended layout, for a command that needs no more."""
    layouts = question.layouts
    chosen, count = chosen_on(layouts, request.gpus)
    if chosen is None:  # another command reads the answer to its own question, not to one nearby
        raise NapkinError("; ".join(reasons(layouts, request, None)), "another --gpus", status=BROKEN)
    terms, notes = _terms(question, chosen, count)
    terms += _run_terms(question, chosen)
    answer = Answer("plan", terms, notes=notes)
    answer.intervals = ends_of(question, answer.terms, half_of(layouts, chosen), request.gpus)
    return answer, chosen


def ends_of(question: PlanQuestion, terms: Sequence[Term], half: float, gpus: int) -> dict[str, tuple[Number, Number]]:
    """Return the intervals of the predicted terms; half: half-width of the interval of ln(step time)."""
    faster, slower = run_halves(question, half, gpus)
    ends: dict[str, tuple[Number, Number]] = {}
    for term in terms:
        if term.name in ("step/time", "mfu", "hfu", "tokens_per_second_per_gpu", "time/uninterrupted"):
            ends[term.name] = (term.value / math.exp(half), term.value * math.exp(half))
        elif term.name in ("time", "gpu_hours", "cost"):
            ends[term.name] = (term.value / math.exp(faster), term.value * math.exp(slower))
    goodput = None if question.goodput is None else goodput_on(question.goodput, gpus)
    if goodput is not None and goodput.is_spread:
        ends["goodput"] = goodput.ends(deviations(question.confidence))
    return ends


def _terms(question: PlanQuestion, winner: Scored, tried: int) -> tuple[list[Term], list[str]]:
    """Return the best layout as `step` does, its memory and the number of layouts tried, and notes."""
    terms, notes = _step_terms(question, winner.layout)
    terms.append(question.layouts.hardware.term("capacity", "memory/capacity", "byte"))
    terms.append(leaf("layouts", tried, "1", TRUE, "divide machine, model and batch"))
    return terms, notes


def _run_terms(question: PlanQuestion, winner: Scored) -> list[Term]:
    """Return the totals of the entire run, and the expected failures."""
    run = {name: leaf(name, value, COLUMNS[name], TRUE) for name, value in whole_run(question, winner).items()}
    if question.goodput is None or not run:
        return list(run.values())
    goodput = goodput_on(question.goodput, int(winner.layout.gpus))
    return [*{**run, "goodput": goodput.share}.values(), *goodput.expected(run["time"])]


def _step_terms(question: PlanQuestion, layout: Layout) -> tuple[list[Term], list[str]]:
    """Return the layout as `step` does, and its memory."""
    layouts, model = question.layouts, question.layouts.request.model
    setup = layouts.setup(layout)
    whole = scored(layouts, layout).step
    shown = utilization_terms(model, setup, question.peak, whole)
    found = [whole.time, *whole.time.parts, *shown]
    if not question.weighed:
        return found, []
    memory, _, notes = memory_terms(model, setup)
    return [*found, *memory], notes

"""The answers of `napkin plan`: for one machine, the best of several machines, or the fewest GPUs."""

from __future__ import annotations

import math
from typing import Any

from napkin.commands.plan.one_machine import ends_of, impossible, judge, on_one, ranked_answer
from napkin.commands.plan.pictures import curves
from napkin.commands.plan.question import PlanQuestion
from napkin.commands.plan.rows import (
    COLUMNS,
    Row,
    machine_row,
    missed,
    run_of,
    whole_run,
)
from napkin.commands.screens.plan import screen
from napkin.errors import BROKEN, CLOSE, HELD, IMPOSSIBLE
from napkin.inputs.limits import status_of_most
from napkin.planning.alternatives import nearest
from napkin.planning.fewest import LIMIT, TRIED_IN_EIGHTHS
from napkin.planning.layouts import Scored, chosen_on, fewest_gpus
from napkin.planning.verdicts import FITS
from napkin.record import replace
from napkin.render.answer import Answer, Shown
from napkin.term import TRUE, Term, leaf
from napkin.units import human


def answer(question: PlanQuestion) -> Answer:
    """Answer for one machine, for several, or with the fewest GPUs."""
    if question.several:
        found = _each(question)
    elif question.counts:
        found = on_one(question, question.layouts.on(question.counts[0]))
    else:
        found = _fewest(question)
    if not question.brief:
        ranked = bool(question.counts) and "reasons" not in found.extra
        late = ranked and any(row.get("recommended") and row["misses"] for row in found.rows or ())
        enough = _fewest_of(question) if late else None
        if late:
            found.notes.append(_says_enough(question, enough))
        found.screen = screen(question, found, enough is not None)
    return found


def _each(question: PlanQuestion) -> Answer:
    """Answer with the best layout of each machine size."""
    layouts, counts = question.layouts, question.counts
    rows: list[dict[str, Any]] = []
    first: Scored | None = None
    for gpus in counts:
        winner, count = chosen_on(layouts, gpus)
        if winner is None:
            rows.append({"gpus": gpus, "why": "no layout fits" if count else "no layout divides it"})
            continue
        first = first or winner
        rows.append(machine_row(question, gpus, winner, first))
    done = [row for row in rows if "step/time" in row]
    if not done:
        most = layouts.on(counts[-1])
        return impossible(question, most, layouts.find_least(most))
    in_time = [row for row in done if row["misses"] is None]
    chosen = min(in_time or done, key=lambda row: _goal(question, row))
    for row in done:
        row["recommended"] = row is chosen
    answer = Answer(
        "plan",
        _chosen_terms(chosen),
        rows=rows,
    )
    half = math.log(chosen["step/high"] / chosen["step/time"])
    answer.intervals = ends_of(question, answer.terms, half, chosen["gpus"])
    judge(question, answer, chosen["fit"])
    answer.extra["columns"] = {**COLUMNS, "gpus": "GPU", "tokens_per_second": "token/s"}
    answer.plot = tuple(curves(question, done))
    return answer


def _goal(question: PlanQuestion, row: Row) -> float:
    """Return the value to minimize: GPU-hours of the run, GPUs, or time."""
    if question.objective == "gpus":
        return float(row["gpus"])
    if question.objective == "cost":
        return 1 / float(row["tokens_per_second_per_gpu"])
    return 1 / float(row["tokens_per_second"])


def _chosen_terms(row: Row) -> list[Term]:
    """Return the quantities of the machine that is best by the objective."""
    named = {"gpus": "GPU", **COLUMNS, "tokens_per_second": "token/s", "efficiency": "1"}
    published = [name for name in named if name in row and name not in ("step/low", "step/high", "global-batch")]
    return [leaf(name, row[name], named[name], TRUE) for name in published]


def _fewest(question: PlanQuestion) -> Answer:
    """Answer with the fewest GPUs on which a layout surely fits and keeps the deadline and the budget, if any."""
    layouts, gpus = question.layouts, _fewest_of(question)
    if gpus is None and not question.limits and not layouts.only_fits:
        return _fewest(replace(question, layouts=layouts.fitting_only()))
    if gpus is None:
        return _none_is_enough(question)
    answer = on_one(question, layouts.on(gpus))
    answer.terms = (leaf("gpus", gpus, "GPU"), *answer.terms)
    answer.inputs["gpus"] = Shown(gpus, None, "solved", "GPU")
    answer.notes.append(f"gpus is the fewest of those tried: {TRIED_IN_EIGHTHS}")
    return answer


def _none_is_enough(question: PlanQuestion) -> Answer:
    """Answer with the nearest machine: with a deadline and a budget, the fewest GPUs that keep the deadline; with a
    budget, the fewest on which a step fits; with only a deadline, the most that were tried. Its limits are too close to
    call (status 4) where they lie in the intervals of the run, else broken (status 1)."""
    layouts = question.layouts
    most = layouts.on(LIMIT // layouts.request.node * layouts.request.node)
    if not question.limits:
        why = f"no layout surely fits on any number of GPUs up to {most.gpus:,} that was tried: {TRIED_IN_EIGHTHS}"
        return impossible(question, most, None, [why])
    least = None
    if question.budget is not None and question.deadline is not None:
        least = _fewest_of(replace(question, budget=None))
    if question.budget is not None and least is None:
        least = fewest_gpus(layouts, lambda one: one.fit == FITS, lambda *_: True).gpus
    request = most if least is None else layouts.on(least)
    found = layouts.find(request)
    near = ("", found) if len(found) else nearest(layouts, request)
    if near is None:
        return impossible(question, request, found)
    answer, _ = ranked_answer(question, near[1])
    answer.status = status_of_most(question.limits, answer.quantities(), answer.intervals)
    gpus = near[1].request.gpus
    if answer.status == CLOSE and least == gpus:
        answer.verdict = HELD[answer.status]
        answer.terms = (leaf("gpus", gpus, "GPU"), *answer.terms)
        answer.inputs["gpus"] = Shown(gpus, None, "solved", "GPU")
        answer.notes.append(_says_enough(question, None))
        return answer
    run = answer.by_path()
    said = [human(gpus, "GPU"), human(run["time"].value, "second")]
    answer.status, answer.verdict = BROKEN, IMPOSSIBLE
    answer.extra["reasons"] = [_says_enough(question, None)]
    answer.extra["nearest"] = ", ".join([*said, *([human(run["cost"].value, "USD")] if "cost" in run else [])])
    return answer


def _says_enough(question: PlanQuestion, gpus: int | None) -> str:
    """Return a note on whether another number of GPUs meets the limits that the recommended layout misses."""
    kept = " and ".join(
        f"--{name}" for name, one in (("within", question.deadline), ("budget", question.budget)) if one
    )
    if gpus is None:
        return f"no number of GPUs that was tried keeps {kept}"
    return f"{gpus:,} GPUs keep {kept}: --min gpus finds them"


def _fewest_of(question: PlanQuestion) -> int | None:
    """Return the fewest GPUs on which a layout surely fits and keeps the deadline and the budget, if any; None if no
    number that is tried does."""
    layouts = question.layouts

    def enough(one: Scored) -> bool:
        return missed(question, whole_run(question, one)) is None and (bool(question.limits) or one.fit == FITS)

    def in_time(gpus: int, token: float) -> bool:
        return missed(question, run_of(question, gpus, token)) is None

    return fewest_gpus(layouts, enough, in_time).gpus

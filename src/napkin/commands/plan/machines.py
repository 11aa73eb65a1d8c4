"""The answers of `napkin plan` by machine: one, the best of each of several, or the smallest that is in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from napkin.commands.plan.exact import Scored, scored
from napkin.commands.plan.nearest import DOUBLINGS, impossible
from napkin.commands.plan.pictures import curves
from napkin.commands.plan.question import Planner
from napkin.commands.plan.ranking import ranked
from napkin.commands.plan.table import COLUMNS, Numbers, displayed, row_of, table
from napkin.errors import BROKEN, NapkinError
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, leaf
from napkin.units import human


def one(planner: Planner, gpus: int) -> Answer:
    """The ranked layouts of one machine, or the nearest machine or request that has any."""
    inputs, request = planner.inputs, planner.on(gpus)
    found = planner.find(request)
    if not len(found):
        return impossible(planner, request, found)
    best = scored(planner, found.layout(found.ranked(1)[0]))
    answer = ranked(planner, found, best)
    limit, tokens = inputs.get("within"), inputs.get("tokens")
    if limit is not None and tokens is not None and best.token * tokens / gpus > limit:
        answer.status, answer.verdict = BROKEN, "impossible"
        answer.notes.append(
            f"the best takes {human(best.token * tokens / gpus, 'second')}, not {human(limit, 'second')}: "
            "--objective gpus finds how many GPUs it takes"
        )
    return answer


def each(planner: Planner, counts: Sequence[int]) -> Answer:
    """The best layout of each machine: how speed and cost grow."""
    rows: list[dict[str, Any]] = []
    bests: list[Scored] = []
    for gpus in counts:
        found = planner.find(planner.on(gpus))
        if not len(found):
            why = "no layout fits" if found.layouts else "no layout divides it"
            rows.append({"gpus": gpus, "why": why})
            continue
        best = scored(planner, found.layout(found.ranked(1)[0]))
        bests.append(best)
        row = row_of(planner, 1, best, best, planner.half_width(gpus), True)
        dropped = ("rank", "tie", "pareto")
        rows.append({"gpus": gpus, **{name: value for name, value in row.items() if name not in dropped}})
    if not bests:
        return impossible(planner, planner.on(counts[-1]), None)
    for row in rows:
        if "step/time" in row:
            speed = row["tokens_per_second_per_gpu"]
            row["tokens_per_second"] = speed * row["gpus"]
            row["efficiency"] = speed * bests[0].token
    kept = _within(planner, rows)
    chosen = min(kept or [r for r in rows if "step/time" in r], key=lambda row: _goal(planner, row))
    answer = Answer(
        "plan",
        f"{planner.request.model.name} on {counts[0]:,} to {counts[-1]:,} × {planner.hardware.name}: the best of each",
        _chosen_terms(chosen),
        rows=rows,
        display=table([_displayed(row) for row in rows]),
    )
    if planner.inputs.get("within") is not None and not kept:
        answer.status, answer.verdict = BROKEN, "impossible"
    answer.extra["columns"] = {**COLUMNS, "gpus": "GPU", "tokens_per_second": "token/s"}
    answer.plot = tuple(curves(planner, [row for row in rows if "step/time" in row]))
    return answer


def _goal(planner: Planner, row: Numbers) -> float:
    """What is made small: the whole run's GPU-hours, its GPUs, or its time."""
    objective = planner.inputs.get("objective")
    if objective == "gpus":
        return float(row["gpus"])
    if objective == "cost":
        return 1 / float(row["tokens_per_second_per_gpu"])
    return 1 / float(row["tokens_per_second"])


def _within(planner: Planner, rows: Sequence[Numbers]) -> list[Numbers]:
    """The machines that are done in time."""
    limit = planner.inputs.get("within")
    done = [row for row in rows if "step/time" in row]
    if limit is None:
        return done
    if planner.inputs.get("tokens") is None:
        raise NapkinError("--within needs --tokens", "how many tokens must be trained in that time?")
    return [row for row in done if row["time"] <= limit]


def _chosen_terms(row: Numbers) -> list[Term]:
    """The machine that the objective asks for, as quantities."""
    named = {"gpus": "GPU", **COLUMNS, "tokens_per_second": "token/s", "efficiency": "1"}
    published = [name for name in named if name in row and name not in ("step/low", "step/high", "global-batch")]
    return [leaf(name, row[name], named[name], TRUE) for name in published]


def _displayed(row: Numbers) -> dict[str, str]:
    """What a person reads of one machine: why it has no layout, or its best."""
    if "why" in row:
        return {"gpus": f"{row['gpus']:,}", "why": str(row["why"])}
    hidden = ("gpus", "tokens_per_second", "efficiency", "step/low", "step/high")
    shown = displayed({name: value for name, value in row.items() if name not in hidden})
    return {
        "gpus": f"{row['gpus']:,}",
        **shown,
        "tokens/s": f"{row['tokens_per_second']:,.0f}",
        "efficiency": f"{row['efficiency']:.1%}",
    }


def fewest(planner: Planner, counts: Sequence[int] | None = None) -> Answer:
    """The fewest GPUs that train --tokens within --within: doubled until it is done, then narrowed in eighths."""
    inputs = planner.inputs
    limit, tokens = inputs.get("within"), inputs.get("tokens")
    if limit is None or tokens is None:
        raise NapkinError(
            "--objective gpus needs --within and --tokens", "for example --within 30d --tokens 15T --objective gpus"
        )
    if counts is not None:
        return each(planner, counts)
    node = planner.request.node

    def done(gpus: int) -> bool:
        found = planner.find(planner.on(gpus))
        return bool(len(found)) and float(found.score.min()) * tokens / gpus <= limit

    high = _first(done, node)
    if high is None:
        return impossible(planner, planner.on(node << DOUBLINGS), None)
    steps = [high // 2 + i * high // 16 for i in range(1, 8) if high // 2 * i % 8 == 0 and high > 16 * node]
    while steps:
        middle = steps[len(steps) // 2]
        if done(middle):
            high, steps = middle, [n for n in steps if n < middle]
        else:
            steps = [n for n in steps if n > middle]
    answer = one(planner, high)
    answer.terms = (leaf("gpus", high, "GPU"), *answer.terms)
    inputs.record("gpus", high, "solved", "GPU")
    answer.notes.append("the number of GPUs is the fewest among powers of two times the node, and eighths between them")
    return answer


def _first(done: Callable[[int], bool], node: int) -> int | None:
    """The smallest of node, 2·node, 4·node, … that is done in time."""
    for doubling in range(DOUBLINGS + 1):
        if done(node << doubling):
            return node << doubling
    return None

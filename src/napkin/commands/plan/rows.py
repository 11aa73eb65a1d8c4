"""Layouts as rows (numbers by name for files, words for people), and as a `napkin step` command line."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from napkin.commands.plan.question import PlanQuestion
from napkin.commands.question.layout import degrees
from napkin.commands.question.machine import idle_links
from napkin.evidence.rates.constants import deviations
from napkin.options.command_line import Text, pieces_of
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.layouts import Scored, half_of
from napkin.record import record
from napkin.render.answer import Cell
from napkin.term import leaf
from napkin.timing.goodput import Goodput
from napkin.training.layout import Layout
from napkin.units import human

Row = Mapping[str, Any]

COLUMNS = {
    "global-batch": "1",
    "step/time": "second",
    "step/low": "second",
    "step/high": "second",
    "mfu": "1",
    "tokens_per_second_per_gpu": "token/s/GPU",
    "memory/total": "byte",
    "memory/headroom": "byte",
    "step/communication": "second",
    "step/bubble": "second",
    "time": "second",
    "low": "second",
    "high": "second",
    "memory": "byte",
    "time/uninterrupted": "second",
    "goodput": "1",
    "gpu_hours": "GPU-hour",
    "cost": "USD",
}
"""Units of the columns that have one."""


@record
class Standing:
    """How a layout ranks among the others.

    rank  from 1, the fastest      on_front  whether no layout beats it in time and memory both
    best  the fastest layout       recommended  whether it is recommended
    """

    rank: int
    best: Scored
    on_front: bool = False
    recommended: bool = False


def row_of(question: PlanQuestion, scored: Scored, standing: Standing) -> dict[str, Cell]:
    """Return a layout as a row. time, low and high are calendar times of the entire run if --tokens is given, else
    times of a step."""
    seconds, rank = scored.time.value, standing.rank
    half, apart = half_of(question.layouts, scored), question.layouts.apart(int(scored.layout.gpus))
    shown = degrees(scored.layout)
    row: dict[str, Cell] = {
        "rank": rank,
        **shown,
        "micro_batch": shown["micro-batch"],
        "global_batch": shown["global-batch"],
        "step/time": seconds,
        "step/low": seconds / math.exp(half),
        "step/high": seconds * math.exp(half),
        "mfu": scored.mfu,
        "tokens_per_second_per_gpu": 1 / scored.token,
        "memory": scored.used,
        "memory/total": scored.used,
        "memory/headroom": question.layouts.hardware.capacity - scored.used,
        "fit": scored.fit,
        "step/communication": scored.part("step/communication"),
        "step/bubble": scored.part("step/bubble"),
        "tie": rank > 1 and scored.token <= standing.best.token * math.exp(2 * apart),
        "pareto": standing.on_front,
        "recommended": standing.recommended,
        "command": command_line(question, scored.layout),
    }
    if question.layouts.request.sharded:
        row["framework"] = question.layouts.setup(scored.layout).framework.name
    run = whole_run(question, scored)
    time, ends = (run["time"], run_halves(question, half, int(scored.layout.gpus))) if run else (seconds, (half, half))
    row |= {"time": time, "low": time / math.exp(ends[0]), "high": time * math.exp(ends[1])}
    return {**row, **run, "misses": missed(question, run)}


@functools.cache
def goodput_on(goodput: Goodput, gpus: int) -> Goodput:
    """Return the goodput on this many GPUs."""
    return goodput.on(leaf("gpus", gpus, "GPU"))


def run_halves(question: PlanQuestion, half: float, gpus: int) -> tuple[float, float]:
    """Return how far the interval of ln(calendar time) reaches down and up, from the step and the goodput."""
    if question.goodput is None:
        return half, half
    return goodput_on(question.goodput, gpus).half_widths(half, deviations(question.confidence))


def whole_run(question: PlanQuestion, one: Scored) -> dict[str, float]:
    """Return calendar time, goodput, GPU-hours and cost of all tokens, if they are given."""
    return run_of(question, int(one.layout.gpus), one.token)


def run_of(question: PlanQuestion, gpus: int, token: float) -> dict[str, float]:
    """Return the same for this many GPUs at this many GPU-seconds a token."""
    tokens, price, goodput = question.tokens, question.price, question.goodput
    if tokens is None or goodput is None:
        return {}
    found = goodput_on(goodput, gpus)
    running, calendar = found.run(tokens, token / gpus)
    hours = calendar * float(found.paid(leaf("gpus", gpus, "GPU")).value) / 3600
    run = {"time": calendar, "time/uninterrupted": running, "goodput": float(found.share.value), "gpu_hours": hours}
    return {**run, "cost": hours * price} if price is not None else run


def missed(question: PlanQuestion, run: Mapping[str, float]) -> str | None:
    """Return the limits that a run misses, in words; None if it meets them."""
    words = []
    if question.deadline is not None and run["time"] > question.deadline:
        words.append(f"misses --within by {human(run['time'] - question.deadline, 'second')}")
    if question.budget is not None and run["cost"] > question.budget:
        words.append(f"misses --budget by {human(run['cost'] - question.budget, 'USD')}")
    return "; ".join(words) or None


def machine_row(question: PlanQuestion, gpus: int, winner: Scored, first: Scored) -> dict[str, Cell]:
    """Return the best layout of one machine as a row; its efficiency is its speed per GPU over the first machine's."""
    row = row_of(question, winner, Standing(1, winner))
    dropped = ("rank", "tie", "pareto", "recommended")
    kept = {name: value for name, value in row.items() if name not in dropped}
    speed = 1 / winner.token
    return {"gpus": gpus, **kept, "tokens_per_second": speed * gpus, "efficiency": speed * first.token}


def command_line(question: PlanQuestion, layout: Layout) -> str:
    """Return the layout as a `napkin step` command line."""
    changes: dict[str, Text] = {"gpus": None, "seq": str(layout.seq)}
    changes |= dict.fromkeys(idle_links(int(layout.gpus), question.layouts.request.node))
    own = ["recompute"] if "trainer" in question.given else []  # a trainer's default is its own
    if question.layouts.setup(layout).framework.zero and layout.dp * layout.cp > 1:  # and so is a framework's
        own.append("zero")
    for name, value in degrees(layout).items():
        if name == "sp":
            changes[name] = None if value == (layout.tp > 1) else bool(value)
        else:
            usual = name not in own and str(value) == SETUP_DEFAULTS.get(name)
            changes[name] = None if usual else str(value)
    return " ".join(pieces_of("step", question.given, changes))

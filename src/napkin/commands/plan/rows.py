"""Layouts as rows: numbers by name for files, words for a person; and one as a question to `napkin step`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from napkin.commands.layout import degrees
from napkin.commands.plan.question import PlanQuestion
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.layouts import Scored
from napkin.planning.verdicts import UNDECIDED
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
    "gpu_hours": "GPU-hour",
    "cost": "USD",
}
"""Units of the columns that have one."""


def row_of(question: PlanQuestion, rank: int, one: Scored, best: Scored, half: float, on_front: bool) -> dict[str, Any]:
    """Return everything that is said of a layout as a row; half: half the interval of ln t."""
    seconds = one.time.value
    row: dict[str, Any] = {
        "rank": rank,
        **degrees(one.layout),
        "step/time": seconds,
        "step/low": seconds / math.exp(half),
        "step/high": seconds * math.exp(half),
        "mfu": one.mfu,
        "tokens_per_second_per_gpu": 1 / one.token,
        "memory/total": one.used,
        "memory/headroom": question.layouts.hardware.capacity - one.used,
        "fit": one.fit,
        "step/communication": one.part("step/communication"),
        "step/bubble": one.part("step/bubble"),
        "tie": rank > 1 and one.token <= best.token * math.exp(2 * half),
        "pareto": on_front,
    }
    return {**row, **whole_run(question, one)}


def whole_run(question: PlanQuestion, one: Scored) -> dict[str, float]:
    """Return time, GPU-hours and cost of all tokens, where they are given."""
    tokens, price = question.tokens, question.price
    if tokens is None:
        return {}
    hours = one.token * tokens / 3600
    run = {"time": one.token * tokens / int(one.layout.gpus), "gpu_hours": hours}
    return {**run, "cost": hours * price} if price is not None else run


def displayed(row: Row) -> dict[str, str]:
    """Return what a person reads of a row: degrees that matter, then the figures."""
    short = {"micro-batch": "mb", "global-batch": "batch"}
    shown: dict[str, str] = {}
    for name, value in row.items():
        if name in ("step/low", "step/high", "tokens_per_second_per_gpu", "memory/headroom", "gpu_hours"):
            continue
        if name in ("tie", "pareto"):
            shown[name] = ("≈" if name == "tie" else "●") if value else ""
        elif name in ("step/communication", "step/bubble"):
            shown[name.removeprefix("step/")] = f"{value / row['step/time']:.1%}"
        elif name == "memory/total":
            shown["memory"] = f"{value / 2**30:.1f} GiB"
        elif name == "mfu":
            shown[name] = f"{value:.1%}"
        elif name == "fit":
            shown[name] = "close" if value == UNDECIDED else str(value)
        elif isinstance(value, bool):
            shown[name] = "yes" if value else "no"
        elif name in COLUMNS:
            shown[short.get(name, name)] = human(value, COLUMNS[name])
        else:
            shown[short.get(name, name)] = str(value)
    return shown


UNREMARKABLE = {"cp": "1", "ep": "1", "vp": "1", "zero": "0", "sp": "no", "recompute": "none", "tie": "", "pareto": ""}


def table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Drop the columns in which every row has the usual value."""
    silent = [name for name, usual in UNREMARKABLE.items() if all(row.get(name, usual) == usual for row in rows)]
    return [{name: text for name, text in row.items() if name not in silent} for row in rows]


def machine_row(question: PlanQuestion, gpus: int, winner: Scored, first: Scored) -> dict[str, Any]:
    """Return the best layout of one machine as a row; its efficiency is its speed per GPU over the first machine's."""
    row = row_of(question, 1, winner, winner, question.layouts.half_width(gpus), True)
    dropped = ("rank", "tie", "pareto")
    kept = {name: value for name, value in row.items() if name not in dropped}
    speed = row["tokens_per_second_per_gpu"]
    return {"gpus": gpus, **kept, "tokens_per_second": speed * gpus, "efficiency": speed * first.token}


def command_line(question: PlanQuestion, layout: Layout) -> str:
    """Return the same layout as a question to `napkin step`."""
    given = dict(question.words)
    words = [f"napkin step {given.pop('model')}", f"--hardware {given.pop('hardware')}"]
    for name, value in degrees(layout).items():
        if name == "sp":
            words += [] if value == (layout.tp > 1) else ["--sp" if value else "--no-sp"]
        elif name not in SETUP_DEFAULTS or str(value) != SETUP_DEFAULTS[name]:
            words.append(f"--{name} {value}")
    return " ".join([*words, f"--seq {layout.seq}", *(f"--{name} {text}" for name, text in given.items())])

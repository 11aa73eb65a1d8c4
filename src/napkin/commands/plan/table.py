"""Layouts as rows: numbers by name for files, words for a person; and one as a question to `napkin step`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from napkin.commands.layout import degrees
from napkin.commands.plan.exact import Scored
from napkin.commands.plan.question import Planner
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.fit import UNDECIDED
from napkin.training.layout import Layout
from napkin.units import human

Numbers = Mapping[str, Any]

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


def row_of(planner: Planner, rank: int, one: Scored, best: Scored, half: float, on_front: bool) -> dict[str, Any]:
    """Everything that is told of a layout; `half`: half the interval of ln t."""
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
        "memory/headroom": planner.hardware.capacity - one.used,
        "fit": one.fit,
        "step/communication": one.part("step/communication"),
        "step/bubble": one.part("step/bubble"),
        "tie": rank > 1 and one.token <= best.token * math.exp(2 * half),
        "pareto": on_front,
    }
    return {**row, **whole_run(planner, one)}


def whole_run(planner: Planner, one: Scored) -> dict[str, float]:
    """Time, GPU-hours and cost of all tokens, where they are given."""
    tokens, price = planner.inputs.get("tokens"), planner.inputs.get("price")
    if tokens is None:
        return {}
    hours = one.token * tokens / 3600
    run = {"time": one.token * tokens / one.layout.gpus, "gpu_hours": hours}
    return {**run, "cost": hours * price} if price is not None else run


def displayed(row: Numbers) -> dict[str, str]:
    """What a person reads of a row: degrees that matter, then the figures."""
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
    """Without the columns in which no row has anything to say."""
    silent = [name for name, usual in UNREMARKABLE.items() if all(row.get(name, usual) == usual for row in rows)]
    return [{name: text for name, text in row.items() if name not in silent} for row in rows]


def command_line(planner: Planner, layout: Layout) -> str:
    """The same layout as a question to `napkin step`."""
    inputs = planner.inputs
    words = [f"napkin step {inputs.shown['model'].text}", f"--hardware {inputs.shown['hardware'].text}"]
    for name, value in degrees(layout).items():
        if name == "sp":
            words += [] if value == (layout.tp > 1) else ["--sp" if value else "--no-sp"]
        elif name not in SETUP_DEFAULTS or str(value) != SETUP_DEFAULTS[name]:
            words.append(f"--{name} {value}")
    words.append(f"--seq {layout.seq}")
    for name in ("precision", "optimizer", "implementation", "stack"):
        if inputs.get(name) is not None and inputs.get(name) != SETUP_DEFAULTS.get(name):
            words.append(f"--{name} {inputs.shown[name].text}")
    return " ".join(words)

"""The published model nearest to a size, and its layout on a machine."""

from __future__ import annotations

import math

from napkin.architectures import build
from napkin.commands.command import ask, find
from napkin.commands.optimal.machine import planned
from napkin.commands.optimal.question import Available
from napkin.commands.signature import OptionText
from napkin.counting.params import params as counted
from napkin.errors import NapkinError
from napkin.inputs.model_file import preset_config
from napkin.inputs.presets import all_fields, preset
from napkin.operations.queries import has_scan
from napkin.record import record
from napkin.term import Term

FARTHEST, SAME = 0.25, 0.1
"""The largest differences of ln(parameters) that count as near and as the same size."""


@record
class ServingRate:
    """Result of serving a model on an accelerator: GPUs of a replica, concurrent requests, output token/s, USD per
    million output tokens (None: no price), and the command line."""

    gpus: int
    at_once: int
    rate: float
    cost: float | None
    command: str


@record
class NearestModel:
    """A published model, with its best layout in words and as a command (`step …`), "" if there is no machine; served:
    the result of serving it, None if not evaluated."""

    name: str
    params: int
    layout: str = ""
    command: str = ""
    served: ServingRate | None = None


def nearest(params: float) -> NearestModel | None:
    """Return the preset of a dense decoder without recurrence with the nearest published count (the latest among
    equals); None if none is near."""
    fields = dict(all_fields())
    sizes = {name: one.get("params_published", {}).get("total") for name, one in fields.items()}
    near = {name: abs(math.log(size / params)) for name, size in sizes.items() if isinstance(size, int)}

    def order(name: str) -> tuple[bool, int, float]:
        same = near[name] <= SAME
        return not same, -int(fields[name].get("published", 0)) if same else 0, near[name]

    for name in sorted((name for name in near if near[name] <= FARTHEST), key=order):
        model = build(preset_config(preset(name)))
        counts = counted(model)
        total = int(counts["params/total"].value)
        plain = len(model.stacks) == 1 and model.vision is None and not has_scan(model)
        if plain and counts["params/active"].value == total:
            return NearestModel(name, total)
    return None


def laid_out(machine: Available, name: str, params: int) -> NearestModel:
    """Return a model in the layout that the plan recommends on a machine; without one if none fits."""
    try:
        answer = planned(machine, name, None)
    except NapkinError:
        return NearestModel(name, params)
    chosen = next((row for row in answer.rows or () if row.get("recommended")), None)
    if chosen is None or "nearest" in answer.extra:
        return NearestModel(name, params)
    degrees = (
        f"{short} {chosen[short]}" for short in ("tp", "pp", "vp", "dp", "cp", "ep") if chosen.get(short, 1) != 1
    )
    return NearestModel(name, params, " · ".join((*degrees, f"ZeRO-{chosen['zero']}")), str(chosen["command"]))


PACE = "50ms"
"""Longest time of an output token at which serving is shown: 20 tokens a second for each user."""


def serving_rate(hardware: str, name: str, price: Term | None) -> ServingRate | None:
    """Return the result of `napkin serve` for a model on the fewest GPUs that hold it, with as many requests as meet
    PACE; None if it does not fit or is too slow."""
    given = {"model": name, "hardware": hardware, "max-tpot": PACE}
    if price is not None:
        given["price"] = f"{float(price.value):g}"
    try:
        answer = ask(find("serve"), {option: OptionText(text) for option, text in given.items()})
    except NapkinError:
        return None
    found = {path: float(term.value) for path, term in answer.by_path().items()}
    line = " ".join(("napkin serve", name, *(f"--{option} {text}" for option, text in list(given.items())[1:])))
    return ServingRate(
        round(found["serve/output_tokens_per_second"] / found["serve/output_tokens_per_second_per_gpu"]),
        int(found["serve/in_flight"]),
        found["serve/output_tokens_per_second"],
        found.get("serve/cost_per_million_output_tokens"),
        line,
    )

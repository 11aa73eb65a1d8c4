"""The nearest question that has an answer, where the one that was asked has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from napkin.cli.plan.exact import scored
from napkin.cli.plan.obstacles import broken_rules, largest_bucket
from napkin.cli.plan.question import Planner
from napkin.cli.plan.ranking import ranked
from napkin.errors import BROKEN, NapkinError
from napkin.formulas.capacity import bytes_per_param
from napkin.formulas.params import params
from napkin.inputs.plan import recompute
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.units import human

if TYPE_CHECKING:
    from napkin.search import Found, Request

DOUBLINGS = 17
"""From a node of 8 that reaches a million GPUs."""


def impossible(planner: Planner, request: Request, found: Found | None) -> Answer:
    """The nearest question that has an answer, with status 1."""
    capacity = planner.hardware.capacity
    reasons = []
    if found is not None and found.least is not None:
        reasons.append(
            f"none of {found.layouts:,} layouts fits {human(capacity, 'byte')}: the smallest takes "
            f"{human(found.least_used, 'byte')}{largest_bucket(request, found)}"
        )
    else:
        most = request.batch or request.most
        reasons += broken_rules(request) or [
            f"no layout of {request.gpus:,} GPUs divides the model and a step of at most {most:,} sequences as asked"
        ]
    near = _nearest(planner, request)
    if near is None:
        raise NapkinError(
            f"{request.model.name} on {request.gpus:,} × {planner.hardware.name}: {'; '.join(reasons)}",
            "no number of GPUs that was tried and no single relaxed option changes that",
            status=BROKEN,
        )
    what, other = near
    answer = ranked(planner, other, scored(planner, other.layout(other.ranked(1)[0])))
    answer.status, answer.verdict = BROKEN, "impossible"
    answer.title = f"{'; '.join(reasons)}\nnearest: {what}\n{answer.title}"
    answer.extra["reasons"] = reasons
    answer.extra["nearest"] = what
    return answer


def _nearest(planner: Planner, request: Request) -> tuple[str, Found] | None:
    """The question that changes least and has an answer: one degree moved, then another number of GPUs, then none
    of the degrees held, then both."""
    for what, other in _alternatives(planner, request):
        found = planner.find(other)
        if len(found):
            return what, found
    return None


TRIED = 16
"""Machines of a few nodes more or fewer that are tried before other sizes."""


def _alternatives(planner: Planner, request: Request) -> Iterator[tuple[str, Request]]:
    """Questions that change something, those that change least first, with what they change in words."""
    from napkin.search import near_values

    for name, value in request.only.items():
        rest = {key: held for key, held in request.only.items() if key != name}
        free = replace(request, only=rest)
        for near in near_values(free, name, value):
            yield f"--{name} {near} in place of {value}", replace(request, only={**rest, name: near})
    if len(request.recomputes) == 1 and request.recomputes[0].kind != "full":
        yield "--recompute full", replace(request, recomputes=(recompute("full"),))
    node, n = request.node, request.gpus
    whole = n // node * node
    near_machines = [whole + i * node for i in range(-TRIED, TRIED + 1) if whole + i * node > 0]
    powers = [node << i for i in range(DOUBLINGS)]
    doubled = [*(p for p in powers if p > n), *(p for p in reversed(powers) if p < n)]
    tried = sorted((m for m in near_machines if m != n), key=lambda m: abs(m - n))[:TRIED]
    least = _bytes_of_weights(request) / (planner.hardware.capacity or 1)
    for gpus in [*tried, *doubled]:
        if gpus >= least:
            yield f"--gpus {gpus:,} in place of {n:,}", replace(request, gpus=gpus)
    if request.only or request.below:
        yield "no degree held", replace(request, only={}, below={})
        for gpus in doubled:
            if gpus >= least:
                yield (
                    f"--gpus {gpus:,} in place of {n:,} and no degree held",
                    replace(request, only={}, below={}, gpus=gpus),
                )


def _bytes_of_weights(request: Request) -> float:
    """What all cards together hold under every layout: each weight and its master copy, once."""
    each = bytes_per_param(request.setup.precision, request.setup.optimizer)
    kept = sum(float(part.value) for part in each.parts if part.name.endswith(("/parameters", "/master")))
    return kept * float(params(request.model)["params/total"].value)

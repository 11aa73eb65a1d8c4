"""The nearest question that has an answer, where the one that was asked has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from napkin.commands.plan.exact import scored
from napkin.commands.plan.obstacles import broken_rules, largest_bucket
from napkin.commands.plan.question import Planner
from napkin.commands.plan.ranking import ranked
from napkin.counting.params import params
from napkin.errors import BROKEN, NapkinError
from napkin.footprint import capacity
from napkin.record import replace
from napkin.render.answer import Answer
from napkin.training.recomputation import recompute
from napkin.units import human

if TYPE_CHECKING:
    from napkin.planning.search import Found, Request

DOUBLINGS = 17
"""From a node of 8 that reaches a million GPUs."""


def impossible(planner: Planner, request: Request, found: Found | None) -> Answer:
    """The nearest question that has an answer, with status 1."""
    room = planner.hardware.capacity
    reasons = []
    if found is not None and found.least is not None:
        reasons.append(
            f"none of {found.layouts:,} layouts fits {human(room, 'byte')}: the smallest takes "
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


TRIED = 16
"""Machines of a few nodes more or fewer that are tried before other sizes."""


def _nearest(planner: Planner, request: Request) -> tuple[str, Found] | None:
    """The question that changes least and has an answer. Machines whose cards together cannot hold the states are
    passed over."""
    least = _bytes_of_states(request) / (planner.hardware.capacity or 1)
    for what, other in _alternatives(request):
        if other.gpus >= least:
            found = planner.find(other)
            if len(found):
                return what, found
    return None


def _alternatives(request: Request) -> Iterator[tuple[str, Request]]:
    """One degree moved, then another number of GPUs, then none of the degrees held, then both; what changes, in
    words."""
    yield from _moved(request)
    n = request.gpus
    near, far = _machines(n, request.node)
    for gpus in (*near, *far):
        yield f"--gpus {gpus:,} in place of {n:,}", replace(request, gpus=gpus)
    if request.only or request.below:
        released = replace(request, only={}, below={})
        yield "no degree held", released
        for gpus in far:
            yield f"--gpus {gpus:,} in place of {n:,} and no degree held", replace(released, gpus=gpus)


def _machines(n: int, node: int) -> tuple[list[int], list[int]]:
    """Other machines: of a few nodes more or fewer, nearest first; and doublings of a node, larger ones first."""
    whole = n // node * node
    around = (whole + i * node for i in range(-TRIED, TRIED + 1))
    near = sorted((m for m in around if m > 0 and m != n), key=lambda m: abs(m - n))[:TRIED]
    powers = [node << i for i in range(DOUBLINGS)]
    return near, [*(p for p in powers if p > n), *(p for p in reversed(powers) if p < n)]


def _moved(request: Request) -> Iterator[tuple[str, Request]]:
    """The question with one given degree at a value next to it, or all recomputed; and what changes, in words."""
    from napkin.planning.search import near_values

    for name, value in request.only.items():
        rest = {key: held for key, held in request.only.items() if key != name}
        for near in near_values(replace(request, only=rest), name, value):
            yield f"--{name} {near} in place of {value}", replace(request, only={**rest, name: near})
    if len(request.recomputes) == 1 and request.recomputes[0].kind != "full":
        yield "--recompute full", replace(request, recomputes=(recompute("full"),))


def _bytes_of_states(request: Request) -> float:
    """What all cards together hold under every layout: parameters, gradients, master copies and states, each once;
    without the states of optimizers whose bytes depend on the shapes."""
    policy, optimizer = request.setup.precision, request.setup.optimizer
    each = [capacity.width(form, "bytes").value for form in (policy.param, policy.grad, policy.master) if form]
    if not optimizer.factored:
        each = [capacity.bytes_per_param(policy, optimizer).value]
    return float(sum(each)) * float(params(request.model)["params/total"].value)

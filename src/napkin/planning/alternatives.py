"""The nearest question to the layout search that has an answer, if the one that was asked has none."""

from __future__ import annotations

from collections.abc import Iterator

from napkin.errors import UNDECIDED
from napkin.footprint.loading import loaded_by_each
from napkin.footprint.memory import least_states
from napkin.planning.fewest import LIMIT
from napkin.planning.fitting_layouts import FittingLayouts
from napkin.planning.grid import Request, forced, near_values
from napkin.planning.layouts import LayoutQuestion
from napkin.planning.obstacles import broken_rules, largest_bucket
from napkin.planning.verdicts import evaluate
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup
from napkin.units import human

TRIED = 16
"""Number of slightly larger or smaller machines that are tried before other sizes."""


def reasons(question: LayoutQuestion, request: Request, found: FittingLayouts | None) -> list[str]:
    """Return why the request has no layout, or none that fits."""
    capacity = question.hardware.capacity
    if found is not None and found.least is not None and found.least_used <= capacity:
        held = loaded_by_each(request.model, question.setup(found.least))
        return [
            f"none of {found.layouts:,} layouts fits {human(capacity, 'byte')} while loading: "
            f"{human(held, 'byte')} of weights on each GPU before ranks divide them, unless --loading host"
        ]
    if found is not None and found.least is not None:
        unsure = evaluate(request.model, question.setup(found.least), capacity).verdict == UNDECIDED
        return [
            f"none of {found.layouts:,} layout{'s' * (found.layouts != 1)} fits {human(capacity, 'byte')}: the "
            f"smallest takes {human(found.least_used, 'byte')}{largest_bucket(request, found.least)}"
            f"{', and is too close to call: its interval begins below that' * unsure}"
        ]
    most = request.batch or request.most
    return broken_rules(request) or [
        f"no layout of {request.gpus:,} GPU{'s' if request.gpus > 1 else ''} divides the model and a step of at most "
        f"{most:,} sequences as asked"
    ]


def nearest(question: LayoutQuestion, request: Request) -> tuple[str, FittingLayouts] | None:
    """Return the request with the smallest change that has an answer, and the change in words. Machines that cannot
    hold the states in total are skipped."""
    least = _bytes_of_states(request) / (question.hardware.capacity or 1)
    for what, other in _alternatives(request):
        if other.gpus >= least:
            found = question.find(other)
            if len(found):
                return what, found
    return None


def _alternatives(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield requests with small changes: one degree changed, then another number of GPUs, then all degrees free, then
    both; each with the change in words."""
    yield from _moved(request)
    n = request.gpus
    near, far = _machines(n, request.node)
    for gpus in (*near, *far):
        yield f"--gpus {gpus:,} in place of {n:,}", replace(request, gpus=gpus)
    held = forced(request.setup)
    if request.only != held or request.below:
        undivided = {} if request.setup.framework.divides.staged else {"pp": 1}
        released = replace(request, only=held, below=undivided)
        yield "no degree held", released
        for gpus in far:
            yield f"--gpus {gpus:,} in place of {n:,} and no degree held", replace(released, gpus=gpus)


def _machines(n: int, node: int) -> tuple[list[int], list[int]]:
    """Return other machines: a few nodes more or fewer, nearest first, up to the size that a search ends at; and
    doublings of a node, larger ones first."""
    whole = n // node * node
    around = (whole + i * node for i in range(-TRIED, TRIED + 1) if whole <= LIMIT)
    near = sorted((m for m in around if m > 0 and m != n), key=lambda m: abs(m - n))[:TRIED]
    powers = [node << i for i in range((LIMIT // node).bit_length())]
    return near, [*(p for p in powers if p > n), *(p for p in reversed(powers) if p < n)]


def _moved(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield the request with one given degree changed to a neighboring value, or with full recomputation, and the
    change in words."""
    for name, value in request.only.items():
        if name in forced(request.setup):
            continue
        rest = {key: held for key, held in request.only.items() if key != name}
        for near in near_values(replace(request, only=rest), name, value):
            yield f"--{name} {near} in place of {value}", replace(request, only={**rest, name: near})
    if len(request.recomputes) == 1 and request.recomputes[0].kind != "full":
        yield "--recompute full", replace(request, recomputes=(recompute("full"),))


def _bytes_of_states(request: Request) -> float:
    """Return the bytes that all GPUs together hold in any layout: weights as trained or frozen, gradients, master
    copies and optimizer states, each once."""
    return min(float(least_states(request.model, _undivided(one.setup))) for one in request.parts())


def _undivided(setup: Setup) -> Setup:
    """Return the setup on one rank that holds everything."""
    return replace(setup, layout=Layout(seq=setup.layout.seq))

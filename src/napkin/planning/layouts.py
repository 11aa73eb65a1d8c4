"""The layouts of one question on machines of any size: the search, and the exact evaluation of single layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from napkin.errors import UNDECIDED
from napkin.inputs.hardware import Hardware
from napkin.options.layout import OF_REPLICA
from napkin.planning.fewest import EIGHTHS, Fewest, fewest, machines
from napkin.planning.fitting_layouts import FittingLayouts
from napkin.planning.grid import Request
from napkin.planning.layout_time import Timed
from napkin.planning.search import Fastest, search
from napkin.planning.verdicts import FITS, evaluate
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.pipeline import Layers
from napkin.timing.rates import Rates
from napkin.timing.step import StepTime, layers_of_passes, step_of_passes
from napkin.timing.step_layout import StepLayout
from napkin.training.layout import Layout
from napkin.training.setup import Setup

COUNTED_TWICE = 2
"""Maximum ratio of counted to computed FLOPs: attention counts in full, and kernels compute half."""
EVALUATED, MORE = 1 << 9, 8
"""Number of fastest layouts to look at first if only the recommended one is needed, and the factor to extend it if none
fits."""
TRIED = 16
"""Number of layouts that surely fit in the array evaluation; the first one that also does in its exact evaluation is
taken."""


HalfWidth = Callable[[Setup, StepLayout, Rates, Term], float]
"""From a setup, the plan and rates of its step, and its time."""


@record
class LayoutQuestion:
    """A layout search for any number of GPUs.

    request         model, setup and the range of every degree        hardware    the accelerator
    timed           plan and rates of a setup                         peak        its dense peak, FLOP/s
    half_width      half-width of the interval of ln(time)           per_sequence  FLOPs of one sequence
    apart           how far ln(time) of two layouts may differ and the prediction cannot tell which is faster, by GPUs
    known, layers   caches of evaluated layouts, and of layer times that several layouts share
    least           least GPU-seconds per token by number of GPUs (search.py)
    chosen          recommended layout and number of layouts, by number of GPUs
    only_fits       the recommended layout is the fastest that surely fits, however fast others are: the question is on
                    how many GPUs one does
    """

    request: Request
    hardware: Hardware
    timed: Timed
    half_width: HalfWidth
    apart: Callable[[int], float]
    peak: float
    per_sequence: float
    known: dict[Layout, Scored]
    layers: dict[object, tuple[Layers, ...]]
    least: dict[int, float]
    chosen: dict[int, tuple[Scored | None, int]]
    only_fits: bool = False

    def fitting_only(self) -> LayoutQuestion:
        """Return the same search where fitting is all that is asked."""
        return replace(self, only_fits=True, chosen={})

    def on(self, gpus: int) -> Request:
        """Return the request for this many GPUs."""
        return replace(self.request, gpus=gpus)

    def find(self, request: Request) -> FittingLayouts:
        """Return every layout of the request, timed, that fits."""
        return search(request, self.timed, self.hardware.capacity)

    def fastest(self, request: Request) -> Fastest:
        """Return the search for the fastest layouts of the request that fit."""
        return Fastest(request, self.timed, self.hardware.capacity)

    def find_least(self, request: Request) -> FittingLayouts:
        """Return the layouts that fit; if none does, with the layout of least memory."""
        return search(request, self.timed, self.hardware.capacity, prune=False)

    def setup(self, layout: Layout) -> Setup:
        """Return the setup with this layout."""
        return replace(self.request.setup_with(int(layout.zero)), layout=layout)


@record
class Scored:
    """One layout, evaluated by the scalar formulas of `step` and `memory`.

    step  its time, with its parts
    used  bytes that a GPU reports as used     fit    whether they fit
    mfu   of the step                          token  GPU-seconds of one token
    """

    layout: Layout
    step: StepTime
    used: float
    fit: str
    mfu: float
    token: float

    @property
    def time(self) -> Term:
        return self.step.time

    def part(self, name: str) -> float:
        """Return the seconds of a part of the step."""
        return float(next(part.value for part in self.time.parts if part.name == name))


def scored(question: LayoutQuestion, layout: Layout) -> Scored:
    """Evaluate one layout exactly, as `step` and `memory` do."""
    if layout not in question.known:
        question.known[layout] = _evaluated(question, layout)
    return question.known[layout]


def half_of(question: LayoutQuestion, one: Scored) -> float:
    """Return the half-width of the interval of ln(time) of a layout, as `step` has it."""
    setup = question.setup(one.layout)
    return question.half_width(setup, *question.timed(setup), one.time)


def _timed_step(question: LayoutQuestion, layout: Layout) -> StepTime:
    """Return the time of a step; layouts that differ only in pipeline and data parallelism share their layers."""
    setup = question.setup(layout)
    passes = setup.passes(question.request.model)
    plan, rates = question.timed(setup)
    alike = replace(plan, pp=1, vp=1, dp=1, zero=0, shards=1, micro_batches=1, idle=1)
    key = alike, rates, setup.wakes, setup.precision
    if key not in question.layers:
        question.layers[key] = layers_of_passes(passes, plan, rates)
    return step_of_passes(passes, plan, rates, question.layers[key])


def _evaluated(question: LayoutQuestion, layout: Layout) -> Scored:
    model, setup = question.request.model, question.setup(layout)
    fit = evaluate(model, setup, question.hardware.capacity)
    return _of_memory(question, layout, fit.reported.used.value, fit.verdict)


def _of_memory(question: LayoutQuestion, layout: Layout, used: float, fit: str) -> Scored:
    """Return a layout of known memory with its time."""
    found = _timed_step(question, layout)
    seconds = found.time.value
    mfu = question.per_sequence * layout.global_batch / (question.peak * layout.gpus * seconds)
    token = layout.gpus * seconds / (layout.global_batch * layout.seq)
    return Scored(layout, found, used, fit, mfu, token)


def listed(question: LayoutQuestion, found: FittingLayouts, i: int) -> Scored:
    """Return one of the layouts found, with its memory from the array evaluation of the search."""
    layout = found.layout(i)
    if layout in question.known:
        return question.known[layout]
    return _of_memory(question, layout, int(found.used[i]), FITS if found.surely[i] else UNDECIDED)


def best(question: LayoutQuestion, found: FittingLayouts) -> Scored:
    """Evaluate the fastest of the layouts found exactly."""
    return scored(question, found.layout(found.ranked(1)[0]))


def recommended(question: LayoutQuestion, found: FittingLayouts, leader: Scored) -> Scored:
    """Return the fastest layout that surely fits if it is within the interval of the leader, else the leader: the
    prediction cannot distinguish the two, and one of them may run out of memory. Where fitting is all that is asked,
    it may be slower."""
    if leader.fit == FITS:
        return leader
    return next((one for one in _surely(question, found, leader) if one.fit == FITS), leader)


def _surely(question: LayoutQuestion, found: FittingLayouts, leader: Scored) -> Iterator[Scored]:
    """Yield the layouts within reach of the leader that surely fit by the arrays, the fastest first."""
    near = np.flatnonzero(found.surely & (found.score <= _furthest(question, found, leader)))
    for i in found.ranked(TRIED, near):
        yield scored(question, found.layout(i))


def _furthest(question: LayoutQuestion, found: FittingLayouts, leader: Scored) -> float:
    """Return the GPU-seconds per token up to which a layout is within reach: in the leader's interval, or any."""
    if question.only_fits:
        return math.inf
    return leader.token * math.exp(question.apart(found.request.gpus))


def quickly(question: LayoutQuestion, fastest: Fastest) -> Scored | None:
    """Return the result of `recommended` by looking only at the fastest layouts; None if none fits."""
    count = EVALUATED
    while True:
        found = fastest.found(count)
        count *= MORE
        if not len(found):
            if fastest.complete:
                return None
            continue
        leader = best(question, found)
        chosen = recommended(question, found, leader)
        enough = np.count_nonzero(found.surely) >= TRIED or fastest.reached >= _furthest(question, found, leader)
        if chosen.fit == FITS or fastest.complete or enough:
            return chosen


def chosen_on(question: LayoutQuestion, gpus: int) -> tuple[Scored | None, int]:
    """Return the recommended layout on this many GPUs (None if none fits) and the number of layouts."""
    if gpus not in question.chosen:
        _choose(question, gpus, lambda _: True)
    return question.chosen[gpus]


def _choose(question: LayoutQuestion, gpus: int, matters: Callable[[float], bool]) -> None:
    """Find the least GPU-seconds per token on this many GPUs, and, if `matters` says so, the recommended layout."""
    fastest = question.fastest(question.on(gpus))
    question.least[gpus] = fastest.least
    if matters(fastest.least):
        question.chosen[gpus] = quickly(question, fastest), fastest.layouts


def fewest_gpus(
    question: LayoutQuestion, enough: Callable[[Scored], bool], in_time: Callable[[int, float], bool]
) -> Fewest:
    """Return the fewest GPUs whose recommended layout is enough.

    in_time: whether this many GPUs, at this many GPU-seconds per token, can be enough; checked before memory is
    evaluated"""
    at_peak = question.per_sequence / question.request.seq / question.peak / COUNTED_TWICE

    def does(gpus: int) -> bool:
        if not in_time(gpus, question.least.get(gpus, at_peak)):
            return False
        if gpus not in question.chosen:
            _choose(question, gpus, lambda least: in_time(gpus, least))
        chosen, _ = question.chosen.get(gpus, (None, 0))
        return chosen is not None and enough(chosen)

    unit = math.prod(question.request.only.get(name, 1) for name in (*OF_REPLICA, "dp"))
    return fewest(does, machines(question.request.node, unit), EIGHTHS)

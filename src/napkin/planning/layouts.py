"""Layouts of one question on machines of any size: found, and one of them evaluated exactly."""

from __future__ import annotations

from collections.abc import Callable

from napkin.inputs.hardware import Hardware
from napkin.planning.search import Found, Request, Timed, search
from napkin.planning.verdicts import evaluate
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.step import step
from napkin.training.layout import Layout
from napkin.training.setup import Setup


@record
class LayoutQuestion:
    """What is searched, on a number of GPUs that is named later.

    request         model, setup and the freedom of every degree      hardware    the accelerator
    timed           plan and rates of a setup                         peak        its dense peak, FLOP/s
    half_width      half the interval of ln t for a number of GPUs    per_sequence  FLOPs of one sequence
    implementation  of the model
    """

    request: Request
    hardware: Hardware
    timed: Timed
    half_width: Callable[[int], float]
    peak: float
    per_sequence: float
    implementation: str

    def on(self, gpus: int) -> Request:
        """Return the request for this many GPUs."""
        return replace(self.request, gpus=gpus)

    def find(self, request: Request) -> Found:
        """Return every layout of the request, timed, that fits."""
        return search(request, self.timed, self.hardware.capacity)

    def setup(self, layout: Layout) -> Setup:
        """Return the setup with this layout."""
        return replace(self.request.setup, layout=layout)


@record
class Scored:
    """One layout by the scalar formulas of `step` and `memory`.

    used  bytes that a GPU reports as used     fit    whether they fit
    mfu   of the step                          token  GPU-seconds of one token
    """

    layout: Layout
    time: Term
    used: float
    fit: str
    mfu: float
    token: float

    def part(self, name: str) -> float:
        """Return the seconds of a part of the step."""
        return float(next(part.value for part in self.time.parts if part.name == name))


def scored(question: LayoutQuestion, layout: Layout) -> Scored:
    """Evaluate one layout exactly: what `step` and `memory` answer for it."""
    model, setup = question.request.model, question.setup(layout)
    found = step(model, *question.timed(setup))
    fit = evaluate(model, setup, question.implementation, question.hardware.capacity, False)
    seconds = found.time.value
    mfu = question.per_sequence * layout.global_batch / (question.peak * layout.gpus * seconds)
    token = layout.gpus * seconds / (layout.global_batch * layout.seq)
    return Scored(layout, found.time, fit.reported.used.value, fit.verdict, mfu, token)


def best(question: LayoutQuestion, found: Found) -> Scored:
    """Evaluate the best of the layouts found exactly."""
    return scored(question, found.layout(found.ranked(1)[0]))


def fewest_gpus(question: LayoutQuestion, tokens: float, limit: float, doublings: int) -> int | None:
    """Return the fewest GPUs that train `tokens` within `limit` seconds: nodes are doubled until it is done in time,
    then the number is narrowed in eighths; None where no doubling is enough."""
    node = question.request.node

    def done(gpus: int) -> bool:
        found = question.find(question.on(gpus))
        return bool(len(found)) and float(found.score.min()) * tokens / gpus <= limit

    high = next((node << doubling for doubling in range(doublings + 1) if done(node << doubling)), None)
    if high is None:
        return None
    steps = [high // 2 + i * high // 16 for i in range(1, 8) if high // 2 * i % 8 == 0 and high > 16 * node]
    while steps:
        middle = steps[len(steps) // 2]
        if done(middle):
            high, steps = middle, [n for n in steps if n < middle]
        else:
            steps = [n for n in steps if n > middle]
    return high

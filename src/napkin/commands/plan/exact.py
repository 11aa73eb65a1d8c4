"""One layout by the exact path: what `step` and `memory` answer for it."""

from __future__ import annotations

from napkin.commands.plan.question import Planner
from napkin.commands.predicted import memory_terms, utilisation
from napkin.planning.fit import evaluate
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.step import step
from napkin.training.layout import Layout


@record
class Scored:
    """One layout by the scalar formulas of `step` and `memory`."""

    layout: Layout
    time: Term
    used: float
    fit: str
    mfu: float
    token: float
    """GPU-seconds of one token."""

    def part(self, name: str) -> float:
        return float(next(part.value for part in self.time.parts if part.name == name))


def scored(planner: Planner, layout: Layout) -> Scored:
    """The exact path: what `step` and `memory` answer for this layout."""
    setup = replace(planner.request.setup, layout=layout)
    found = step(planner.request.model, *planner.timed(setup))
    word = planner.inputs.get("implementation")
    fit = evaluate(planner.request.model, setup, word, planner.hardware.capacity, False)
    seconds = found.time.value
    mfu = planner.per_sequence * layout.global_batch / (planner.typical.peak.value * layout.gpus * seconds)
    token = layout.gpus * seconds / (layout.global_batch * layout.seq)
    return Scored(layout, found.time, fit.reported.used.value, fit.verdict, mfu, token)


def step_terms(planner: Planner, layout: Layout) -> list[Term]:
    """The layout as `step` publishes it, and what it holds."""
    setup = replace(planner.request.setup, layout=layout)
    whole = step(planner.request.model, *planner.timed(setup))
    shown = utilisation(planner.request.model, setup, planner.typical.peak, whole)
    return [whole.time, *whole.time.parts, *shown, *memory_terms(planner.inputs, planner.request.model, setup)]

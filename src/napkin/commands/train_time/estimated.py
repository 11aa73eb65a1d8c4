"""`train-time` without --mfu: the MFU estimated from published runs or from the step model, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.elementwise import Number
from napkin.evidence.figures import prices
from napkin.evidence.predictions import runs
from napkin.evidence.predictions.run_estimate import StepEstimate, intervals, of_step, solved
from napkin.evidence.rates.constants import deviations
from napkin.inputs.hardware import Hardware
from napkin.record import record
from napkin.render.answer import Answer, Shown
from napkin.term import Term

TYPE_CHECKING = False  # mypy takes it as true; these are loaded if a step is predicted
if TYPE_CHECKING:
    from napkin.commands.question.step_model import StepQuestion
    from napkin.commands.train_time.question import TrainTimeQuestion


@record
class Estimated:
    """A run solved with an estimated MFU: its quantities, the estimate, and the step that it is based on, if any."""

    found: Mapping[str, Term]
    estimate: runs.Estimate
    step: StepEstimate | None


def estimated(question: TrainTimeQuestion, confidence: float) -> Estimated:
    """Solve a run with an MFU estimated from published runs, or from the step of its layout."""
    stepped = _of_step(question, question.step, confidence) if question.step is not None else None
    found, estimate = solved(
        question.known,
        question.hardware,
        question.peak,
        question.budget,
        question.price,
        confidence,
        question.goodput,
        stepped.estimate if stepped is not None else None,
    )
    return Estimated(found, estimate, stepped)


def add_estimate(answer: Answer, question: TrainTimeQuestion, run: Estimated, confidence: float) -> None:
    """Add the intervals and the basis of the estimate to the answer."""
    found, estimate, hardware, goodput = run.found, run.estimate, question.hardware, question.goodput
    answer.inputs["mfu"] = Shown(found["mfu"].value, None, "evidence")
    if run.step is not None:
        answer.notes.append(
            f"MFU from the step model ({run.step.seconds:.3g} s a step) times the goodput; "
            f"near: {', '.join(run.step.near)}"
        )
    answer.intervals |= intervals(question.known, found, answer.terms, estimate)
    answer.terms = (*answer.terms, found["mfu/while_running"])
    if goodput.is_spread:
        answer.intervals["goodput"] = goodput.ends(deviations(confidence))
    if run.step is not None and "time/uninterrupted" in answer.intervals:
        seconds, factor = found["time/uninterrupted"].value, math.exp(run.step.half)
        answer.intervals["time/uninterrupted"] = (seconds / factor, seconds * factor)
    answer.notes += _remarks(estimate, *answer.intervals["mfu"], found["mfu"].value)
    if run.step is None:
        answer.notes.append(
            "this is what published runs reached, whatever their layout; napkin plan with the same model, GPUs and "
            "tokens takes the best layout, and is mostly shorter for it"
        )
    if question.price is None:
        answer.notes += _price(hardware)
    same = runs.published(float(found["flops"].value), float(found["tokens"].value), hardware)
    answer.extra["published_runs"] = [
        {"model": one.model, "gpu_hours": one.hours, "hours_basis": one.basis, "id": one.id, "source": one.source}
        for one in same
    ]
    answer.notes += [f"published: {one.model} took {one.hours:,.0f} GPU-hours ({one.source})" for one in same]
    answer.extra["evidence"] = [
        {"model": one.row.model, "mfu": round(math.exp(one.log_u), 4), "hours_basis": one.row.basis, "id": one.row.id}
        for one in estimate.similar
    ]


def _of_step(question: TrainTimeQuestion, step: StepQuestion, confidence: float) -> StepEstimate:
    """Return the estimate of the step model for the layout of that step."""
    return of_step(
        step.timed,
        step.prediction,
        step.hardware,
        question.known["per_token"].value,
        confidence,
        step.stack_named,
        question.goodput,
        question.excess,
    )


def _remarks(estimate: runs.Estimate, low: Number, high: Number, mfu: float) -> list[str]:
    """Return the basis of the estimate, in words."""
    notes = []
    if estimate.similar:
        notes = [
            f"MFU {mfu:.2f} is estimated from {estimate.runs} published whole runs of {estimate.teams} teams; "
            f"{estimate.level:.0%} of such runs lie between {float(low):.2f} and {float(high):.2f}",
            f"most similar: {estimate.named()}",
            "single steps reach more: --mfu takes a figure of your own",
        ]
    return [*notes, f"the interval is wider: {estimate.wider}"] if estimate.wider else notes


def _price(hardware: Hardware) -> list[str]:
    """Return a note on the rental price of such GPUs, if it is known."""
    line = prices.remark(hardware.slug, hardware.name)
    return [line] if line else []

"""A measured step compared with the predicted one, and single causes that would explain the gap."""

from __future__ import annotations

import math

from napkin.evidence.predictions.one_run import StepPrediction
from napkin.record import record, replace
from napkin.term import SEEN, TRUE, Term, divide, leaf, multiply
from napkin.timing.step import step_of_passes
from napkin.training.layout import Layout

EXPLAINS = 0.06
"""A cause explains a gap if its own prediction is within this of the measurement (ln): the model's error near home."""
NOISY = 0.1
"""Share of slow steps from which the log itself shows interruptions."""


COMPUTE, BOUND, COMMUNICATION = "step/compute", "step/memory_bound", "step/communication"


@record
class Cause:
    """A single cause that would explain a gap. term: path of the part of the predicted step that it changes; "" if
    unknown. says: a sentence."""

    term: str
    says: str


@record
class Gap:
    """A measured and a predicted step.

    measured, predicted  seconds of a step     ratio   measured over predicted
    half    half-width of the prediction's interval in ln(time)    causes  possible explanations
    """

    measured: Term
    predicted: Term
    ratio: Term
    half: float
    causes: tuple[Cause, ...]

    @property
    def is_within(self) -> bool:
        """Whether the gap is within the prediction's interval."""
        return abs(math.log(self.ratio.value)) <= self.half


def gap_of(layout: Layout, prediction: StepPrediction, rate: Term, confidence: float, stack_named: bool) -> Gap:
    """Compare a measured rate, in tokens/s/GPU, with the step model's prediction for the layout."""
    found = prediction.step().time
    seconds = found.value
    tokens = leaf("tokens_per_step", layout.global_batch * layout.seq, "token", TRUE)
    gpus = leaf("gpus", layout.gpus, "GPU", TRUE)
    measured = divide("step/seen", tokens, multiply("tokens_per_second/seen", rate, gpus))
    predicted = leaf("step/predicted", seconds, "second", SEEN, "the step model; napkin step explains it")
    half, _ = prediction.half_width(confidence, named=stack_named, found=found)
    causes = tuple(causes_of(prediction, math.log(measured.value)))
    return Gap(measured, predicted, divide("gap", measured, predicted), half, causes)


def causes_of(prediction: StepPrediction, measured: float) -> list[Cause]:
    """Return the single causes whose own prediction meets the measured step (ln seconds)."""
    plan, rates = prediction.plan, prediction.rates
    now = math.log(step_of_passes(prediction.passes, plan, rates).time.value)
    if abs(measured - now) <= EXPLAINS:
        return []
    others = {
        "every layer is recomputed": (COMPUTE, replace(plan, layers_recomputed=1), rates),
        "nothing is recomputed": (COMPUTE, replace(plan, layers_recomputed=0, attention_recomputed=0), rates),
        "attention writes its scores to memory (no fused kernel)": (BOUND, replace(plan, flash=0), rates),
        "no communication is hidden": (
            COMMUNICATION,
            plan,
            replace(
                rates,
                **dict.fromkeys(("tensor_exposed", "pipeline_exposed", "context_exposed", "expert_exposed"), 1),
                **dict.fromkeys(("data_overlap", "gather_overlap"), 0),
            ),
        ),
        "the network gives half its rate": (COMMUNICATION, plan, replace(rates, network=rates.network / 2)),
        "the network gives a tenth of its rate": (COMMUNICATION, plan, replace(rates, network=rates.network / 10)),
        "matmuls run at 0.8 of their rate (clocks, power, odd shapes)": (
            COMPUTE,
            plan,
            replace(rates, matmul=0.8 * rates.matmul, matmul_wide=0.8 * rates.matmul_wide),
        ),
        "elementwise kernels are not fused": (BOUND, plan, replace(rates, elementwise=2 * rates.elementwise)),
    }
    meets: list[tuple[float, str, str]] = []
    for cause, (term, other, reached) in others.items():
        then = math.log(step_of_passes(prediction.passes, other, reached).time.value)
        if abs(then - now) > EXPLAINS / 2 and abs(then - measured) <= EXPLAINS:
            meets.append((abs(then - measured), term, cause))
    if meets:
        return [Cause(term, f"the gap is what it would take if {cause}") for _, term, cause in sorted(meets)[:3]]
    if measured > now:
        return [
            Cause(
                "", "no single cause explains the gap: look at data loading, stragglers, checkpoints inside the steps"
            )
        ]
    return [
        Cause(
            "",
            "no single cause explains a step that fast: whole-job tokens taken for one GPU's, or fewer GPUs than ran?",
        )
    ]


def spread_note(steps: int, slow: float) -> str:
    """Return a note on the spread of a log: `steps` lines, a share `slow` of them slow."""
    line = f"the log: median of {steps:,} lines after warm-up"
    return line + (
        f"; {slow:.0%} of the steps take 1.2 × the median or more: something interrupts" if slow >= NOISY else ""
    )

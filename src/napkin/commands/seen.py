"""Seen against predicted: a measured rate beside the step model's, and which single cause would explain the gap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from napkin.commands.command import Inputs
from napkin.commands.confidence import read_confidence
from napkin.operations.model import Model
from napkin.options.training import STEP_MODEL
from napkin.render.answer import Answer
from napkin.term import SEEN, TRUE, Term, divide, leaf, multiply

if TYPE_CHECKING:
    from napkin.evidence.single import StepInputs

DESCRIBES = tuple(name for name in (*STEP_MODEL, "interval") if name not in ("recompute", "global-batch"))
"""Options that ask for a prediction beside the rate; recomputation and the batch serve the rate itself too."""
EXPLAINS = 0.06
"""A cause explains a gap that its own prediction meets within so much (ln): the model's error on near layouts."""
NOISY = 0.1
"""Share of slow steps from which on the log itself tells that something interrupts."""


def wanted(inputs: Inputs, from_file: bool) -> bool:
    """Whether a prediction is due: a whole log, or a layout, of a model whose GPUs and batch are known."""
    described = from_file or any(name in inputs for name in DESCRIBES)
    known = all(inputs.get(name) is not None for name in ("model", "gpus", "global-batch"))
    return described and known


def beside(answer: Answer, inputs: Inputs, model: Model, rate: Term) -> None:
    """Add the predicted step, the gap, and what would explain it."""
    from napkin.commands.machine import read_hardware
    from napkin.commands.predicted import read_step_model
    from napkin.commands.setup import read_setup
    from napkin.options.training import SETUP_DEFAULTS
    from napkin.timing.step import step

    for name, text in SETUP_DEFAULTS.items():
        if inputs.get(name) is None:
            inputs.default(name, text)
    setup = read_setup(inputs, model)
    asked = read_step_model(inputs, model, setup, read_hardware(inputs))
    predicted = step(model, asked.plan, asked.rates).time
    layout = setup.layout
    tokens = leaf("tokens_per_step", layout.global_batch * layout.seq, "token", TRUE)
    gpus = leaf("gpus", layout.gpus, "GPU", TRUE)
    seen = divide("step/seen", tokens, multiply("tokens_per_second/seen", rate, gpus))
    expected = leaf("step/predicted", predicted.value, "second", SEEN, "the step model; napkin step explains it")
    gap = divide("gap", seen, expected)
    half, _ = asked.half_width(read_confidence(inputs), named="stack" in inputs)
    answer.terms = (*answer.terms, seen, expected, gap)
    answer.intervals["step/predicted"] = (expected.value / math.exp(half), expected.value * math.exp(half))
    away = math.log(gap.value)
    words = f"seen {seen.value:.4g} s a step, predicted {expected.value:.4g} s (×/÷ {math.exp(half):.2f})"
    if abs(away) <= half:
        inputs.note(f"{words}: within what such predictions miss by")
    else:
        inputs.note(f"{words}: {'slower' if away > 0 else 'faster'} than nine in ten such steps")
    found = causes(model, asked, math.log(seen.value))
    if abs(away) > half or any("what it would take" in line for line in found):
        answer.notes += found


def causes(model: Model, asked: StepInputs, seen: float) -> list[str]:
    """The single causes whose own prediction meets the step that was seen (ln seconds)."""
    from napkin.record import replace
    from napkin.timing.step import step

    plan, rates = asked.plan, asked.rates
    now = math.log(step(model, plan, rates).time.value)
    if abs(seen - now) <= EXPLAINS:
        return []
    slower = {
        "every layer is recomputed": (replace(plan, layers_recomputed=1), rates),
        "nothing is recomputed": (replace(plan, layers_recomputed=0, attention_recomputed=0), rates),
        "attention writes its scores to memory (no fused kernel)": (replace(plan, flash=0), rates),
        "no communication is hidden": (
            plan,
            replace(rates, tensor_exposed=1, pipeline_exposed=1, context_exposed=1, data_overlap=0),
        ),
        "the network gives half its rate": (plan, replace(rates, network=rates.network / 2)),
        "the network gives a tenth of its rate": (plan, replace(rates, network=rates.network / 10)),
        "products run at 0.8 of their rate (clocks, power, odd shapes)": (
            plan,
            replace(rates, matmul=0.8 * rates.matmul, matmul_wide=0.8 * rates.matmul_wide),
        ),
        "elementwise kernels are not fused": (plan, replace(rates, elementwise=2 * rates.elementwise)),
    }
    meets: list[tuple[float, str]] = []
    for cause, (other, reached) in slower.items():
        then = math.log(step(model, other, reached).time.value)
        if abs(then - now) > EXPLAINS / 2 and abs(then - seen) <= EXPLAINS:
            meets.append((abs(then - seen), cause))
    if meets:
        return [f"the gap is what it would take if {cause}" for _, cause in sorted(meets)[:3]]
    if seen > now:
        return ["no single cause explains the gap: look at data loading, stragglers, checkpoints inside the steps"]
    return ["no single cause explains a step that fast: whole-job tokens taken for one GPU's, or fewer GPUs than ran?"]


def spread_note(steps: int, slow: float) -> str:
    """What the log's own spread says."""
    line = f"the log: median of {steps:,} lines after warm-up"
    return line + (
        f"; {slow:.0%} of the steps take 1.2 × the median or more: something interrupts" if slow >= NOISY else ""
    )

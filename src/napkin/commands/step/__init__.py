"""`napkin step`: the time of one training step, its parts, what limits it, and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.question.layout import divisions
from napkin.commands.question.machine import RATES, WHICH
from napkin.commands.question.model import read_model
from napkin.commands.question.step_model import StepQuestion, memory_terms, read_step
from napkin.commands.question.tasks import read_whether_rollout
from napkin.commands.question.usual_stack import read_whose_model
from napkin.commands.screens.step import screen
from napkin.counting.utilization import UNMASKED
from napkin.evidence.intervals.steps import DESCRIBED, MEASURED, UNKNOWN
from napkin.evidence.predictions.utilization import PATHS, utilization_terms
from napkin.evidence.software import stacks
from napkin.inputs.hardware import Hardware
from napkin.operations.queries import has_scan
from napkin.options.layout import STAGE_OPTIONS
from napkin.options.model import MODEL_OPTIONS, PADDED, PREDICTING
from napkin.options.output import DRAWS
from napkin.options.rollout import ROLLOUT
from napkin.options.training import RATE_OPTIONS, SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.render.answer import Answer
from napkin.term import Term
from napkin.timing.step import StepTime
from napkin.units import human

BINDS = {
    "compute": "compute",
    "memory_bound": "memory",
    "communication": "communication",
    "bubble": "bubble",
    "optimizer": "optimizer",
    "overhead": "overhead",
}


def run(inputs: Inputs) -> Answer:
    """Answer for a model, a layout and an accelerator."""
    if read_whether_rollout(inputs):
        from napkin.commands.rollout.answer import run_step

        return run_step(inputs)
    question = read(inputs)
    utilized = any(inputs.wants(path) for path in PATHS)
    ranged = utilized or any(inputs.wants(path) for path in ("step/time", "step/low", "step/high"))
    return answer(question, inputs.wants("memory/total"), utilized, inputs.wants("plot"), ranged)


def read(inputs: Inputs) -> StepQuestion:
    """Read the question."""
    inputs.need_all({"model": "which model?", "hardware": WHICH})
    question = read_step(inputs, read_model(inputs), (*RATES, "memory-size"))
    read_whose_model(inputs, question.setup, question.prediction.stack.name)
    for note in _assumed_links(question.hardware, int(question.setup.layout.gpus)):
        inputs.note(note)
    if "attention" not in inputs and question.prediction.kernel != inputs.text("attention"):
        inputs.record("attention", question.prediction.kernel, "derived")  # the software's own
    return question


def answer(
    question: StepQuestion, weighed: bool = True, utilized: bool = True, draw: bool = False, ranged: bool = True
) -> Answer:
    """Answer with the time of the step and its parts. weighed: include memory; utilized: include MFU, HFU and the
    screen; draw: include pictures; ranged: include the intervals, which take further predictions."""
    model, setup, prediction = question.model, question.setup, question.prediction
    found = prediction.step()
    terms = [found.time, *parts_of(found)]
    if utilized:
        terms += utilization_terms(model, setup, prediction.peak, found)
    fit: str | None = None
    notes: list[str] = []
    if weighed:
        memory, fit, notes = memory_terms(model, setup, question.hardware.capacity)
        terms += [*memory, question.hardware.term("capacity", "memory/capacity", "byte")]
    answer = Answer("step", terms, notes=notes, verdict=_binding(found))
    if fit is not None:
        answer.extra["fit"] = fit
    if any(term.value > 1 for term in terms if term.name == "mfu"):
        answer.notes.append(f"{UNMASKED}; mfu/exact does not count it")
    half = _add_interval(answer, question, found.time) if ranged else 0.0
    if utilized:
        answer.screen = screen(question, answer, found.time.parts, fit)
    if draw:
        from napkin.commands.step.timeline import charts

        answer.plot = charts(found, prediction.plan, f"where the time goes: {_title(question)}", half)
    return answer


def _add_interval(answer: Answer, question: StepQuestion, found: Term) -> float:
    """Add the intervals and the evidence that they rest on; return their half-width in ln(time). found: the time."""
    half, close = question.prediction.half_width(question.confidence, named=question.stack_named, found=found)
    _add_ends(answer, half)
    answer.extra["evidence"] = [
        {"id": one.id, "source": one.source, "distance": round(far, 2), "error": round(math.expm1(one.error), 4)}
        for far, one in close
    ]
    answer.notes += _remarks(question, half, [one.id for _, one in close])
    return half


def _assumed_links(hardware: Hardware, gpus: int) -> list[str]:
    """Return notes on links or networks whose rate is unknown and assumed."""
    from napkin.evidence.rates.machines import LINKLESS, SLOWEST_NETWORK, gpus_per_node, is_bridge_unstated

    notes = []
    if gpus > 1 and not hardware.link_bandwidth:
        notes.append(f"{hardware.name}: its link is not known, {human(LINKLESS, 'byte/s')} assumed; --link-bandwidth")
    elif gpus > 1 and is_bridge_unstated(hardware):
        rate = human(hardware.link_bandwidth or 0.0, "byte/s")
        notes.append(f"{hardware.name}: joined by its slots, without the bridge; with it --link-bandwidth '{rate}'")
    if gpus > gpus_per_node(hardware) and not hardware.nic_bandwidth:
        slowest = human(SLOWEST_NETWORK, "byte/s")
        notes.append(f"{hardware.name}: its network is not known, {slowest} assumed; --network-bandwidth")
    return notes


def parts_of(found: StepTime) -> list[Term]:
    """Return the parts of the step, two levels deep."""
    listed = []
    for part in found.time.parts:
        listed.append(part)
        listed += [inner for inner in part.parts if inner.name.startswith("step/")]
    return listed


def _add_ends(answer: Answer, half: float) -> None:
    """Add the intervals; half: their half-width in ln(time)."""
    factor = math.exp(half)
    for term in answer.terms:
        if term.name in ("step/time", "mfu", "mfu/exact", "hfu", "tokens_per_second_per_gpu"):
            answer.intervals[term.name] = (term.value / factor, term.value * factor)


def _binding(found: StepTime) -> str:
    """Return what limits the largest part of the step."""
    parts = {part.name.removeprefix("step/"): part.value for part in found.time.parts}
    return BINDS[max(BINDS, key=lambda name: parts[name])]


def _title(question: StepQuestion) -> str:
    """Return the question in one line."""
    layout = question.setup.layout
    ways = divisions(layout)
    return (
        f"one step of {question.model.name}, {layout.global_batch:,} × {layout.seq:,} tokens on {layout.gpus:,} × "
        f"{question.hardware.name}{f' ({ways})' if ways else ''}"
    )


SAYS = {
    MEASURED: "measured, published steps of {} on such chips",
    DESCRIBED: "described, the code of {} is known and no published step of it ran on such chips",
    UNKNOWN: "unknown software, as wide as steps of software that was not known",
}
"""Class of evidence → text of the note; {}: the software."""


def _remarks(question: StepQuestion, half: float, nearest: Sequence[str]) -> list[str]:
    """Return notes on what the interval rests on; nearest: the most similar published steps."""
    notes = [
        f"{question.confidence:.0%} interval ×/÷ {math.exp(half):.2f}, from published steps whose source was held out "
        f"when the constants were fitted; the nearest: {', '.join(nearest)}",
        f"class of evidence: {SAYS[question.prediction.evidence].format(question.prediction.stack.name)}",
    ]
    if not question.stack_named:
        stack = question.prediction.stack.name
        word = "the middle of all software" if stack == stacks.UNKNOWN else f"taken to be {stack}"
        notes.append(f"--stack is not given: {word}, and the interval is wider for it")
    if has_scan(question.model):
        notes.append("scans are counted by their bytes and matmuls; no published step checks that")
    if question.model.experts:
        notes.append("tokens are assumed to spread evenly over experts")
    return notes


COMMAND = Command(
    "step",
    "Time of one training step: compute, memory traffic, communication, pipeline bubble, optimizer",
    run,
    brief="Time of one training step, and where it goes",
    options=(
        *MODEL_OPTIONS,
        *PADDED,
        *PREDICTING,
        *SETUP_OPTIONS,
        *STATE_OPTIONS,
        "loading",
        *ROLLOUT,
        *STAGE_OPTIONS,
        "hardware",
        "hardware-file",
        "profile",
        *RATE_OPTIONS,
        "confidence",
        *DRAWS,
    ),
    arguments=("model",),
    verdicts=tuple(BINDS.values()),
    defaults={**SETUP_DEFAULTS, "confidence": "90"},
    examples=(
        "step llama3-70b --tp 8 --pp 4 --dp 32 --global-batch 1024 --seq 8192 --hardware h100",
        "step llama3-8b --gpus 64 --zero 3 --micro-batch 2 --seq 8192 --hardware a100 --stack fsdp-compiled",
        "step llama3-70b --tp 8 --pp 4 --vp 5 --gpus 1024 --global-batch 512 --seq 8192 --hardware h100 --explain",
    ),
)

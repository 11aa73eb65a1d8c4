"""`napkin step`: seconds of one training step, where they go, what binds, and how sure that is."""

from __future__ import annotations

import math

from napkin.commands.command import Command, Inputs
from napkin.commands.confidence import read_confidence
from napkin.commands.layout import divisions
from napkin.commands.machine import read_hardware
from napkin.commands.model import read_model
from napkin.commands.predicted import memory_terms, read_step_model, utilisation
from napkin.commands.setup import read_setup
from napkin.footprint.setup import Setup
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.operations.recurrence import Scan
from napkin.options.layout import STAGE_OPTIONS
from napkin.options.model import MODEL_OPTIONS, PADDED
from napkin.options.output import DRAWS
from napkin.options.training import SETUP_DEFAULTS, SETUP_OPTIONS
from napkin.render.answer import Answer
from napkin.term import Term
from napkin.timing.step import StepTime, step
from napkin.units import human

BINDS = {"compute": "compute", "memory_bound": "memory", "communication": "communication", "bubble": "bubble"}


def run(inputs: Inputs) -> Answer:
    model = read_model(inputs)
    setup = read_setup(inputs, model)
    hardware = read_hardware(inputs)
    level = read_confidence(inputs)
    asked = read_step_model(inputs, model, setup, hardware)
    _assumed_links(inputs, hardware, setup.layout.gpus)
    inputs.record("attention", asked.kernel, inputs.origin("attention"))
    found = step(model, asked.plan, asked.rates)
    half, close = asked.half_width(level, named="stack" in inputs)
    terms = [found.time, *parts_of(found), *utilisation(model, setup, asked.peak, found)]
    if inputs.wants("memory/total"):
        terms += memory_terms(inputs, model, setup, hardware.capacity)
    answer = Answer("step", _title(model, setup, hardware), terms)
    answer.verdict = _binding(found)
    if next(term.value for term in terms if term.name == "mfu") > 1:
        inputs.note("mfu counts attention's full square, which no kernel computes here; mfu/exact the allowed pairs")
    _ends(answer, half)
    answer.extra["evidence"] = [
        {"id": one.id, "source": one.source, "distance": round(far, 2), "error": round(math.expm1(one.error), 4)}
        for far, one in close
    ]
    answer.pictures = tuple(_bars(found))
    _remark(inputs, model, asked.stack.name, half, level, [one.id for _, one in close])
    if inputs.get("plot"):
        from napkin.commands.timeline import charts

        answer.plot = charts(found, asked.plan, _title(model, setup, hardware))
    return answer


def _assumed_links(inputs: Inputs, hardware: Hardware, gpus: int) -> None:
    """What is taken for a link or network that nobody states, said aloud."""
    from napkin.evidence.rates import LINKLESS, SLOWEST_NETWORK

    if gpus > 1 and not hardware.link_bandwidth:
        inputs.note(f"{hardware.name}: its link is not known, {human(LINKLESS, 'byte/s')} assumed; --link-bandwidth")
    if gpus > (hardware.devices_per_node or 8) and not hardware.nic_bandwidth:
        slowest = human(SLOWEST_NETWORK, "byte/s")
        inputs.note(f"{hardware.name}: its network is not known, {slowest} assumed; --network-bandwidth")


def parts_of(found: StepTime) -> list[Term]:
    """The parts of the step and what they are made of, two levels deep."""
    listed = []
    for part in found.time.parts:
        listed.append(part)
        listed += [inner for inner in part.parts if inner.name.startswith("step/")]
    return listed


def _ends(answer: Answer, half: float) -> None:
    factor = math.exp(half)
    for term in answer.terms:
        if term.name in ("step/time", "mfu", "mfu/exact", "hfu", "tokens_per_second_per_gpu"):
            answer.intervals[term.name] = (term.value / factor, term.value * factor)


def _binding(found: StepTime) -> str:
    """What the largest part of the step waits for."""
    parts = {part.name.removeprefix("step/"): part.value for part in found.time.parts}
    return BINDS[max(BINDS, key=lambda name: parts[name])]


def _bars(found: StepTime) -> list[str]:
    """The breakdown as bars of text."""
    whole = found.time.value
    lines = []
    for part in found.time.parts:
        share = part.value / whole
        lines.append(f"  {part.name.removeprefix('step/'):14} {share:6.1%}  {'█' * round(40 * share)}")
    return lines


def _title(model: Model, setup: Setup, hardware: Hardware) -> str:
    layout = setup.layout
    ways = divisions(layout)
    return (
        f"one step of {model.name}, {layout.global_batch:,} × {layout.seq:,} tokens on {layout.gpus:,} × "
        f"{hardware.name}{f' ({ways})' if ways else ''}"
    )


def _remark(inputs: Inputs, model: Model, stack: str, half: float, level: float, names: list[str]) -> None:
    inputs.note(
        f"{level:.0%} interval ×/÷ {math.exp(half):.2f}, from published steps whose source the constants never saw; "
        f"the nearest: {', '.join(names)}"
    )
    if "stack" not in inputs:
        word = "the middle of all software" if stack == "unknown" else f"taken to be {stack}"
        inputs.note(f"--stack is not given: {word}, and the interval is wider for it")
    if any(isinstance(op, Scan) for op in model.operations):
        inputs.note("scans are counted by their bytes and products; no published step checks that")
    if model.experts:
        inputs.note("tokens are taken to spread evenly over experts")


COMMAND = Command(
    "step",
    "Seconds of one training step: compute, memory traffic, communication, bubble, optimizer, and what binds",
    run,
    options=(
        *MODEL_OPTIONS,
        *PADDED,
        *SETUP_OPTIONS,
        *STAGE_OPTIONS,
        "hardware",
        "hardware-file",
        "profile",
        "stack",
        "factor",
        "interval",
        "async-tp",
        *DRAWS,
    ),
    arguments=("model",),
    defaults={**SETUP_DEFAULTS, "interval": "90"},
    examples=(
        "step llama3-70b --tp 8 --pp 4 --dp 32 --global-batch 1024 --seq 8192 --hardware h100",
        "step llama3-8b --gpus 64 --zero 3 --micro-batch 2 --seq 8192 --hardware a100 --stack fsdp-compiled",
        "step llama3-70b --tp 8 --pp 4 --vp 5 --gpus 1024 --global-batch 512 --seq 8192 --hardware h100 --explain",
    ),
)

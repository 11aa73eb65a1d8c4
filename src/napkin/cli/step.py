"""`napkin step`: seconds of one training step, where they go, what binds, and how sure that is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from napkin.cli.command import Command, Inputs
from napkin.cli.layout import SETUP_DEFAULTS, SETUP_OPTIONS, setup_of
from napkin.cli.level import level_of
from napkin.cli.machine import accelerator, measured_rates
from napkin.cli.model import MODEL_OPTIONS, model_of
from napkin.cli.options import DRAWS, Option, declare
from napkin.errors import Refused
from napkin.formulas import flops
from napkin.formulas.layer import Experts, Model, Scan
from napkin.formulas.memory import Setup
from napkin.formulas.step import Step, step
from napkin.inputs.hardware import Hardware
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, add, constant, divide, leaf, multiply, subtract
from napkin.units import human, positive

if TYPE_CHECKING:
    from napkin.evidence.single import Asked

declare(
    Option("factor", positive, "Time of your steps over napkin's (napkin calibrate)", metavar="X"),
    Option("async-tp", lambda text: text, "Tensor-parallel collectives decomposed and overlapped", flag=True),
)

BINDS = {"compute": "compute", "memory_bound": "memory", "communication": "communication", "bubble": "bubble"}


def run(inputs: Inputs) -> Answer:
    from napkin.evidence import single

    model = model_of(inputs)
    setup = setup_of(inputs, model)
    hardware = accelerator(inputs)
    level = level_of(inputs)
    asked = single.asked(
        model,
        setup,
        hardware,
        stack_of(inputs, setup),
        inputs.get("attention") if "attention" in inputs else None,
        bool(inputs.get("async-tp")),
        float(inputs.get("factor") or 1.0),
    )
    _assumed_links(inputs, hardware, setup.layout.gpus)
    if inputs.get("profile") is not None:
        asked = measured(inputs, asked, hardware, setup)
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
        from napkin.cli.timeline import charts

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


def measured(inputs: Inputs, asked: Asked, hardware: Hardware, setup: Setup) -> Asked:
    """--profile: what `napkin bench` measured in place of the constants of the chip."""
    from napkin.evidence.single import with_profile
    from napkin.inputs.profile import profile_for
    from napkin.record import replace

    profile = profile_for(str(inputs.get("profile")), hardware.slug)
    for note in profile.notes_for_user():
        inputs.note(note)
    measured_rates(inputs, profile, setup.precision.compute)
    reached, said = with_profile(asked.rates, hardware, profile, setup.precision.compute)
    for what in said:
        inputs.note(f"measured by the profile: {what}")
    return replace(asked, rates=reached)


def stack_of(inputs: Inputs, setup: Setup) -> str:
    """--stack, else what the layout suggests: FSDP under ZeRO-3, Megatron for other layouts of several GPUs."""
    if inputs.get("stack") is None:
        layout = setup.layout
        guess = "unknown" if layout.gpus == 1 else "fsdp-compiled" if layout.zero == 3 else "megatron-core"
        inputs.default("stack", guess)
    return str(inputs.get("stack"))


def parts_of(found: Step) -> list[Term]:
    """The parts of the step and what they are made of, two levels deep."""
    listed = []
    for part in found.time.parts:
        listed.append(part)
        listed += [inner for inner in part.parts if inner.name.startswith("step/")]
    return listed


def utilisation(model: Model, setup: Setup, peak: Term, found: Step) -> list[Term]:
    """MFU, HFU and tokens per second, from the exact count of the model's FLOPs."""
    layout = setup.layout
    over = flops.works(model, layout.global_batch, layout.seq)
    counted = flops.step(model, over)
    gpus = leaf("gpus", layout.gpus, "GPU", TRUE)
    possible = multiply("flops/possible", peak, gpus, found.time)
    mfu = divide("mfu", counted["flops/total"], possible)
    left_out = subtract("flops/attention/masked", counted["flops/attention"], counted["flops/attention/exact"])
    exact = divide("mfu/exact", subtract("flops/exact", counted["flops/total"], left_out), possible)
    again = divide("hfu/recomputed", _recomputed(model, setup, counted), possible)
    tokens = leaf("tokens", layout.global_batch * layout.seq, "token", TRUE)
    rate = divide("tokens_per_second_per_gpu", tokens, found.time, gpus)
    return [mfu, exact, add("hfu", mfu, again), rate]


def _recomputed(model: Model, setup: Setup, counted: dict[str, Term]) -> Term:
    """FLOPs of the forward passes that run again: all of a block's but the head, or attention's core alone."""
    from napkin.evidence.single import recomputed_share

    share, core = recomputed_share(setup, model)
    if core:
        return divide("flops/recomputed", counted["flops/attention"], constant("3", 3))
    tokens = setup.layout.global_batch * setup.layout.seq
    head = leaf("flops/head", 2 * tokens * model.hidden * model.vocabulary, "FLOP", TRUE, "2·T·h·V")
    blocks = add("flops/blocks", counted["flops/forward"], multiply("flops/less_head", constant("-1", -1), head))
    return multiply("flops/recomputed", leaf("recomputed", share, "1", TRUE), blocks)


def memory_terms(inputs: Inputs, model: Model, setup: Setup, capacity: int | None = None) -> list[Term]:
    """memory/total, left out with a note where the memory model does not know the architecture; a note where it is
    not certain to fit in `capacity` bytes."""
    from napkin.formulas.fit import FITS, evaluate

    try:
        found = evaluate(model, setup, str(inputs.get("implementation")), capacity, False)
    except Refused as problem:
        inputs.note(f"memory/total is left out: {problem.message}")
        return []
    if capacity is not None and found.verdict != FITS:
        inputs.note(f"memory: {found.verdict}: {human(found.reported.used.value, 'byte')} of {human(capacity, 'byte')}")
        inputs.note("napkin memory with the same options lists what would make it fit")
    return [found.reported.used.renamed("memory/total")]


def _ends(answer: Answer, half: float) -> None:
    factor = math.exp(half)
    for term in answer.terms:
        if term.name in ("step/time", "mfu", "mfu/exact", "hfu", "tokens_per_second_per_gpu"):
            answer.intervals[term.name] = (term.value / factor, term.value * factor)


def _binding(found: Step) -> str:
    """What the largest part of the step waits for."""
    parts = {part.name.removeprefix("step/"): part.value for part in found.time.parts}
    return BINDS[max(BINDS, key=lambda name: parts[name])]


def _bars(found: Step) -> list[str]:
    """The breakdown as bars of text."""
    whole = found.time.value
    lines = []
    for part in found.time.parts:
        share = part.value / whole
        lines.append(f"  {part.name.removeprefix('step/'):14} {share:6.1%}  {'█' * round(40 * share)}")
    return lines


def _title(model: Model, setup: Setup, hardware: Hardware) -> str:
    layout = setup.layout
    degrees = ", ".join(
        f"{name} {value}"
        for name, value in (
            ("tp", layout.tp),
            ("pp", layout.pp),
            ("cp", layout.cp),
            ("ep", layout.ep),
            ("dp", layout.dp),
        )
        if value > 1
    )
    return (
        f"one step of {model.name}, {layout.global_batch:,} × {layout.seq:,} tokens on {layout.gpus:,} × "
        f"{hardware.name}{f' ({degrees})' if degrees else ''}"
    )


def _remark(inputs: Inputs, model: Model, stack: str, half: float, level: float, names: list[str]) -> None:
    inputs.note(
        f"{level:.0%} interval ×/÷ {math.exp(half):.2f}, from published steps whose source the constants never saw; "
        f"the nearest: {', '.join(names)}"
    )
    if "stack" not in inputs:
        word = "the middle of all software" if stack == "unknown" else f"taken to be {stack}"
        inputs.note(f"--stack is not given: {word}, and the interval is wider for it")
    operations = [op for s in model.stacks for _, _, layer in s.kinds() for op in layer.operations]
    if any(isinstance(op, Scan) for op in operations):
        inputs.note("scans are counted by their bytes and products; no published step checks that")
    if any(isinstance(op, Experts) for op in operations):
        inputs.note("tokens are taken to spread evenly over experts")


COMMAND = Command(
    "step",
    "Seconds of one training step: compute, memory traffic, communication, bubble, optimizer, and what binds",
    run,
    options=(
        *MODEL_OPTIONS,
        *SETUP_OPTIONS,
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

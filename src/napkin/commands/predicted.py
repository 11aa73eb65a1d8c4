"""What the step model and the memory model say about a setup, for every command that predicts: the question that they
are asked, and the quantities that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from napkin.commands.command import Inputs
from napkin.commands.machine import record_rates
from napkin.counting import flops
from napkin.errors import Refused
from napkin.footprint.setup import Setup
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.term import TRUE, Term, add, constant, divide, leaf, multiply, subtract
from napkin.timing.step import Step
from napkin.units import human

if TYPE_CHECKING:
    from napkin.evidence.single import StepInputs


def read_step_model(inputs: Inputs, model: Model, setup: Setup, hardware: Hardware) -> StepInputs:
    """The step model's plan and rates: software, attention's kernel, overlap, factor and profile as the options say."""
    from napkin.evidence import single
    from napkin.evidence.rates import generation_note

    if note := generation_note(hardware):
        inputs.note(note)
    asked = single.asked(
        model,
        setup,
        hardware,
        read_stack(inputs, setup),
        inputs.get("attention") if "attention" in inputs else None,
        bool(inputs.get("async-tp")),
        float(inputs.get("factor") or 1.0),
    )
    return asked if inputs.get("profile") is None else _measured(inputs, asked, hardware, setup)


def _measured(inputs: Inputs, asked: StepInputs, hardware: Hardware, setup: Setup) -> StepInputs:
    """--profile: what `napkin bench` measured in place of the constants of the chip."""
    from napkin.evidence.single import with_profile
    from napkin.inputs.profile import profile_for
    from napkin.record import replace

    profile = profile_for(str(inputs.get("profile")), hardware.slug)
    for note in profile.notes_for_user():
        inputs.note(note)
    record_rates(inputs, profile, setup.precision.compute)
    reached, said = with_profile(asked.rates, hardware, profile, setup.precision.compute)
    for what in said:
        inputs.note(f"measured by the profile: {what}")
    return replace(asked, rates=reached)


def read_stack(inputs: Inputs, setup: Setup) -> str:
    """--stack, else what the layout suggests: FSDP under ZeRO-3, Megatron for other layouts of several GPUs."""
    if inputs.get("stack") is None:
        layout = setup.layout
        guess = "unknown" if layout.gpus == 1 else "fsdp-compiled" if layout.zero == 3 else "megatron-core"
        inputs.default("stack", guess)
    return str(inputs.get("stack"))


def utilisation(model: Model, setup: Setup, peak: Term, found: Step) -> list[Term]:
    """MFU, HFU and tokens per second, from the exact count of the model's FLOPs."""
    layout = setup.layout
    over = flops.of_layout(model, layout, layout.global_batch)
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
    tokens = setup.layout.global_batch * (setup.layout.target or setup.layout.seq)
    head = leaf("flops/head", 2 * tokens * model.hidden * model.vocabulary, "FLOP", TRUE, "2·T·h·V")
    blocks = add("flops/blocks", counted["flops/forward"], multiply("flops/less_head", constant("-1", -1), head))
    return multiply("flops/recomputed", leaf("recomputed", share, "1", TRUE), blocks)


def memory_terms(inputs: Inputs, model: Model, setup: Setup, capacity: int | None = None) -> list[Term]:
    """memory/total, left out with a note where the memory model does not know the architecture; a note where it is
    not certain to fit in `capacity` bytes."""
    from napkin.planning.fit import FITS, evaluate

    try:
        found = evaluate(model, setup, str(inputs.get("implementation")), capacity, False)
    except Refused as problem:
        inputs.note(f"memory/total is left out: {problem.message}")
        return []
    if capacity is not None and found.verdict != FITS:
        inputs.note(f"memory: {found.verdict}: {human(found.reported.used.value, 'byte')} of {human(capacity, 'byte')}")
        inputs.note("napkin memory with the same options lists what would make it fit")
    return [found.reported.used.renamed("memory/total")]

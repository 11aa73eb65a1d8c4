"""Questions to the step model and the memory model, read from the options, for commands that predict a step."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.commands.inputs import Inputs
from napkin.commands.question.confidence import read_confidence
from napkin.commands.question.machine import RATES, check_trains_in, read_hardware, record_rates
from napkin.commands.question.setup import read_loading, read_setup
from napkin.commands.question.untimed import check_generates, check_host_link, check_timed
from napkin.commands.question.usual_stack import read_usual_stack
from napkin.errors import NapkinError, Refused
from napkin.evidence.predictions import one_run
from napkin.evidence.predictions.one_run import StepPrediction
from napkin.evidence.rates.of_step import Asynchronous
from napkin.evidence.software.stacks import stack
from napkin.footprint.loading import loaded_by_each
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.record import record, replace
from napkin.term import Term
from napkin.training.framework import FSDP
from napkin.training.layout import Layout
from napkin.training.setup import Setup
from napkin.units import human

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.inputs.profile import Profile


@record
class StepQuestion:
    """A training step to predict.

    prediction   plan, rates and position in the evidence    confidence   level of the intervals
    timed        the layout whose tokens it trains: `setup`'s, with the mean length of padded samples where shorter
    stack_named  whether --stack was given
    searched     whether `plan` searches layouts of this job: not with parameters or activations that --offload names
    """

    model: Model
    setup: Setup
    hardware: Hardware
    prediction: StepPrediction
    stack_named: bool
    confidence: float
    timed: Layout
    searched: bool = True


def read_step(inputs: Inputs, model: Model, uses: Iterable[str] = RATES) -> StepQuestion:
    """Read the setup, accelerator and software of a step to predict; uses: the accelerator's figures that the answer
    depends on."""
    setup = read_setup(inputs, model)
    read_loading(inputs, loaded_by_each(model, setup))
    check_timed(inputs, setup)
    if setup.layout.images:
        if setup.layout.pp > 1:
            why = "--images: the time of a pipeline whose first stage has a vision tower is not modeled"
            raise Refused(why, "--pp 1")
        inputs.note(
            "speed and MFU count the language model's tokens and FLOPs; those of images are in napkin flops --images"
        )
    hardware = read_hardware(inputs, uses)
    confidence = read_confidence(inputs)
    prediction = read_prediction(inputs, model, setup, hardware)
    searched = not {"parameters", "activations"} & set(inputs.texts("offload"))
    return StepQuestion(model, setup, hardware, prediction, "stack" in inputs, confidence, setup.layout, searched)


def read_over_padded(inputs: Inputs, step: StepQuestion, mean: int, slowest: int) -> StepQuestion:
    """Return a step over sequences of `mean` tokens, that takes as long as a rank whose sequences have `slowest`: its
    memory is that of the longest."""
    layout = step.setup.layout
    waited_for = replace(step.setup, layout=layout.replaced(seq=slowest))
    asked = read_prediction(inputs, step.model, waited_for, step.hardware)
    return replace(step, prediction=asked, timed=layout.replaced(seq=mean))


def _read_dispatcher(inputs: Inputs) -> str:
    """Return what sends tokens to their experts, as the options say; "": as the software does."""
    if "dispatcher" not in inputs:
        return ""
    from napkin.evidence.rows.words import dispatcher_named  # loads re, which is slow

    return dispatcher_named(inputs.text("dispatcher"))


def read_asynchronous(inputs: Inputs) -> Asynchronous:
    """Return what the options say of collectives that overlap with compute, and of captured graphs."""
    return Asynchronous(
        inputs.flag("async-tp") if "async-tp" in inputs else None,
        inputs.flag("async-ep") if "async-ep" in inputs else None,
        inputs.text("graphs") if "graphs" in inputs else "",
        inputs.text("async-dp") if "async-dp" in inputs else "",
    )


def read_unmeasured(inputs: Inputs, model: Model, setup: Setup, hardware: Hardware) -> StepPrediction:
    """Return plan and rates without a profile: software, attention kernel, overlap and factor from the options."""
    check_generates(inputs, setup.task)
    check_trains_in(hardware, setup.compute)
    check_host_link(hardware, setup)
    from napkin.evidence.rates.machines import generation_note

    if note := generation_note(hardware):
        inputs.note(note)
    kernel = inputs.text("attention") if "attention" in inputs else ""
    prediction = one_run.asked(
        model,
        setup,
        hardware,
        read_stack(inputs, setup),
        kernel,
        read_asynchronous(inputs),
        float(inputs.number_or_none("factor") or 1.0),
        dispatcher=_read_dispatcher(inputs),
    )
    if prediction.copies is not None:
        inputs.note(
            "tokens go once to each node, as DeepEP and HybridEP send them; the interval covers an all-to-all of their "
            "copies: --dispatcher alltoall"
        )
    if "stack" not in inputs:
        inputs.guesses("stack")
    if prediction.newer is not None:
        inputs.note(
            "FlashAttention-2, as published steps ran it; torch from 2.11 on takes cuDNN, which the interval covers: "
            "--attention cudnn, or flash2"
        )
    return prediction


def read_prediction(inputs: Inputs, model: Model, setup: Setup, hardware: Hardware) -> StepPrediction:
    """Return plan and rates from the options, with the rates measured in --profile."""
    asked = read_unmeasured(inputs, model, setup, hardware)
    profile = read_rates_profile(inputs, hardware)
    if profile is None:
        return asked
    compute = setup.compute
    record_rates(inputs, profile, compute)
    reached, taken = one_run.with_profile(asked.rates, hardware, profile, compute)
    for what in taken:
        inputs.note(f"measured by the profile: {what}")
    return replace(asked, rates=reached)


def read_rates_profile(inputs: Inputs, hardware: Hardware) -> Profile | None:
    """Return what `napkin bench` measured, from --profile."""
    if not inputs.has("profile"):
        return None
    from napkin.inputs.profile import profile_for

    profile = profile_for(inputs.text("profile"), hardware.slug)
    for note in profile.notes_for_user():
        inputs.note(note)
    return profile


def read_stack(inputs: Inputs, setup: Setup) -> str:
    """Return --stack, else that of the trainer or the framework, else the command's default, else what the layout
    suggests: FSDP for ZeRO-3, Megatron for other layouts of several GPUs; compiled if --compile says so."""
    named = _read_named_stack(inputs, setup)
    if "compile" not in inputs:
        return named
    compiled, foreign = inputs.flag("compile"), (setup.framework.software or FSDP[0]) not in FSDP
    if "stack" not in inputs and not foreign and stack(named).compiled != compiled:
        inputs.redefault("stack", FSDP[compiled])
        return FSDP[compiled]
    if stack(named).compiled != compiled:
        asked = "--compile" if compiled else "--no-compile"
        what = f"--stack {named}" if "stack" in inputs else f"--framework {setup.framework.name}"
        raise NapkinError(
            f"{asked} and {what} contradict each other: its measured steps are {'not ' * compiled}compiled",
            f"--stack {FSDP[compiled]}, or leave out {asked}",
        )
    return named


def _read_named_stack(inputs: Inputs, setup: Setup) -> str:
    """Return the stack that options other than --compile select."""
    if inputs.has("trainer"):
        from napkin.training.trainers import find

        inputs.redefault("stack", find(inputs.text("trainer")).stack_on(setup.framework))
    elif setup.framework.software:
        inputs.redefault("stack", setup.framework.software)
    elif not inputs.has("stack"):
        inputs.default("stack", read_usual_stack(inputs, setup))
    return inputs.text("stack")


def memory_terms(model: Model, setup: Setup, capacity: int | None = None) -> tuple[list[Term], str | None, list[str]]:
    """Return memory/total, its verdict, and notes: the memory model does not know the architecture, or the step may not
    fit in `capacity` bytes."""
    from napkin.planning.verdicts import FITS, evaluate

    try:
        found = evaluate(model, setup, capacity)
    except Refused as problem:
        return [], None, [f"memory/total is omitted: {problem.message}"]
    notes = []
    if capacity is not None and found.verdict != FITS:
        used = human(found.reported.used.value, "byte")
        if found.steps == FITS:
            used = f"{human(loaded_by_each(model, setup), 'byte')} of weights while loading"
        notes.append(f"memory: {found.verdict}: {used} of {human(capacity, 'byte')}")
        notes.append("napkin memory with the same options lists what would make it fit")
    return [found.reported.used.renamed("memory/total")], found.verdict, notes

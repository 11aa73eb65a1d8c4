"""The configuration that `lint` checks, read from the options: first the stated values, then the step."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.question.frozen import read_implementation
from napkin.commands.question.machine import RATES, read_gpus, read_hardware
from napkin.commands.question.model import read_model
from napkin.commands.question.named import named_config
from napkin.commands.question.setup import read_setup
from napkin.commands.question.software import framework_named
from napkin.commands.question.step_model import read_prediction
from napkin.commands.question.untimed import check_timed
from napkin.commands.signature import OptionText
from napkin.counting.params import params
from napkin.errors import NapkinError, Refused
from napkin.evidence.rates.machines import gpus_per_node
from napkin.footprint import capacity, storage
from napkin.operations.model import Model
from napkin.options.command_line import changed
from napkin.options.comparing import OPERATION
from napkin.options.model import MODEL_OPTIONS, PADDED, PREDICTING
from napkin.planning.padding import TrainerPasses
from napkin.planning.verdicts import Fit, evaluate
from napkin.record import replace
from napkin.rules.case import Configuration, Options, Run, Stated, fits_as_well
from napkin.rules.rule import Ask
from napkin.term import GIVEN, Term, leaf
from napkin.timing import interruptions
from napkin.training import optimizer_names
from napkin.training.precision import precision
from napkin.training.recomputation import recompute
from napkin.training.setup import Setup


def read_run(inputs: Inputs, model: Model, setup: Setup, seconds: float | None) -> Run:
    """Return the amount of training, its price, and the operation of the run, as far as given. seconds: of a step, if
    it is timed."""
    tokens: float | None = None
    padding = 0.0
    a_step = float(setup.layout.global_batch * setup.layout.seq)
    price = float(inputs.number("price")) if inputs.has("price") else None
    if "tokens" in inputs:
        tokens = float(inputs.number("tokens"))
    elif "steps" in inputs:
        tokens = inputs.integer("steps") * a_step
    elif "samples" in inputs and ("sample-tokens" in inputs or "lengths" in inputs):
        from napkin.commands.question.amount import read_amount

        found = read_amount(inputs, int(setup.layout.seq))
        tokens = float(found.tokens.value)
        padding = next((float(one.value) for one in found.more if one.name == "padding/share"), 0.0)
    epochs = float(inputs.number("epochs")) if inputs.has("epochs") else None
    steps = tokens / a_step if tokens is not None else None
    why = "the number of steps of the run is not stated"
    inputs.depends(("warmup-steps",), steps is not None, why, "--steps, or --tokens")
    warmup = inputs.integer_or_none("warmup-steps") if steps is not None else None
    interval, write, mtbf = _read_operation(inputs, model, setup, seconds)
    return Run(tokens, price, interval, mtbf, write, epochs, padding, steps, warmup)


def _read_operation(
    inputs: Inputs, model: Model, setup: Setup, seconds: float | None
) -> tuple[Term | None, Term | None, Term | None]:
    """Return the checkpoint interval, the write time, and the mean time between failures of the job; None if one is
    missing."""
    stated = "write-bandwidth" in inputs and ("mtbf" in inputs or "gpu-mtbf" in inputs)
    paced = "checkpoint-interval" in inputs or ("save-steps" in inputs and seconds is not None)
    needs = "--write-bandwidth, --mtbf or --gpu-mtbf, and --checkpoint-interval or --save-steps (with --hardware)"
    inputs.depends((*OPERATION, "save-steps"), stated and paced, "the cost of checkpoints is not known without", needs)
    if not stated or not paced:
        return None, None, None
    if "checkpoint-interval" in inputs:
        interval = inputs.term("checkpoint-interval")
    else:
        interval = leaf("interval", inputs.integer("save-steps") * float(seconds or 0.0), "second", GIVEN)
    if "gpu-mtbf" in inputs:
        gpus = leaf("gpus", int(setup.layout.gpus), "GPU")
        mtbf = interruptions.mtbf_of(leaf("gpu_mtbf", inputs.number("gpu-mtbf"), "GPU-second"), gpus)
    else:
        mtbf = inputs.term("mtbf")
    widths = capacity.state_widths(setup.precision, setup.optimizer)
    kept = {name: width for name, width in widths.items() if name != "gradients" and width.value}
    size = storage.checkpoint_bytes(params(model)["params/total"], kept)
    return interval, storage.write_time(size, inputs.term("write-bandwidth")), mtbf


OF_MODEL = ("model", "task", *MODEL_OPTIONS, *PADDED, *PREDICTING)
"""Options from which a model is read."""
NO_HARDWARE = "no accelerator is named: --hardware"
"""The reason why nothing is timed."""


def read_stated(inputs: Inputs, known: Model | None = None, passes: TrainerPasses | None = None) -> Stated:
    """Return the values that the configuration states. known: its model, if that was already read; passes: of
    reinforcement learning, next to which an engine may keep a part of each GPU."""
    inputs.depends(OF_MODEL if known is not None else (), True)
    model = read_model(inputs) if known is None else known
    hardware = read_hardware(inputs, (*RATES, "memory-size")) if inputs.has("hardware") else None
    if hardware is not None and passes is not None and passes.kept:
        hardware = replace(hardware, capacity_reported=int(hardware.capacity * (1 - passes.kept)))
    read_gpus(inputs)
    options = {name: inputs.peek(name) for name in (*inputs.command.defaults, *inputs.shown)}
    node = gpus_per_node(hardware) if hardware is not None else 0
    text = inputs.text("model")
    return Stated(model, hardware, node, inputs.texts_given(), options, lambda: named_config(text)[0].fields)


def read_words(inputs: Inputs) -> None:
    """Read each option that takes a name, so that unknown names are reported before other errors."""
    precision(inputs.text("precision"))
    recompute(inputs.text("recompute"))
    optimizer_names.find(inputs.text("optimizer"), form=inputs.text_or_none("optimizer-form"))
    read_implementation(inputs)
    if inputs.has("trainer"):
        from napkin.training import trainers

        trainers.find(inputs.text("trainer"))
    if inputs.has("framework"):
        framework_named(inputs.text("framework"))


def read_case(
    inputs: Inputs, stated: Stated, setup: Setup, passes: TrainerPasses | None, known: Fit | None = None
) -> Configuration:
    """Return the configuration with its step's memory and time. passes: of reinforcement learning; known: its memory,
    if that was already weighed."""
    fit = known or _read_fit(inputs, stated, setup, passes)
    return _read_timed(inputs, stated, setup if passes is None else passes.timed(setup, "micro-batch" in inputs), fit)


def _read_timed(inputs: Inputs, stated: Stated, setup: Setup, fit: Fit | None) -> Configuration:
    """Return the configuration with its step's time. fit: its memory."""
    step, stack, why = None, None, NO_HARDWARE
    if stated.hardware is not None:
        try:
            check_timed(inputs, setup)
            prediction = read_prediction(inputs, stated.model, setup, stated.hardware)
            step, stack, why = prediction.step(), prediction.stack, ""
        except Refused as problem:
            why = problem.message
    seconds = float(step.time.value) if step is not None else None
    run = read_run(inputs, stated.model, setup, seconds)
    return Configuration(stated, setup, fit, step, why, stack, "stack" not in inputs, run)


def _read_fit(inputs: Inputs, stated: Stated, setup: Setup, passes: TrainerPasses | None) -> Fit | None:
    """Return the memory of the step; None if the memory model does not support the architecture."""
    setup = setup if passes is None else passes.held(setup, "micro-batch" in inputs)
    capacity = stated.hardware.capacity if stated.hardware is not None else None
    try:
        return evaluate(stated.model, setup, capacity)
    except Refused:
        return None


def read_ask(inputs: Inputs, case: Configuration, passes: TrainerPasses | None) -> Ask:
    """Return the function that evaluates the configuration with a change, on the same software."""
    idle = set(inputs.unused())
    known: dict[tuple[tuple[str, object], ...], Configuration | None] = {}

    def asked(options: Options) -> Inputs:
        return Inputs(inputs.command, _with(inputs.given, pinned(case, options)))

    def whole(options: Options) -> Configuration | None:
        key = tuple(sorted((name, str(text)) for name, text in options.items()))
        if key not in known:
            known[key] = None
            try:
                other = asked(options)
                stated = read_stated(other, _same_model(case, options), passes)
                setup = read_setup(other, stated.model)
                fit = _read_fit(other, stated, setup, passes)
                if case.fit is None or fit is None or fits_as_well(fit, case.fit):  # else this answer includes no time
                    found = read_case(other, stated, setup, passes, fit)
                    known[key] = None if set(other.unused()) - idle else found
            except NapkinError:  # the options do not go together
                pass
        return known[key]

    def fit(options: Options) -> Fit | None:
        try:
            other = asked(options)
            stated = read_stated(other, _same_model(case, options), passes)
            return _read_fit(other, stated, read_setup(other, stated.model), passes)
        except NapkinError:
            return None

    return Ask(whole, fit)


def _same_model(case: Configuration, options: Options) -> Model | None:
    """Return the model of a changed configuration if the change does not affect it: vocabulary padding depends on the
    tensor-parallel ranks."""
    padded = "vocab-multiple" in case.given and "tp" in options
    return None if padded or set(OF_MODEL) & set(options) else case.model


def pinned(case: Configuration, options: Options) -> Options:
    """Return a change with the software fixed, because napkin's default for it depends on the layout."""
    if not case.guessed or case.stack is None or {"stack", "compile", "framework", "trainer"} & set(options):
        return options
    return {**options, "stack": case.stack.name}


def _with(given: Mapping[str, OptionText], options: Options) -> dict[str, OptionText]:
    """Return the options of a question with a change; None leaves one out."""
    texts = {name: OptionText(text) for name, text in options.items() if text is not None}
    kept = {name: one for name, one in given.items() if name not in options or options[name] is not None}
    return changed(kept, texts)

"""`napkin max-params`: the largest model whose training state, or whose weights, fit on the accelerators."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.max_params.shape import (
    FittingShape,
    LayoutFit,
    deep_enough,
    fitting_shape,
    keeps,
    proportions_of,
    shape_terms,
)
from napkin.commands.question.machine import WHICH, check_dtype, read_gpus, read_hardware, read_usual_policy
from napkin.commands.question.setup import read_loading, read_optimizer, read_setup
from napkin.commands.screens.max_params import screen
from napkin.commands.screens.setup import trained_part
from napkin.errors import NapkinError
from napkin.footprint import capacity
from napkin.footprint.loading import loaded_by_each
from napkin.footprint.served_weights import stored
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.layout import MACHINE_SIZE
from napkin.options.training import FROZEN, SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.planning.verdicts import FITS, VERDICTS
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import Term
from napkin.training.precision import precision
from napkin.training.setup import Setup

STATES = (*MACHINE_SIZE, "precision", "optimizer", "momentum")
"""Options that the ceiling depends on."""
LAYOUT = tuple(name for name in (*SETUP_OPTIONS, *STATE_OPTIONS) if name not in STATES)
"""Options that ask what fits under a layout, in addition to the ceiling."""

INFERENCE_DTYPES = ("fp32", "bf16", "fp8", "mxfp8", "int8", "nf4", "int4", "nvfp4", "mxfp4")
CEILING = "the printed gigabytes of all GPUs, states perfectly sharded, nothing left for activations: a ceiling"


@record
class MaxParamsQuestion:
    """The question which model fits on `gpus` accelerators.

    each    bytes per parameter                    weights   the number format of inference, or None for training
    like    a model or family whose proportions the largest shape keeps, or None
    layout  the layout that it must fit under, or None: states only
    """

    hardware: Hardware
    gpus: Term
    each: Term
    weights: str | None = None
    like: str | None = None
    layout: LayoutFit | None = None


def run(inputs: Inputs) -> Answer:
    """Answer for training, or with --inference for weights."""
    return answer(read(inputs))


def read(inputs: Inputs) -> MaxParamsQuestion:
    """Read the question."""
    read_gpus(inputs)
    inputs.need("hardware", WHICH)
    if not inputs.has("gpus"):
        inputs.default("gpus", "1")
        inputs.assume("1 GPU")
    hardware = read_hardware(inputs, ("memory-size",))
    if inputs.flag("inference"):
        inputs.note(CEILING)
        return _read_inference(inputs, hardware)
    check_dtype(inputs)
    each = _read_bytes_per_param(inputs)
    like = inputs.text_or_none("like")
    laid_out = [name for name in LAYOUT if name in inputs]
    if like is None and laid_out:
        raise NapkinError(f"--{laid_out[0]} needs a shape", "--like llama3 gives one")
    layout = _read_layout_fit(inputs) if laid_out else None
    if layout is None or not layout.part:
        inputs.note(CEILING)
    elif inputs.has("bytes-per-param"):
        raise NapkinError(
            "--bytes-per-param takes every parameter as trained, and a part is frozen", "leave out one of the two"
        )
    return MaxParamsQuestion(hardware, inputs.term("gpus"), each, like=like, layout=layout)


def _read_inference(inputs: Inputs, hardware: Hardware) -> MaxParamsQuestion:
    """Read the number format of the weights."""
    inputs.because(inputs.command.options, "it belongs to training, not to --inference", "for --inference give --dtype")
    weights = stored(inputs.text("dtype", default="bf16")).name
    inputs.note("only weights: the KV cache of the sequences being served comes on top")
    return MaxParamsQuestion(hardware, inputs.term("gpus"), capacity.width(weights, "bytes_per_param"), weights)


def _read_bytes_per_param(inputs: Inputs) -> Term:
    """Return the bytes per parameter: as given, or the sum of what policy and optimizer keep."""
    if inputs.has("bytes-per-param"):
        for name in STATES[len(MACHINE_SIZE) :]:
            if name in inputs:
                raise NapkinError(
                    f"a contradiction: --bytes-per-param and --{name} both say what a parameter takes",
                    "leave out one of the two",
                )
        return inputs.term("bytes-per-param", "bytes_per_param")
    policy = precision(inputs.text("precision", default=read_usual_policy(inputs)))
    optimizer, _ = read_optimizer(inputs)
    if policy.master is None and policy.param != "fp32":
        inputs.note(f"no fp32 master copy: updates under half of {policy.param}'s spacing at a weight are rounded away")
    if optimizer.note:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    return capacity.bytes_per_param(policy, optimizer)


def _read_layout_fit(inputs: Inputs) -> LayoutFit:
    """Read the layout that the largest shape must fit under; each shape that is tried has its own setup."""
    for name, value in SETUP_DEFAULTS.items():
        inputs.default(name, value)
    tp, pp, vp = inputs.integer("tp"), inputs.integer("pp"), inputs.integer("vp")

    def setup_for(model: Model) -> Setup:
        setup = read_setup(inputs, model)
        read_loading(inputs, loaded_by_each(model, setup))
        return setup

    return LayoutFit(
        setup_for=setup_for,
        tp=tp,
        pp=pp,
        stages=pp * vp if vp > 1 else 1,
        least=inputs.integer_or_none("freeze-layers") or 1,
        part=any(name in inputs and inputs.has(name) for name in FROZEN),
        recomputed=inputs.text("recompute") != "none",
    )


def answer(question: MaxParamsQuestion) -> Answer:
    """Answer with the largest number of parameters, and the largest shape if one is named."""
    hardware = question.hardware
    per_gpu = hardware.term("memory", "memory/capacity_per_gpu", "byte/GPU")
    total = capacity.total_capacity(per_gpu, question.gpus)
    most = capacity.most_params(total, question.each)
    count = f"{question.gpus.value:,} × {hardware.name}"
    if question.weights is not None:
        terms = [most, total, question.each, per_gpu]
        for dtype in INFERENCE_DTYPES:
            each = capacity.width(dtype, f"bytes_per_param/{dtype}")
            terms.append(capacity.most_params(total, each, f"params/max/{dtype}"))
        answer = Answer("max-params", terms)
        answer.screen = screen(answer, count, question.weights, None, False)
        return answer
    if question.layout is not None and question.layout.part:
        return _answer_trained_part(question, question.layout, int(most.value), [total, per_gpu], count)
    shape, notes = _largest_shape(question, most) if question.like is not None else ([], [])
    found = _fitting(question, int(most.value))
    fitting = [term for term in found.terms if term.name == "fits/params"]  # next to the ceiling
    rest = [term for term in found.terms if term.name != "fits/params"]
    terms = [most, *fitting, total, question.each, *question.each.parts, per_gpu, *shape, *rest]
    answer = _with_verdict(Answer("max-params", terms, notes=[*notes, *found.notes]), found)
    answer.screen = screen(
        answer,
        count,
        None,
        question.like,
        question.layout is not None,
        question.layout is not None and question.layout.recomputed,
    )
    return answer


def _with_verdict(answer: Answer, found: FittingShape) -> Answer:
    """Return the answer with the intervals and the verdict of the shape that fits."""
    answer.intervals = found.intervals
    answer.verdict = found.verdict or None
    return answer


def _answer_trained_part(
    question: MaxParamsQuestion, layout: LayoutFit, limit: int, capacity: list[Term], count: str
) -> Answer:
    """Answer for a partially trained model with the shape that fits, without the ceiling for full training. limit: that
    ceiling, where the search starts."""
    config = proportions_of(str(question.like), limit)
    found = fitting_shape(layout, question.hardware, config)
    nearer = proportions_of(str(question.like), found.parameters or limit)
    if nearer.name != config.name:  # of a family, the member that is nearest to what fits
        other = fitting_shape(layout, question.hardware, nearer)
        if other.parameters > found.parameters:
            config, found = nearer, other
    answer = _with_verdict(Answer("max-params", [*found.terms, *capacity], notes=[keeps(config), *found.notes]), found)
    setup = layout.setup_for(deep_enough(config, layout.least))
    answer.screen = screen(answer, count, None, question.like, True, layout.recomputed, trained_part(setup))
    return answer


def _largest_shape(question: MaxParamsQuestion, most: Term) -> tuple[list[Term], list[str]]:
    """Return the largest shape in a published model's proportions, counted exactly, and a note."""
    from napkin.planning.scaling import at_most, largest_of_family

    limit = int(most.value)
    config = proportions_of(str(question.like), limit)
    model, parameters = largest_of_family(config, at_most(limit))
    return shape_terms("like", model, parameters), [keeps(config)]


def _fitting(question: MaxParamsQuestion, limit: int) -> FittingShape:
    """Return the shape that fits under the layout, if there is one."""
    if question.like is None or question.layout is None:
        return FittingShape([], [])
    return fitting_shape(question.layout, question.hardware, proportions_of(str(question.like), limit))


COMMAND = Command(
    "max-params",
    "Largest model whose training state fits in memory, or with --inference, whose weights fit",
    run,
    brief="Largest model whose training state fits",
    options=(
        *MACHINE_SIZE,
        "hardware",
        "hardware-file",
        "bytes-per-param",
        "precision",
        "optimizer",
        "momentum",
        "inference",
        "dtype",
        "like",
        *LAYOUT,
        "loading",
    ),
    verdicts=VERDICTS,
    success=FITS,
    examples=(
        "max-params --gpus 8 --hardware h100",
        "max-params --gpus 8 --hardware h100 --precision bf16-fp32state",
        "max-params --gpus 1 --hardware h100 --inference --dtype nvfp4",
        "max-params --gpus 8 --hardware h100 --like llama3",
        "max-params --gpus 8 --hardware h100 --like llama3 --zero 3 --seq 8192 --recompute full",
    ),
)

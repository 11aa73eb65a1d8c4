"""`napkin max-params`: the largest model whose training state, or whose weights, fit on the accelerators."""

from __future__ import annotations

from collections.abc import Callable

from napkin import formats
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.question.frozen import read_implementation
from napkin.commands.question.machine import WHICH, check_dtype, read_hardware
from napkin.commands.question.nodes import read_gpus
from napkin.commands.question.setup import read_optimizer, read_setup
from napkin.commands.screens.max_params import screen
from napkin.commands.screens.setup import trained_part
from napkin.errors import BROKEN, NapkinError
from napkin.footprint import capacity
from napkin.inputs.hardware import Hardware
from napkin.inputs.model import Config
from napkin.inputs.model_file import load_config
from napkin.operations.model import Model
from napkin.options.layout import MACHINE_SIZE
from napkin.options.training import FROZEN, SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, leaf
from napkin.training.precision import precision
from napkin.training.setup import Setup

STATES = (*MACHINE_SIZE, "precision", "optimizer", "momentum")
"""Options that the ceiling depends on."""
LAYOUT = tuple(name for name in (*SETUP_OPTIONS, *STATE_OPTIONS) if name not in STATES)
"""Options that ask what fits under a layout, in addition to the ceiling."""

INFERENCE_DTYPES = ("fp32", "bf16", "fp8", "mxfp8", "int8", "nvfp4", "mxfp4")
CEILING = "the printed gigabytes of all GPUs, states perfectly sharded, nothing left for activations: a ceiling"


@record
class LayoutFit:
    """A layout under which the largest shape must fit: a model's setup and implementation, and the search's steps.

    tp, pp, stages  tensor-parallel ranks, pipeline stages, and stages times chunks that the layers divide by (1: none)
    least           layers that a shape has at least: those that are frozen
    part            whether only a part is trained: then not every parameter has gradients and optimizer states
    """

    setup_for: Callable[[Model], tuple[Setup, str]]
    tp: int
    pp: int
    stages: int
    least: int = 1
    part: bool = False


@record
class MaxParamsQuestion:
    """What must fit on `gpus` accelerators.

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
    weights = formats.find(inputs.text("dtype", default="bf16")).name
    inputs.note("only weights: the KV cache of the sequences being served comes on top")
    return MaxParamsQuestion(hardware, inputs.term("gpus"), capacity.width(weights, "bytes_per_param"), weights)


def _read_bytes_per_param(inputs: Inputs) -> Term:
    """Return the bytes per parameter as given, or what policy and optimizer keep, one by one."""
    if inputs.has("bytes-per-param"):
        for name in STATES[len(MACHINE_SIZE) :]:
            if name in inputs:
                raise NapkinError(
                    f"a contradiction: --bytes-per-param and --{name} both say what a parameter takes",
                    "leave out one of the two",
                )
        return inputs.term("bytes-per-param", "bytes_per_param")
    policy = precision(inputs.text("precision", default="bf16-mixed"))
    optimizer, _ = read_optimizer(inputs)
    if policy.master is None and policy.param != "fp32":
        inputs.note(f"no fp32 master copy: updates under half of {policy.param}'s spacing at a weight are rounded away")
    if optimizer.note:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    return capacity.bytes_per_param(policy, optimizer)


def _read_layout_fit(inputs: Inputs) -> LayoutFit:
    """Read the layout that the largest shape must fit under; each shape that is tried has a setup of its own."""
    for name, value in SETUP_DEFAULTS.items():
        inputs.default(name, value)
    tp, pp, vp = inputs.integer("tp"), inputs.integer("pp"), inputs.integer("vp")
    return LayoutFit(
        setup_for=lambda model: (read_setup(inputs, model), read_implementation(inputs)),
        tp=tp,
        pp=pp,
        stages=pp * vp if vp > 1 else 1,
        least=inputs.integer_or_none("freeze-layers") or 1,
        part=any(name in inputs and inputs.has(name) for name in FROZEN),
    )


def answer(question: MaxParamsQuestion) -> Answer:
    """Answer with the largest number of parameters, and the largest shape where one is named."""
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
    fitting = [term for term in shape if term.name == "fits/params"]  # next to the ceiling
    rest = [term for term in shape if term.name != "fits/params"]
    terms = [most, *fitting, total, question.each, *question.each.parts, per_gpu, *rest]
    answer = Answer("max-params", terms, notes=notes)
    answer.screen = screen(answer, count, None, question.like, question.layout is not None)
    return answer


def _answer_trained_part(
    question: MaxParamsQuestion, layout: LayoutFit, limit: int, capacity: list[Term], count: str
) -> Answer:
    """Answer for a model of which a part is trained: with the shape that fits, without the ceiling of one trained
    whole. limit: that ceiling, about which the first shape is looked for."""
    config = _proportions(str(question.like), limit)
    terms, notes = _fitting(layout, question.hardware, config)
    nearer = _proportions(str(question.like), _fitted(terms) or limit)
    if nearer.name != config.name:  # of a family, the member that is nearest to what fits
        others, more = _fitting(layout, question.hardware, nearer)
        if _fitted(others) > _fitted(terms):
            config, terms, notes = nearer, others, more
    answer = Answer("max-params", [*terms, *capacity], notes=[_keeps(config), *notes])
    setup, _ = layout.setup_for(_deep_enough(config, layout.least))
    answer.screen = screen(answer, count, None, question.like, True, trained_part(setup))
    return answer


def _fitted(terms: list[Term]) -> int:
    """Return the parameters of the shape that fits; 0 where none does."""
    return next((int(term.value) for term in terms if term.name == "fits/params"), 0)


def _proportions(name: str, limit: int) -> Config:
    """Return the model whose proportions a shape keeps: of a family, the member whose size is nearest to `limit`."""
    from napkin.inputs.presets import is_preset
    from napkin.planning.scaling import nearest_of_family

    return (None if is_preset(name) else nearest_of_family(name, limit)) or load_config(name)


def _keeps(config: Config) -> str:
    return f"the shape keeps the proportions of {config.name}: head size, width to depth, inner width to width"


def _largest_shape(question: MaxParamsQuestion, most: Term) -> tuple[list[Term], list[str]]:
    """Return the largest shape in a published model's proportions, counted exactly; under a layout the one that
    fits; and notes."""
    from napkin.planning.scaling import at_most, largest_of_family

    limit = int(most.value)
    config = _proportions(str(question.like), limit)
    model, parameters = largest_of_family(config, at_most(limit))
    notes = [_keeps(config)]
    terms = _shape("like", model, parameters)
    if question.layout is not None:
        fitting, more = _fitting(question.layout, question.hardware, config)
        return [*terms, *fitting], [*notes, *more]
    return terms, notes


def _deep_enough(config: Config, least: int) -> Model:
    """Return the published shape, with as many layers as are frozen where it has fewer."""
    from napkin.architectures import build
    from napkin.planning.scaling import Proportions

    model = build(config)
    if len(model.stacks) > 1 or model.depth >= least:
        return model
    shape = Proportions(config)
    return shape.model(shape.heads, least)


def _shape(path: str, model: Model, parameters: int) -> list[Term]:
    """Return a shape as quantities."""
    found = (
        ("params", parameters, "param"),
        ("hidden_size", model.hidden, "1"),
        ("layers", model.depth, "1"),
        ("heads", model.heads, "1"),
        ("kv_heads", model.kv_heads, "1"),
        ("head_dim", model.head_dim, "1"),
    )
    return [leaf(f"{path}/{name}", value, unit, TRUE, "exact count of the shape") for name, value, unit in found]


def _fitting(layout: LayoutFit, hardware: Hardware, config: Config) -> tuple[list[Term], list[str]]:
    """Return the largest shape whose whole step fits: states as the layout divides them, activations, the loss,
    overhead; and notes."""
    from napkin.planning import verdicts
    from napkin.planning.scaling import largest_of_family

    layout.setup_for(
        _deep_enough(config, layout.least)
    )  # an option that makes no layout is refused here, not taken for a lack of memory
    available = hardware.term("capacity", "fits/capacity", "byte")

    def evaluated(model: Model) -> verdicts.Fit:
        return verdicts.evaluate(model, *layout.setup_for(model), available.value)

    def fits(model: Model) -> bool:
        return bool(evaluated(model).reported.used.value <= available.value)

    try:
        model, parameters = largest_of_family(config, fits, layout.tp, layout.pp, layout.stages, layout.least)
    except NapkinError as problem:
        if problem.status != BROKEN:
            raise
        return [available], [f"fits/… is omitted: {problem.message} under this layout"]
    used = evaluated(model).reported.used.renamed("fits/memory")
    note = "fits/…: the largest that fits one step under this layout, including activations and overhead"
    return [*_shape("fits", model, parameters), used, available], [note]


COMMAND = Command(
    "max-params",
    "The largest model whose training state fits, or with --inference whose weights do",
    run,
    brief="The largest model whose training state fits",
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
    ),
    examples=(
        "max-params --gpus 8 --hardware h100",
        "max-params --gpus 8 --hardware h100 --precision bf16-fp32state",
        "max-params --gpus 1 --hardware h100 --inference --dtype nvfp4",
        "max-params --gpus 8 --hardware h100 --like llama3",
        "max-params --gpus 8 --hardware h100 --like llama3 --zero 3 --seq 8192 --recompute full",
    ),
)

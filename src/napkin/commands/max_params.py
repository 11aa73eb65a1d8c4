"""`napkin max-params`: the largest model whose training state, or whose weights, fit on the accelerators."""

from __future__ import annotations

from napkin import formats
from napkin.commands.command import Command, Inputs
from napkin.commands.machine import read_hardware
from napkin.commands.setup import read_setup
from napkin.errors import BROKEN, NapkinError
from napkin.footprint import capacity
from napkin.inputs.hardware import Hardware
from napkin.inputs.model import Config
from napkin.operations.model import Model
from napkin.options.training import SETUP_DEFAULTS, SETUP_OPTIONS, STATE_OPTIONS
from napkin.render.answer import Answer
from napkin.term import TRUE, Term, leaf
from napkin.training import optimizers
from napkin.training.precision import precision

LAYOUT = (
    *(name for name in (*SETUP_OPTIONS, *STATE_OPTIONS) if name not in ("gpus", "precision", "optimizer")),
    "compile",
)
"""Options that ask what fits under a layout, beside the ceiling."""

INFERENCE_DTYPES = ("fp32", "bf16", "fp8", "mxfp8", "int8", "nvfp4", "mxfp4")


def run(inputs: Inputs) -> Answer:
    hardware = read_hardware(inputs)
    inputs.need("gpus", "how many?")
    per_gpu = hardware.term("memory", "memory/capacity_per_gpu", "byte/GPU")
    total = capacity.total_capacity(per_gpu, inputs.term("gpus"))
    inputs.note("the printed gigabytes of all GPUs, states perfectly sharded, nothing left for activations: a ceiling")
    if inputs.get("inference"):
        return _inference(inputs, hardware, total, per_gpu)
    if inputs.get("dtype") is not None:
        raise NapkinError("--dtype belongs to --inference", "training takes a policy: --precision bf16-mixed")
    each = _bytes_per_param(inputs)
    largest = capacity.most_params(total, each)
    shapes = _like(inputs, largest)
    truth = [term for term in shapes if term.name == "fits/params"]  # beside the ceiling
    rest = [term for term in shapes if term.name != "fits/params"]
    terms = [largest, *truth, total, each, *each.parts, per_gpu, *rest]
    return Answer("max-params", _title(inputs, hardware, f"{each.value:g} bytes a parameter"), terms)


def _like(inputs: Inputs, most: Term) -> list[Term]:
    """The largest shape in a published model's proportions, counted exactly; under a layout the one that fits."""
    laid_out = [name for name in LAYOUT if name in inputs]
    if inputs.get("like") is None:
        if laid_out:
            raise NapkinError(f"--{laid_out[0]} needs a shape", "--like llama3 gives one")
        return []
    from napkin.inputs.model import load_config
    from napkin.inputs.presets import is_preset
    from napkin.planning.scaling import at_most, largest_of_family, nearest_of_family

    name, limit = inputs.get("like"), int(most.value)
    config = (None if is_preset(name) else nearest_of_family(name, limit)) or load_config(name)
    model, parameters = largest_of_family(config, at_most(limit))
    inputs.note(f"the shape keeps the proportions of {config.name}: head size, width to depth, inner width to width")
    terms = _shape("like", model, parameters)
    return [*terms, *_fitting(inputs, config)] if laid_out else terms


def _shape(path: str, model: Model, parameters: int) -> list[Term]:
    found = (
        ("params", parameters, "param"),
        ("hidden_size", model.hidden, "1"),
        ("layers", model.depth, "1"),
        ("heads", model.heads, "1"),
        ("kv_heads", model.kv_heads, "1"),
        ("head_dim", model.head_dim, "1"),
    )
    return [leaf(f"{path}/{name}", value, unit, TRUE, "exact count of the shape") for name, value, unit in found]


def _fitting(inputs: Inputs, config: Config) -> list[Term]:
    """The largest shape whose whole step fits: states as the layout divides them, activations, the loss, overhead."""
    from napkin.architectures import build
    from napkin.planning import verdicts
    from napkin.planning.scaling import largest_of_family

    for name, value in SETUP_DEFAULTS.items():
        inputs.default(name, value)
    read_setup(inputs, build(config))  # an option that makes no layout is refused here, not taken for a lack of memory
    capacity = read_hardware(inputs).term("capacity", "fits/capacity", "byte")
    compiled = bool(inputs.get("compile"))

    def found(model: Model) -> verdicts.Fit:
        setup = read_setup(inputs, model)
        return verdicts.evaluate(model, setup, inputs.get("implementation"), capacity.value, compiled)

    def fits(model: Model) -> bool:
        return bool(found(model).reported.used.value <= capacity.value)

    pp, vp = inputs.get("pp"), inputs.get("vp")
    try:
        model, parameters = largest_of_family(config, fits, inputs.get("tp"), pp, pp * vp if vp > 1 else 1)
    except NapkinError as problem:
        if problem.status != BROKEN:
            raise
        inputs.note(f"fits/… is left out: {problem.message} under this layout")
        return [capacity]
    best = found(model)
    used = best.reported.used.renamed("fits/memory")
    inputs.note(
        "fits/…: the largest that fits one step under this layout, activations and overhead in: the ceiling's truth"
    )
    return [*_shape("fits", model, parameters), used, capacity]


def _bytes_per_param(inputs: Inputs) -> Term:
    """As given, or what the policy and the optimizer keep, one by one."""
    if inputs.get("bytes-per-param") is not None:
        for name in ("precision", "optimizer"):
            if name in inputs:
                raise NapkinError(
                    f"a contradiction: --bytes-per-param and --{name} both say what a parameter takes",
                    "leave out one of the two",
                )
        return inputs.term("bytes-per-param", "bytes_per_param")
    policy = precision(inputs.get("precision") or inputs.default("precision", "bf16-mixed"))
    optimizer, _ = optimizers.find(inputs.get("optimizer") or inputs.default("optimizer", "adamw"))
    if policy.master is None and policy.param != "fp32":
        inputs.note(f"no fp32 master copy: updates under half of {policy.param}'s spacing at a weight are rounded away")
    if optimizer.note:
        inputs.note(f"{optimizer.name} {optimizer.note}")
    return capacity.bytes_per_param(policy, optimizer)


def _inference(inputs: Inputs, hardware: Hardware, total: Term, per_gpu: Term) -> Answer:
    """Weights at one dtype, or at each; nothing for the key-value cache."""
    for name in ("bytes-per-param", "precision", "optimizer", "like", *LAYOUT):
        if name in inputs:
            raise NapkinError(f"--{name} belongs to training", "for --inference give --dtype")
    first = formats.find(inputs.get("dtype") or inputs.default("dtype", "bf16"))
    inputs.note("weights alone: the key-value cache of the sequences being served comes on top")
    each = capacity.width(first.name, "bytes_per_param")
    terms = [capacity.most_params(total, each), total, each, per_gpu]
    for dtype in INFERENCE_DTYPES:
        terms.append(
            capacity.most_params(total, capacity.width(dtype, f"bytes_per_param/{dtype}"), f"params/max/{dtype}")
        )
    return Answer("max-params", _title(inputs, hardware, f"{first.name} weights alone"), terms)


def _title(inputs: Inputs, hardware: Hardware, what: str) -> str:
    return f"{inputs.get('gpus'):,} × {hardware.name}, {what}"


COMMAND = Command(
    "max-params",
    "The largest model whose training state fits, or with --inference whose weights do",
    run,
    (
        "gpus",
        "hardware",
        "hardware-file",
        "bytes-per-param",
        "precision",
        "optimizer",
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

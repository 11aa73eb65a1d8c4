"""`napkin bench`: measure this machine. torch is imported only when something is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from napkin import units
from napkin.bench.verdicts import COMPARED, VERDICTS
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, did_you_mean
from napkin.options.comparing import MEASURED
from napkin.options.machine import FIGURES
from napkin.options.option import parsed
from napkin.render.answer import Answer

if TYPE_CHECKING:
    from napkin.bench.modes import Mode
    from napkin.bench.run import BenchRequest, ModelRequest
    from napkin.bench.step_plan import StepPlan
    from napkin.operations.model import Model

LARGEST_SIDE = 1 << 20


def run(inputs: Inputs) -> Answer:
    """Measure this machine, or compare two profiles."""
    words = inputs.texts("what")
    for name in FIGURES:
        if name in inputs:
            raise NapkinError(f"--{name}: bench does not take it", "put it in a file: --hardware-file")
    if words and words[0] not in MEASURED:
        raise NapkinError(
            f"bench cannot measure {words[0]!r}", did_you_mean(words[0], MEASURED) or f"one of {', '.join(MEASURED)}"
        )
    if words[:1] == ("compare",):
        from napkin.commands.bench.answer import compare

        return compare(words[1:])
    from napkin.bench.run import run as measure

    done = measure(_read_request(inputs, words))
    if done.rank > 0:
        raise SystemExit(0)  # rank 0 speaks for all
    from napkin.commands.bench.answer import answer

    return answer(done)


# --- the request ---------------------------------------------------------------------------------------------------


def _read_request(inputs: Inputs, words: tuple[str, ...]) -> BenchRequest:
    """Read the requested measurements."""
    from napkin.bench.modes import DEFAULT, FULL, GROUPS, QUICK
    from napkin.bench.run import BenchRequest
    from napkin.commands.question.machine import read_hardware_table
    from napkin.inputs.hardware import find

    if inputs.flag("quick") and inputs.flag("full"):
        raise NapkinError("--quick and --full cannot be combined", "choose one")
    mode = QUICK if inputs.flag("quick") else FULL if inputs.flag("full") else DEFAULT
    known = read_hardware_table(inputs)
    hardware = None
    if inputs.has("hardware"):
        hardware = find(inputs.text("hardware"), known)
        for note in hardware.notes:
            inputs.note(note)
    groups: tuple[str, ...] = GROUPS
    if words:
        groups = ("train",) if words[0] == "step" else (words[0],)
    elif inputs.has("only"):
        groups = _listed(inputs.text("only"), GROUPS, "--only")
    data = inputs.text_or_none("data") or "normal"
    if data not in ("normal", "zeros"):
        raise NapkinError(f"--data: {data!r} is neither normal nor zeros")
    shapes = tuple(_shape(word) for word in words[1:]) if words[:1] == ("matmul",) else ()
    if words[:1] != ("matmul",) and words[1:]:
        raise NapkinError(f"bench {words[0]}: unexpected {words[1]!r}", "napkin bench --help shows the usage")
    model = _read_model(inputs)
    if words[:1] == ("step",) and model is None:
        raise NapkinError("bench step: --model is missing", "for example --model llama3-8b --layers 4")
    if model is None and inputs.has("tp"):
        raise NapkinError("--tp splits a model's matmuls: --model is missing", "for example --model llama3-8b --tp 8")
    named = words or (("matmul",) if model is not None and groups == ("matmul",) else ())
    return BenchRequest(
        mode=mode,
        groups=groups,
        dtypes=_read_dtypes(inputs),
        device=inputs.text_or_none("device"),
        output=inputs.text_or_none("output"),
        resume=inputs.flag("resume"),
        time_limit=inputs.number_or_none("time-limit"),
        quiet=inputs.flag("quiet"),
        data=data,
        command=("bench", *named),
        hardware=hardware,
        known=known,
        shapes=shapes,
        model=_read_model_request(inputs, model) if model is not None and "matmul" in groups else None,
        step=_read_step_plan(inputs, model, mode) if "train" in groups else None,
    )


def _listed(text: str, known: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return known names from a list; reject unknown ones."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise NapkinError(f"{where}: unknown {name!r}", did_you_mean(name, known) or f"one of {', '.join(known)}")
    if not names:
        raise NapkinError(f"{where}: names nothing", f"some of {', '.join(known)}")
    return names


def _read_dtypes(inputs: Inputs) -> tuple[str, ...]:
    """Return the named formats, or all of them; () leaves the choice to the run."""
    from napkin.bench.formats import FORMATS, named

    text = inputs.text_or_none("dtype")
    if text is None:
        return ()
    if text == "all":
        return tuple(FORMATS)
    return _listed(",".join(map(named, text.split(","))), tuple(FORMATS), "--dtype")


def _shape(word: str) -> tuple[int, int, int]:
    """Read a matmul's shape MxKxN."""
    sides = parsed(units.shape, word, "bench matmul")
    if len(sides) != 3 or not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise NapkinError(f"bench matmul: {word!r} is not a shape MxKxN", "for example 4096x4096x4096: (M x K)(K x N)")
    return sides[0], sides[1], sides[2]


def _read_model(inputs: Inputs) -> Model | None:
    """Return the model of --model."""
    name = inputs.text_or_none("model")
    if name is None:
        return None
    from napkin.architectures import build
    from napkin.commands.question.named import named_config

    config, described = named_config(name)
    if described:
        inputs.assume(described)
    return build(config)


def _read_sequence(inputs: Inputs, model: Model, default: int) -> int:
    """Return the tokens in a sequence."""
    length = inputs.integer_or_none("seq")
    if length is None:
        length = min(default, model.max_length or default)
        inputs.default("seq", str(length))
    return int(length)


def _read_model_request(inputs: Inputs, model: Model) -> ModelRequest:
    """Read the model whose matmuls are measured."""
    from napkin.bench.model_shapes import attentions, gemms
    from napkin.bench.run import ModelRequest

    tp, micro = inputs.integer_or_none("tp") or 1, inputs.integer_or_none("micro-batch") or 1
    length = _read_sequence(inputs, model, 4096)
    return ModelRequest(
        model.name, tp, micro * length, gemms(model, tp, micro, length), attentions(model, tp, micro, length)
    )


# --- the training step ---------------------------------------------------------------------------------------------

DEFAULT_MODEL = "llama3-8b"
HOST_STEPS = 5


def _read_step_plan(inputs: Inputs, model: Model | None, mode: Mode) -> StepPlan:
    """Read the training step that is measured."""
    from napkin.architectures import build
    from napkin.bench.step_plan import PRECISIONS, TINY, VARIANTS, StepPlan, at_depth
    from napkin.inputs.load import Document
    from napkin.inputs.model_file import config_from, load_config

    on_gpu = (inputs.text_or_none("device") or "cuda").partition(":")[0] in ("cuda", "rocm")
    if model is None:
        tiny = config_from("tiny llama", Document("tiny llama", TINY), TINY)
        model = build(load_config(DEFAULT_MODEL) if on_gpu else tiny)
    # a host's 16-bit matmuls are emulated on most machines, and its steps are to be short
    precision = inputs.text_or_none("precision") or ("bf16-pure" if on_gpu else "fp32")
    if precision not in PRECISIONS:
        raise NapkinError(
            f"--precision: bench trains in {', '.join(PRECISIONS)}, not in {precision!r}",
            did_you_mean(precision, PRECISIONS) or "torch's own optimizers keep no separate master copy",
        )
    recompute = inputs.text_or_none("recompute") or "none"
    if recompute not in ("none", "full"):
        raise NapkinError(f"--recompute: bench measures none and full, not {recompute!r}")
    layers = (inputs.integer("layers"),) if inputs.has("layers") else mode.layers
    if inputs.has("layers") and max(layers) > model.depth:
        inputs.note(f"{model.name} has {model.depth} layers: no more are measured")
    compiled = inputs.flag("compile") if inputs.has("compile") else mode.compiled and on_gpu
    plan = StepPlan(
        model=model,
        sequence=_read_sequence(inputs, model, mode.sequence),
        micro_batch=inputs.integer_or_none("micro-batch") or (0 if on_gpu else 1),
        layers=layers,
        precision=precision,
        recompute=recompute,
        variants=VARIANTS if compiled else VARIANTS[:1],
        steps=inputs.integer_or_none("steps") or (mode.steps if on_gpu else HOST_STEPS),
    )
    at_depth(model, 1)  # refuse here what cannot be built, before anything is measured
    return plan


COMMAND = Command(
    "bench",
    "Measure this machine: FLOP/s, bandwidth, a training step",
    run,
    brief="Measure this machine: FLOP/s, bandwidth, a training step",
    options=(
        "device",
        "quick",
        "full",
        "dtype",
        "only",
        "model",
        "tp",
        "micro-batch",
        "seq",
        "layers",
        "steps",
        "precision",
        "recompute",
        "compile",
        "resume",
        "time-limit",
        "data",
        "hardware",
        "hardware-file",
    ),
    arguments=("what",),
    examples=(
        "bench --quick",
        "bench matmul 8192x8192x8192 --dtype bf16,fp8",
        "bench matmul --model llama3-8b --tp 8 --seq 8192",
        "bench step --model llama3-8b --layers 4",
        "bench compare before.json after.json",
    ),
    keeps=True,
    verdicts=(*VERDICTS, *COMPARED),
)

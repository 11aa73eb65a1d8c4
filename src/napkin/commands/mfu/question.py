"""The question of `mfu`, read from the options: a measured rate of training."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.mfu.counted import read_counted
from napkin.commands.mfu.measured_rate import (
    Counted,
    known_convention,
    read_counted_parameters,
    read_rate,
    without_rate,
)
from napkin.commands.question.frozen import read_trained
from napkin.commands.question.machine import (
    WHICH,
    check_dtype,
    read_dtype,
    read_gpus,
    read_hardware,
    read_hardware_table,
)
from napkin.commands.question.model import read_model
from napkin.commands.question.size import read_size
from napkin.commands.question.step_model import StepQuestion, read_step
from napkin.commands.question.untimed import read_untimed
from napkin.counting import conventions, flops, utilization
from napkin.errors import NapkinError
from napkin.inputs.hardware import Hardware, find
from napkin.inputs.log import Logged
from napkin.inputs.log_file import read_log
from napkin.options.layout import BATCH
from napkin.options.model import MODEL_OPTIONS, PREDICTING
from napkin.options.question import MEASURED_RATES
from napkin.options.training import SETUP_DEFAULTS, STEP_MODEL, TASKED
from napkin.record import record
from napkin.render.figures import amount
from napkin.term import Term
from napkin.training.recomputation import recompute

STEP = "a step is predicted to compare with only for a MODEL whose --gpus, --global-batch and layout are given"
MODEL = "name a model instead of --params"
DESCRIBES = tuple(name for name in (*STEP_MODEL, "confidence") if name not in ("recompute", *BATCH[1:]))
"""Options that request a prediction for comparison; recomputation and the batch also apply to the rate itself."""
OF_MODEL = ("flops", "document-lengths", "mean-document-length", *MODEL_OPTIONS, *PREDICTING, *DESCRIBES, *TASKED)
"""Options that need a MODEL's shapes."""


@record
class MfuQuestion:
    """A measured rate of training.

    name       of the model                       per_token   FLOPs per token by convention
    repeated   1 + the recomputed share           rate        tokens/s/GPU
    peak       dense, FLOP/s/GPU, of `dtype`      gpus        of the job, where given
    printed    the accelerator from the table, if --peak-flops replaces its peak
    basis      the convention whose MFU the verdict is about
    claimed    an MFU that someone reports        logged      the log that the rate comes from
    step       the layout that the step model predicts for comparison, if one is described
    """

    name: str
    per_token: Mapping[str, Term]
    repeated: Term
    hardware: Hardware
    printed: Hardware | None
    dtype: str
    peak: Term
    rate: Term
    gpus: Term | None
    basis: str
    allowed: Term | None
    half: Term | None
    claimed: float | None
    logged: Logged | None
    step: StepQuestion | None


def read(inputs: Inputs) -> MfuQuestion:
    """Read the question."""
    check_missing(inputs, rated=False)
    line = inputs.text_or_none("log")
    return read_rated(inputs, read_log(line) if line is not None else None)


def read_rated(inputs: Inputs, logged: Logged | None) -> MfuQuestion:
    """Read the question about a log, or about the rate in an option."""
    read_untimed(inputs)
    check_missing(inputs, logged is not None)
    name, counted, repeated = _read_counted(inputs)
    read_gpus(inputs)
    hardware = read_hardware(inputs, ("peak-flops",))
    dtype = read_dtype(inputs, hardware)
    peak = hardware.term(f"peak/{dtype}", "peak", "FLOP/s/GPU")
    rate = read_rate(inputs, counted, logged)
    claimed = inputs.number_or_none("claimed-mfu") or (logged.quantities.get("mfu") if logged else None)
    return MfuQuestion(
        name=name,
        per_token=counted.per_token,
        repeated=repeated,
        hardware=hardware,
        printed=find(inputs.text("hardware"), read_hardware_table(inputs)) if "peak-flops" in inputs else None,
        dtype=dtype,
        peak=peak,
        rate=rate,
        gpus=inputs.term("gpus") if inputs.has("gpus") else None,
        basis=_read_basis(inputs, counted),
        allowed=counted.allowed,
        half=counted.half,
        claimed=claimed,
        logged=logged,
        step=_read_step(inputs, logged is not None and logged.lines > 1),
    )


def check_missing(inputs: Inputs, rated: bool) -> None:
    """Raise an error that names all inputs missing for an MFU. rated: a log states the rate."""
    sized = {} if inputs.has("model") else {"params": "a MODEL, or its number of parameters"}
    unrated = () if rated or any(inputs.has(name) for name in MEASURED_RATES) else (without_rate(),)
    inputs.need_all({**sized, "hardware": WHICH}, unrated)


def _read_counted(inputs: Inputs) -> tuple[str, Counted, Term]:
    """Return the model, its FLOPs per token, and 1 + the recomputed share."""
    again = recompute(inputs.text("recompute"))
    inputs.because(("batch", "size"), "it belongs to a matmul", "napkin mfu matmul MxKxN")
    inputs.because((*BATCH[1:], *DESCRIBES), STEP, "name them all, or leave it out")
    inputs.because(
        ("document-lengths", "mean-document-length", *MODEL_OPTIONS, *TASKED), "it belongs to a MODEL", MODEL
    )
    read_size(inputs, OF_MODEL)
    if not inputs.has("model"):
        inputs.because(PREDICTING, "it belongs to a MODEL", MODEL)
        active = "active-params" if inputs.has("active-params") else "params"
        counted = read_counted_parameters(inputs, conventions.of_parameters(inputs.term(active)))
        return f"{amount(inputs.integer('params'))} parameters", counted, utilization.repeated_of_parameters(again)
    if inputs.has("params"):
        raise NapkinError("MODEL and --params cannot be combined", "the model has its own count")
    model = read_model(inputs)
    found = read_counted(inputs, model)
    over = found.over(model, 1)
    others = flops.forwards_of(found.passes, found.over)
    run = read_trained(inputs, model, again)
    return model.name, found.counted, utilization.repeated(found.passes.trained, run, over, again, others)


def _read_basis(inputs: Inputs, counted: Counted) -> str:
    """Return the convention whose MFU the verdict is about."""
    given = inputs.text_or_none("flops") if not inputs.has("tflops") else None
    if given is None:
        return counted.basis
    return known_convention(str(given), counted)


def _read_step(inputs: Inputs, from_file: bool) -> StepQuestion | None:
    """Return the step to predict: of a complete log, or of a layout, of a model whose GPUs and batch are known."""
    described = from_file or any(name in inputs for name in DESCRIBES)
    batched = inputs.has("global-batch") or inputs.has("grad-accum")
    if not described or not batched or any(not inputs.has(name) for name in ("model", "gpus")):
        return None
    if not from_file:
        check_dtype(inputs)
    inputs.defaults(SETUP_DEFAULTS)
    return read_step(inputs, read_model(inputs))

"""`napkin mfu`: from a measured rate to model and hardware FLOPs utilization, under every published convention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.commands.command import Command
from napkin.commands.frozen import read_trained
from napkin.commands.inputs import Inputs
from napkin.commands.machine import WHICH, check_dtype, read_dtype, read_hardware, read_hardware_table
from napkin.commands.measured_rate import Counted, known_convention, read_rate, without_rate
from napkin.commands.model import read_documents, read_indexer_loss, read_model, read_sequence, read_target
from napkin.commands.nodes import read_gpus
from napkin.commands.screens.mfu import of_rate
from napkin.commands.single import run_single
from napkin.commands.size import read_size
from napkin.commands.step_model import StepQuestion, read_step
from napkin.commands.untimed import read_untimed
from napkin.counting import conventions, flops, measured_rate, utilization
from napkin.errors import BROKEN, OK, NapkinError
from napkin.evidence.gap import gap_of, spread_note
from napkin.inputs.hardware import Hardware, find
from napkin.inputs.log import Logged
from napkin.inputs.log_file import read_log
from napkin.options.layout import BATCH, MACHINE_SIZE
from napkin.options.model import MODEL_OPTIONS
from napkin.options.question import MEASURED_RATES
from napkin.options.training import SETUP_DEFAULTS, STEP_MODEL, UNTIMED
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.figures import amount
from napkin.term import GIVEN, Term, leaf
from napkin.training.recomputation import recompute

VERDICT_BY = "palm"
"""The convention whose MFU the verdict is about, where none is named and nothing is frozen."""
STEP = "a step is predicted to compare with only for a MODEL whose --gpus, --global-batch and layout are given"
MODEL = "name a model instead of --params"
NEAR = 0.03
"""Relative difference up to which a convention explains a claim: logs and papers print two or three digits."""
DESCRIBES = tuple(name for name in (*STEP_MODEL, "confidence") if name not in ("recompute", *BATCH[1:]))
"""Options that ask for a prediction next to the rate; recomputation and the batch serve the rate itself too."""
OF_MODEL = ("flops", "document-lengths", "mean-document-length", *MODEL_OPTIONS, *DESCRIBES)
"""Options that need a MODEL's shapes."""


@record
class MfuQuestion:
    """A measured rate of training.

    name       of the model                       per_token   FLOPs per token by convention
    repeated   1 + the recomputed share           rate        tokens/s/GPU
    peak       dense, FLOP/s/GPU, of `dtype`      gpus        of the job, where given
    printed    the accelerator as the table has it, where --peak-flops replaces its peak
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
    claimed: float | None
    logged: Logged | None
    step: StepQuestion | None


def run(inputs: Inputs) -> Answer:
    """Answer for a model, a number of parameters, or a matmul."""
    if inputs.has("model"):
        single = run_single(inputs)
        if single is not None:
            return single
    if inputs.has("time"):
        raise NapkinError("--time belongs to a matmul", "the time of a training step is --step-time")
    return answer(read(inputs))


# --- the question ----------------------------------------------------------------------------------------------------


def read(inputs: Inputs) -> MfuQuestion:
    """Read the question."""
    read_untimed(inputs)
    _check_missing(inputs)
    name, counted, repeated = _read_counted(inputs)
    read_gpus(inputs)
    hardware = read_hardware(inputs, ("peak-flops",))
    dtype = read_dtype(inputs, hardware)
    peak = hardware.term(f"peak/{dtype}", "peak", "FLOP/s/GPU")
    line = inputs.text_or_none("log")
    logged = read_log(line) if line is not None else None
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
        claimed=claimed,
        logged=logged,
        step=_read_step(inputs, logged is not None and logged.lines > 1),
    )


def _check_missing(inputs: Inputs) -> None:
    """Refuse a question that lacks what every MFU needs, naming all of it."""
    sized = {} if inputs.has("model") else {"params": "a MODEL, or its number of parameters"}
    unrated = () if any(inputs.has(name) for name in MEASURED_RATES) else (without_rate(),)
    inputs.need_all({**sized, "hardware": WHICH}, unrated)


def _read_counted(inputs: Inputs) -> tuple[str, Counted, Term]:
    """Return what ran, its FLOPs per token, and 1 + the recomputed share."""
    again = recompute(inputs.text("recompute"))
    inputs.because(("batch", "size"), "it belongs to a matmul", "napkin mfu matmul MxKxN")
    inputs.because((*BATCH[1:], *DESCRIBES), STEP, "name them all, or leave it out")
    inputs.because(("document-lengths", "mean-document-length", *MODEL_OPTIONS), "it belongs to a MODEL", MODEL)
    read_size(inputs, OF_MODEL)
    if not inputs.has("model"):
        active = "active-params" if inputs.has("active-params") else "params"
        six_n = conventions.of_parameters(inputs.term(active))
        seq = inputs.peek("seq")  # only some rates need it
        counted = Counted({"6nd": six_n}, seq if isinstance(seq, int) else None)
        return f"{amount(inputs.integer('params'))} parameters", counted, utilization.repeated_of_parameters(again)
    if inputs.has("params"):
        raise NapkinError("MODEL and --params cannot be combined", "the model has its own count")
    model = read_model(inputs)
    seq = read_sequence(inputs, model)
    documents = read_documents(inputs, seq)
    target, indexer_loss = read_target(inputs, model), read_indexer_loss(inputs, model)
    over = flops.works(model, 1, seq, target=target, documents=documents, indexer_loss=indexer_loss)
    trained = read_trained(inputs, model)
    per_token = conventions.all_conventions(model, over)
    if trained is not model:  # the other conventions count the gradients of all weights
        per_token["torch"] = conventions.per_token(trained, over, "torch")
    counted = Counted(per_token, seq, VERDICT_BY if trained is model else "torch")
    return model.name, counted, utilization.repeated(trained, over, again)


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


# --- the answer ------------------------------------------------------------------------------------------------------


def answer(question: MfuQuestion) -> Answer:
    """Answer with MFU and HFU in every convention, the verdict, and what explains a claim or a gap."""
    rate, peak = question.rate, question.peak
    done = {name: utilization.achieved(name, rate, per_token) for name, per_token in question.per_token.items()}
    used = {name: utilization.mfu(name, achieved, peak) for name, achieved in done.items()}
    hardware_used = [utilization.hfu(name, mfu, question.repeated) for name, mfu in used.items()]
    main = used[question.basis]
    answer = Answer(
        "mfu",
        [
            main.renamed("mfu"),
            *used.values(),
            *hardware_used,
            *done.values(),
            rate.renamed(measured_rate.PATH),
            *([measured_rate.of_job(rate, question.gpus)] if question.gpus is not None else []),
            peak,
        ],
        verdict=utilization.verdict_of(main.value),
        status=BROKEN if main.value > 1 else OK,
        notes=_remarks(question, main),
    )
    if question.logged is not None and question.logged.lines > 1:
        answer.notes.append(spread_note(question.logged.lines, question.logged.slow))
    if question.step is not None:
        _compare(answer, question.step, rate)
    said = answer.notes[1:]  # what the first says, the screen's second line does
    if question.claimed is not None:
        again = hardware_used if question.repeated.value != 1 else []
        said += explain(float(question.claimed), [*used.values(), *again], question.hardware, question.dtype)
        answer.notes = [*answer.notes[:1], *said]
        answer.terms = (*answer.terms, leaf("mfu/claimed", question.claimed, "1", GIVEN))
    answer.screen = of_rate(question.name, answer, question.basis, (question.hardware.name, question.dtype), said)
    return answer


def _compare(answer: Answer, step: StepQuestion, rate: Term) -> None:
    """Add the predicted step, the gap, and what would explain it."""
    gap = gap_of(step.setup.layout, step.prediction, rate, step.confidence, step.stack_named)
    answer.terms = (*answer.terms, gap.measured, gap.predicted, gap.ratio)
    seconds, factor = gap.predicted.value, math.exp(gap.half)
    answer.intervals["step/predicted"] = (seconds / factor, seconds * factor)
    words = f"measured {gap.measured.value:.4g} s a step, predicted {seconds:.4g} s (×/÷ {factor:.2f})"
    if gap.is_within:
        answer.notes.append(f"{words}: within what such predictions miss by")
    else:
        answer.notes.append(f"{words}: {'slower' if gap.ratio.value > 1 else 'faster'} than nine in ten such steps")
    if not gap.is_within or any("what it would take" in line for line in gap.causes):
        answer.notes += gap.causes


def _remarks(question: MfuQuestion, main: Term) -> list[str]:
    """Return what the verdict is about, and where to look if it is bad or impossible."""
    hardware, dtype = question.hardware, question.dtype
    notes = [
        f"the verdict is about mfu/{question.basis}, against {hardware.name}'s dense {dtype} peak: of published "
        f"training steps half reach {utilization.GOOD} (good), nine in ten {utilization.FAIR} (fair), else poor"
    ]
    printed = question.printed
    if printed is not None:
        sparse = printed.sparse_peak(dtype)
        if sparse and abs(hardware.peak(dtype) / sparse - 1) <= NEAR:
            times = f"{sparse / printed.peak(dtype):.3g}"
            notes.append(
                f"--peak-flops is the sparse peak of {printed.name}; training is dense: the MFU is {times} × this"
            )
    if main.value > 1:
        causes = "the whole job's tokens taken for one GPU's, fewer --gpus than ran, a wrong accelerator or dtype"
        notes.append(f"an MFU above 1 is impossible: look for {causes}")
    elif main.value < utilization.FAIR:
        notes.append("look for data loading, fp32 without TF32, launches bound by the CPU, a tiny batch, a wrong peak")
    return notes


def explain(claimed: float, terms: Sequence[Term], hardware: Hardware, dtype: str) -> list[str]:
    """Return which conventions, against the dense or the sparse peak, give a claimed MFU."""
    sparse = hardware.sparse_peak(dtype)
    readings = [(term.name, float(term.value)) for term in terms]
    if sparse:
        share = hardware.peak(dtype) / sparse
        readings += [(f"{name} against the sparse peak", value * share) for name, value in readings]
    ranked = sorted(readings, key=lambda reading: abs(reading[1] / claimed - 1))
    near = [f"{name} ({value:.4g})" for name, value in ranked if abs(value / claimed - 1) <= NEAR]
    if near:
        return [f"a claimed MFU of {claimed:.4g} is explained by {', '.join(near[:4])}"]
    name, value = ranked[0]
    return [f"no convention explains a claimed MFU of {claimed:.4g}; the nearest is {name} ({value:.4g})"]


COMMAND = Command(
    "mfu",
    "Model and hardware FLOPs utilization from a measured rate, under every convention",
    run,
    brief="Model FLOPs utilization from a measured rate",
    options=(
        *MODEL_OPTIONS,
        *MEASURED_RATES,
        "time",
        "params",
        "active-params",
        *MACHINE_SIZE,
        "hardware",
        "hardware-file",
        "dtype",
        "seq",
        "target-seq",
        "document-lengths",
        "mean-document-length",
        "indexer-loss",
        "batch",
        "flops",
        "claimed-mfu",
        *STEP_MODEL,
        "confidence",
        *UNTIMED,
    ),
    arguments=("model", "size"),
    verdicts=utilization.VERDICTS,
    defaults={"recompute": "none"},
    examples=(
        "mfu llama3-8b --tokens-per-second 98000 --gpus 8 --hardware h100 --seq 8192",
        "mfu llama3-70b --tflops 430 --hardware h100 --seq 8192 --claimed-mfu 0.43",
        "mfu --params 7B --tokens-per-second-per-gpu 3100 --hardware a100",
        'mfu llama3-8b --log "tps: 7,023  tflops: 411.26  mfu: 41.58%" --hardware h100 --seq 8192',
        "mfu matmul 16384x32768x8192 --time 0.16s --dtype fp32 --hardware h100",
    ),
)

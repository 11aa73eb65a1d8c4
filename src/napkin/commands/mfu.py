"""`napkin mfu`: from a measured rate to model and hardware FLOPs utilisation, under every published convention."""

from __future__ import annotations

from napkin.commands.command import Command, Inputs
from napkin.commands.machine import read_dtype, read_hardware, read_hardware_table
from napkin.commands.model import parse_convention, read_documents, read_model, read_sequence
from napkin.commands.single import answered
from napkin.counting import conventions, flops, utilization
from napkin.counting.six_n import six
from napkin.errors import BROKEN, OK, NapkinError
from napkin.inputs.hardware import Hardware, find
from napkin.inputs.log import Logged, read_log
from napkin.options.model import MODEL_OPTIONS
from napkin.options.question import MEASURED_RATES
from napkin.options.training import STEP_MODEL
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import ASSUMED, GIVEN, Term, divide, leaf, multiply
from napkin.training.recomputation import recompute
from napkin.units import human

VERDICT_BY = "palm"
LOGGED_BY = "megatron"
NEAR = 0.03
"""Relative difference up to which a convention explains a claim: logs and papers print two or three digits."""


@record
class Subject:
    """What ran: FLOPs per token by convention, tokens in a sequence, and 1 + the recomputed share."""

    name: str
    per_token: dict[str, Term]
    seq: int | None
    repeated: Term


def run(inputs: Inputs) -> Answer:
    if inputs.get("model") is not None:
        single = answered(inputs)
        if single is not None:
            return single
    if inputs.get("time") is not None:
        raise NapkinError("--time belongs to a matmul", "the time of a training step is --step-time")
    return _of_model(inputs)


def _of_model(inputs: Inputs) -> Answer:
    subject = _subject(inputs)
    hardware = read_hardware(inputs)
    dtype = read_dtype(inputs, hardware)
    peak = hardware.term(f"peak/{dtype}", "peak", "FLOP/s/GPU")
    logged = _logged(inputs)
    rate = _rate(inputs, subject, logged)
    done = {name: utilization.achieved(name, rate, per_token) for name, per_token in subject.per_token.items()}
    used = {name: utilization.mfu(name, achieved, peak) for name, achieved in done.items()}
    hardware_used = [utilization.hfu(name, mfu, subject.repeated) for name, mfu in used.items()]
    basis = _basis(inputs, subject)
    main = used[basis]
    claimed = inputs.get("claimed-mfu") or (logged.quantities.get("mfu") if logged else None)
    answer = Answer(
        "mfu",
        f"{subject.name} at {human(rate.value, 'token/s/GPU')} on {hardware.name}",
        [
            main.renamed("mfu"),
            *used.values(),
            *hardware_used,
            *done.values(),
            rate.renamed("tokens_per_second_per_gpu"),
            *_whole(inputs, rate),
            peak,
        ],
        verdict=utilization.verdict_of(main.value),
        status=BROKEN if main.value > 1 else OK,
    )
    answer.notes += _remarks(inputs, hardware, dtype, main, basis)
    if inputs.get("model") is not None:
        _beside(answer, inputs, rate, logged)
    if claimed is not None:
        again = hardware_used if subject.repeated.value != 1 else []
        answer.notes += explain(float(claimed), [*used.values(), *again], hardware, dtype)
        answer.terms = (*answer.terms, leaf("mfu/claimed", claimed, "1", GIVEN))
    return answer


def _beside(answer: Answer, inputs: Inputs, rate: Term, logged: Logged | None) -> None:
    """With a log file or a layout: the step model's prediction beside what was seen."""
    from napkin.commands import seen

    several = logged is not None and logged.lines > 1
    if logged is not None and several:
        answer.notes.append(seen.spread_note(logged.lines, logged.slow))
    if seen.wanted(inputs, several):
        seen.beside(answer, inputs, read_model(inputs), rate)


# --- what ran --------------------------------------------------------------------------------------------------------


def _subject(inputs: Inputs) -> Subject:
    again = recompute(inputs.get("recompute"))
    if inputs.get("model") is None:
        inputs.need("params", "a MODEL, or its number of parameters")
        active = "active-params" if inputs.get("active-params") is not None else "params"
        six_n = multiply("flops/per_token/6nd", six(), inputs.term(active), source=conventions.SOURCES["6nd"])
        seq = inputs.get("seq")
        return Subject(
            human(inputs.get("params"), "param"), {"6nd": six_n}, seq, utilization.repeated_of_parameters(again)
        )
    if inputs.get("params") is not None:
        raise NapkinError("MODEL and --params cannot be combined", "the model has its own count")
    model = read_model(inputs)
    seq = read_sequence(inputs, model)
    over = flops.works(model, 1, seq, target=inputs.get("target-seq"), documents=read_documents(inputs, seq))
    named = conventions.all_conventions(model, over)
    return Subject(model.name, named, seq, utilization.repeated(model, over, again))


def _basis(inputs: Inputs, subject: Subject) -> str:
    """The convention whose MFU the verdict is about."""
    given = inputs.get("flops") if inputs.get("tflops") is None else None
    if given is None:
        return VERDICT_BY if VERDICT_BY in subject.per_token else "6nd"
    return _convention(str(given), subject)


def _convention(name: str, subject: Subject) -> str:
    word = parse_convention(name)
    if word not in subject.per_token:
        raise NapkinError(f"--flops {word} needs a model", "give a MODEL instead of --params")
    return word


# --- how fast --------------------------------------------------------------------------------------------------------


def _logged(inputs: Inputs) -> Logged | None:
    line = inputs.get("log")
    return read_log(line) if line is not None else None


def _rate(inputs: Inputs, subject: Subject, logged: Logged | None) -> Term:
    """tokens/s/GPU from whichever figure was given."""
    given = [name for name in MEASURED_RATES if inputs.get(name) is not None]
    if len(given) != 1:
        shown = ", ".join(f"--{name}" for name in given or MEASURED_RATES)
        what = "one of these is needed" if not given else "these cannot be combined"
        raise NapkinError(f"{shown}: {what}", "for example --tokens-per-second 98000")
    name = given[0]
    if logged is not None:
        return _rate_of_log(inputs, subject, logged)
    return _rate_from(inputs, subject, name, inputs.term(name))


def _rate_from(inputs: Inputs, subject: Subject, name: str, figure: Term) -> Term:
    path = "tokens_per_second_per_gpu"
    if name == "tokens-per-second-per-gpu":
        return figure
    if name == "tflops":
        return _rate_of_tflops(inputs, subject, path, figure)
    inputs.need("gpus", f"--{name} is the whole job's")
    gpus = inputs.term("gpus")
    if name == "tokens-per-second":
        return divide(path, figure, gpus)
    if subject.seq is None:
        raise NapkinError(f"--{name} needs --seq", "tokens in a sequence")
    seq = leaf("seq", subject.seq, "token", GIVEN if "seq" in inputs else ASSUMED)
    if name == "samples-per-second":
        return divide(path, multiply("tokens_per_second", figure, seq), gpus)
    inputs.need("global-batch", "sequences in one optimizer step")
    tokens = multiply("tokens_per_step", inputs.term("global-batch"), seq)
    return divide(path, tokens, figure, gpus)


def _rate_of_tflops(inputs: Inputs, subject: Subject, path: str, figure: Term) -> Term:
    """A logged TFLOP/s stands for tokens/s by the convention of whoever logged it."""
    default = LOGGED_BY if LOGGED_BY in subject.per_token else "6nd"
    given = inputs.get("flops")
    name = _convention(str(given), subject) if given is not None else default
    if given is None:
        inputs.note(f"the logged TFLOP/s is read in the {name} convention; --flops names another")
    tera = leaf("1e12", 10**12, "FLOP/s/GPU", GIVEN)
    return divide(path, multiply("flops_per_second/logged", figure, tera), subject.per_token[name])


_OF_LOG = (
    ("tokens_per_second_per_gpu", "tokens-per-second-per-gpu", "token/s/GPU"),
    ("tokens_per_second", "tokens-per-second", "token/s"),
    ("samples_per_second", "samples-per-second", "1/s"),
    ("step_seconds", "step-time", "second"),
    ("flops_per_second_per_gpu", "tflops", "FLOP/s/GPU"),
)


def _rate_of_log(inputs: Inputs, subject: Subject, logged: Logged) -> Term:
    """The line's most direct figure that the other options make usable."""
    said = dict(logged.quantities)
    if "global_batch" in said and inputs.get("global-batch") is None:
        inputs.default("global-batch", str(int(said["global_batch"])))
    if "steps_per_second" in said and "step_seconds" not in said:
        said["step_seconds"] = 1 / said["steps_per_second"]
    needs = {"tokens_per_second": ("gpus",), "samples_per_second": ("gpus",), "step_seconds": ("gpus", "global-batch")}
    lacking: list[str] = []
    for quantity, option, unit in _OF_LOG:
        if quantity not in said:
            continue
        missing = [name for name in needs.get(quantity, ()) if inputs.get(name) is None]
        if missing:
            lacking += missing
            continue
        inputs.note(f"from the log: {logged.words.get(quantity, quantity)}")
        if option == "tflops":
            return _rate_of_tflops(
                inputs, subject, "tokens_per_second_per_gpu", leaf(option, said[quantity] / 1e12, "1")
            )
        return _rate_from(inputs, subject, option, leaf(option.replace("-", "_"), said[quantity], unit))
    if lacking:
        raise NapkinError(
            f"--log: what the line says needs {' and '.join(f'--{name}' for name in dict.fromkeys(lacking))}",
            "add it: the line does not say it",
        )
    raise NapkinError("--log: the line says an MFU alone, no rate", "give it as --claimed-mfu, with a rate")


def _whole(inputs: Inputs, rate: Term) -> list[Term]:
    return [multiply("tokens_per_second", rate, inputs.term("gpus"))] if inputs.get("gpus") is not None else []


# --- what it means ---------------------------------------------------------------------------------------------------


def _remarks(inputs: Inputs, hardware: Hardware, dtype: str, main: Term, basis: str) -> list[str]:
    notes = [f"the verdict is about mfu/{basis}, against {hardware.name}'s dense {dtype} peak"]
    if "peak-flops" in inputs:
        printed = find(inputs.get("hardware"), read_hardware_table(inputs))
        sparse = printed.sparse_peak(dtype)
        if sparse and abs(hardware.peak(dtype) / sparse - 1) <= NEAR:
            times = f"{sparse / printed.peak(dtype):.3g}"
            notes.append(
                f"--peak-flops is the sparse peak of {printed.name}; training is dense: the MFU is {times} × this"
            )
    if main.value > 1:
        causes = "the whole job's tokens taken for one GPU's, fewer --gpus than ran, a wrong accelerator or dtype"
        notes.append(f"an MFU above 1 cannot be: look for {causes}")
    elif main.value <= utilization.BAD:
        notes.append("look for data loading, fp32 without TF32, launches bound by the CPU, a tiny batch, a wrong peak")
    return notes


def explain(claimed: float, terms: list[Term], hardware: Hardware, dtype: str) -> list[str]:
    """Which conventions, against the dense or the sparse peak, give a claimed MFU."""
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
    "Model and hardware FLOPs utilisation from a measured rate, under every convention",
    run,
    (
        *MODEL_OPTIONS,
        *MEASURED_RATES,
        "time",
        "params",
        "active-params",
        "gpus",
        "hardware",
        "hardware-file",
        "dtype",
        "seq",
        "target-seq",
        "document-lengths",
        "mean-document-length",
        "batch",
        "flops",
        "claimed-mfu",
        *STEP_MODEL,
        "interval",
    ),
    arguments=("model", "size"),
    defaults={"recompute": "none"},
    examples=(
        "mfu llama3-8b --tokens-per-second 98000 --gpus 8 --hardware h100 --seq 8192",
        "mfu llama3-70b --tflops 430 --hardware h100 --seq 8192 --claimed-mfu 0.43",
        "mfu --params 7B --tokens-per-second-per-gpu 3100 --hardware a100",
        'mfu llama3-8b --log "tps: 7,023  tflops: 411.26  mfu: 41.58%" --hardware h100 --seq 8192',
        "mfu matmul 16384x32768x8192 --time 0.16s --dtype fp32 --hardware h100",
    ),
)

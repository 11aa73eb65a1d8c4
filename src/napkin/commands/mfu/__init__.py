"""`napkin mfu`: model and hardware FLOPs utilization from a measured rate, under every published convention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.matmul_or_linear import run_matmul_or_linear
from napkin.commands.mfu.question import MfuQuestion, read
from napkin.commands.question.step_model import StepQuestion
from napkin.commands.screens.mfu import of_rate
from napkin.counting import conventions, measured_rate, utilization
from napkin.counting.measured_rate import TERA, is_of_flops
from napkin.errors import BROKEN, OK, NapkinError
from napkin.evidence.predictions.step_gap import gap_of, spread_note
from napkin.inputs.hardware import Hardware
from napkin.inputs.log import FLOPS, Logged
from napkin.options.layout import MACHINE_SIZE
from napkin.options.model import MODEL_OPTIONS, PREDICTING
from napkin.options.question import MEASURED_RATES
from napkin.options.training import STEP_MODEL, TASKED
from napkin.record import record
from napkin.render.answer import Answer
from napkin.term import GIVEN, Term, leaf
from napkin.units import human

NEAR = 0.03
"""Relative difference up to which a convention explains a claim, because logs and papers print two or three digits."""


@record
class LoggedFigure:
    """A figure of a log: its unit, its value, and the value by the count of the program that wrote it. claims: the MFU
    that it states, 0 if it states none."""

    program: str
    unit: str
    stated: float
    counted: float
    claims: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the log and the count agree."""
        return abs(self.counted / self.stated - 1) <= NEAR

    @property
    def says(self) -> str:
        """The comparison, as a sentence."""
        stated = f"the log's {self.stated:.4g} ({self.unit})"
        if self.is_met:
            return f"{stated} is {self.program}'s count of this rate"
        return (
            f"{stated} is not {self.program}'s count of this rate, {self.counted:.4g}: another model, sequence length, "
            "batch or number of GPUs ran"
        )


def counted_again(logged: Logged, rate: Term, done: Mapping[str, Term]) -> list[LoggedFigure]:
    """Return the figures of a log whose program is recognized. done: FLOP/s of one GPU by convention.

    An MFU is compared if its program divides by a peak of its own; others are explained by the accelerator's."""
    program = logged.program
    if program is None or program.convention not in done:
        return []
    counted, found = float(done[program.convention].value), []
    speed, claimed = logged.quantities.get(FLOPS), logged.quantities.get("mfu")
    if speed is not None and not is_of_flops(rate):
        found.append(LoggedFigure(program.name, "TFLOP/s per GPU", speed / TERA, counted / TERA))
    if claimed is not None and program.peak:
        unit = f"MFU, of {human(program.peak, 'FLOP/s')}"
        found.append(LoggedFigure(program.name, unit, claimed, counted / program.peak, claimed))
    return found


def run(inputs: Inputs) -> Answer:
    """Answer for a model, a number of parameters, or a matmul."""
    if inputs.has("model"):
        single = run_matmul_or_linear(inputs)
        if single is not None:
            return single
    if inputs.has("time"):
        raise NapkinError("--time belongs to a matmul", "the time of a training step is --step-time")
    return answer(read(inputs))


def answer(question: MfuQuestion) -> Answer:
    """Answer with MFU and HFU in every convention, the verdict, and explanations of a claim or a gap."""
    rate, peak = question.rate, question.peak
    counts = question.per_token if question.allowed is None else {**question.per_token, "exact": question.allowed}
    done = {name: utilization.achieved(name, rate, per_token) for name, per_token in counts.items()}
    used = {name: utilization.mfu(name, achieved, peak) for name, achieved in done.items()}
    # the recomputed share is one of the full square: nothing for the pairs that masks allow
    hardware_used = [utilization.hfu(name, used[name], question.repeated) for name in question.per_token]
    main = used[question.basis]
    judged_by = question.per_token[question.basis]
    excess = conventions.excess(judged_by, question.allowed)
    seen = conventions.share_in_windows(question.basis, judged_by, question.half, question.allowed)
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
        verdict=utilization.verdict_of(main.value, excess, seen),
        status=BROKEN if main.value > excess else OK,
        notes=_remarks(question, main, excess, seen),
    )
    if question.logged is not None and question.logged.lines > 1:
        answer.notes.append(spread_note(question.logged.lines, question.logged.slow))
    answer.extra["convention"] = question.basis
    figures = [] if question.logged is None else counted_again(question.logged, rate, done)
    if question.step is not None:
        _compare(answer, question.step, rate, unexplained=any(not one.is_met for one in figures))
    said = [*answer.notes[1:], *(one.says for one in figures)]  # what the first says, the screen's second line does
    if question.claimed is not None:
        if not any(one.claims == question.claimed for one in figures):
            again = hardware_used if question.repeated.value != 1 else []
            said += explain(float(question.claimed), [*used.values(), *again], question.hardware, question.dtype)
        answer.terms = (*answer.terms, leaf("mfu/claimed", question.claimed, "1", GIVEN))
    answer.notes = [*answer.notes[:1], *said]
    rare = utilization.is_rare(utilization.judged(main.value, excess, seen), answer.verdict)
    machine = (question.hardware.name, question.dtype)
    answer.screen = of_rate(question.name, answer, question.basis, machine, said, rare)
    return answer


def _compare(answer: Answer, step: StepQuestion, rate: Term, unexplained: bool) -> None:
    """Add the predicted step, the gap, and what would explain it. unexplained: the log's own figures say that another
    run is described, so that no cause is looked for in vain."""
    gap = gap_of(step.setup.layout, step.prediction, rate, step.confidence, step.stack_named)
    answer.terms = (*answer.terms, gap.measured, gap.predicted, gap.ratio)
    seconds, factor = gap.predicted.value, math.exp(gap.half)
    answer.intervals["step/predicted"] = (seconds / factor, seconds * factor)
    words = f"measured {gap.measured.value:.4g} s a step, predicted {seconds:.4g} s (×/÷ {factor:.2f})"
    if gap.is_within:
        answer.notes.append(f"{words}: within the usual error of such predictions")
    else:
        answer.notes.append(f"{words}: {'slower' if gap.ratio.value > 1 else 'faster'} than nine in ten such steps")
    if not gap.is_within or any(cause.term for cause in gap.causes):
        answer.notes += [cause.says for cause in gap.causes if cause.term or not unexplained]
        answer.extra["causes"] = [{"term": cause.term or None, "says": cause.says} for cause in gap.causes]


def _remarks(question: MfuQuestion, main: Term, excess: float, seen: float) -> list[str]:
    """Return notes on the basis of the verdict, and on likely causes of a poor or impossible one."""
    hardware, dtype = question.hardware, question.dtype
    used = utilization.judged(main.value, excess, seen)
    judged = "exact" if used == main.value / excess and main.value > 1 else question.basis
    notes = [
        f"the verdict is about mfu/{judged}, against {hardware.name}'s dense {dtype} peak: of published "
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
    causes = "the whole job's tokens taken for one GPU's, fewer --gpus than ran, a wrong accelerator or dtype"
    if main.value > excess:
        notes.append(f"an MFU above 1 is impossible: look for {causes}")
    elif judged == "exact":
        notes.append(f"{utilization.UNMASKED}; the verdict is about exact")
    elif used < main.value:
        notes.append(
            f"the verdict is about an MFU of {used:.3g}: without attention outside its sliding windows, "
            "which the steps it is compared with do not have"
        )
    elif used > utilization.RARE:
        notes.append(f"only 1 % of published training steps reach {utilization.RARE}: look for {causes}")
    if main.value <= excess and used < utilization.FAIR:
        notes.append(
            "look for data loading, fp32 without TF32, kernel launches bound by the CPU, a tiny batch, a wrong peak"
        )
    return notes


def explain(claimed: float, terms: Sequence[Term], hardware: Hardware, dtype: str) -> list[str]:
    """Return a note on which conventions, with the dense or the sparse peak, give a claimed MFU."""
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
        *PREDICTING,
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
        *TASKED,
        "confidence",
        "ema",
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

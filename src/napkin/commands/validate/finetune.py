"""Rows of measured fine-tuning (schema finetune/1): each measured quantity with its prediction."""

from __future__ import annotations

import math
from collections.abc import Iterator

from napkin.commands.validate.finetune_memory import MEMORY, fitting, memory_of
from napkin.commands.validate.rollout_memory import Interval
from napkin.commands.validate.rollout_rows import RolloutRow, rollout_row
from napkin.errors import NapkinError
from napkin.evidence.figures.failures import written
from napkin.evidence.finetuning.adapters import OTHER_TIME
from napkin.evidence.finetuning.models import is_judged
from napkin.evidence.finetuning.rows import FineTuning, fine_tuning
from napkin.evidence.intervals.steps import DESCRIBED, MEASURED
from napkin.evidence.predictions import one_run, tuning_runs
from napkin.evidence.predictions.runs import BENCHMARK
from napkin.evidence.published import MAIN
from napkin.evidence.rates.constants import deviations
from napkin.evidence.rates.of_step import Asynchronous
from napkin.evidence.rows.fields import title_of
from napkin.evidence.rows.files import TUNING
from napkin.evidence.rows.row import RowFields, WrongRow
from napkin.evidence.rows.teams import source_of
from napkin.evidence.validation.compared import Compared
from napkin.footprint.checkpointed import saved_states
from napkin.inputs.hardware import Hardware
from napkin.inputs.load import printable
from napkin.record import record, replace
from napkin.term import leaf
from napkin.training.setup import Setup
from napkin.training.tasks import TASKS

TIMES = ("tokens_per_second_per_gpu", "samples_per_second", "step_seconds")
"""Quantities of speed; the first that a row states is used, because the others follow from it."""
PHASES = ("gen_seconds", "logprob_seconds", "update_seconds")
AMOUNTS = ("steps", "samples", "tokens", "runs")
BESIDE = ("oom", "ran", "what", "kind", "unit", "printed", "gb", "gib", "mib", "derived", *AMOUNTS)
"""Fields of `measured` that qualify a quantity or the run and are not quantities themselves."""


MIB = 2**20


def measured(row: RowFields) -> Iterator[tuple[str, float | None]]:
    """Yield each measured quantity of a row with its value; None: the row states only whether the run fit, as one that
    was out of memory or one that ran (`oom: false`, `ran: true`, `card_gib_at_most`)."""
    peak = row.number("measured.peak_bytes_per_gpu") or row.number("measured.peak_bytes")
    driver = row.number("measured.driver_bytes") or (row.number("measured.driver_mib") or 0.0) * MIB or None
    if is_judged(row):
        yield f"{MEMORY}_used", None
    if peak is not None:
        what = row.text("measured.what")
        yield f"{MEMORY}_{what if what in ('allocated', 'reserved', 'used') else 'unstated'}", peak
    if driver is not None:
        yield f"{MEMORY}_used", driver
    speed = next((name for name in TIMES if row.number(f"measured.{name}") is not None), None)
    if speed is not None:
        yield speed, row.number(f"measured.{speed}")
    for name in (*PHASES, "run_seconds"):
        value = row.number(f"measured.{name}")
        if value is not None:
            yield name, value


def compared(row: RowFields, level: float, inside: bool = False) -> list[Compared]:
    """Return the measured quantities of a row with their predictions, or the reason for a missing one; at least one
    entry.
    inside: whether constants are fitted with the row's own source."""
    try:
        return _compared(row, level, inside) or [_silent(row, _unmeasured(row))]
    except WrongRow as problem:
        return [_silent(row, problem.message)]


def _silent(row: RowFields, why: str) -> Compared:
    """Return the entry of a row that cannot be used."""
    return Compared(row.text("id"), MAIN[TUNING], None, None, None, None, "", why)


def _unmeasured(row: RowFields) -> str:
    """Return why a row has nothing to compare with a prediction: the fields it states, and those that are read."""
    stated = [name for name, value in row.part("measured").items() if value is not None and name not in BESIDE]
    names = ", ".join(printable(f"measured.{name}", 60) for name in stated[:3])
    said = f"{names}: not read" if names else "nothing is measured"
    taken = ("peak_bytes", "driver_bytes", "driver_mib", *TIMES, "run_seconds", "oom", "ran")
    return f"{said}; measured takes {', '.join(taken)} or card_gib_at_most"


def _compared(row: RowFields, level: float, inside: bool) -> list[Compared]:
    """Return an entry for each measured quantity of a row."""
    source = title_of(row)
    quantities = list(measured(row))
    asked: TunedRow | RolloutRow | None = None
    why = ""
    try:
        asked = question_of(row, inside)
    except WrongRow:
        raise
    except NapkinError as problem:
        why = problem.message
    answers = []
    for quantity, value in quantities:
        found: Interval | None = None
        verdict, reason = "", why
        if asked is not None:
            try:
                found, verdict = asked.predicted(quantity, level)
            except NapkinError as problem:
                reason = problem.message
        middle, low, high = found or (None, None, None)
        judged = verdict if value is None else ""
        suspect = row.text("suspect")
        answers.append(
            Compared(
                row.text("id"),
                quantity,
                middle,
                low,
                high,
                value,
                source,
                reason,
                judged,
                suspect,
                source_of(source) or source,
                evidence=asked.evidence(quantity) if asked is not None and found is not None else "",
            )
        )
    return answers


@record
class TunedRow:
    """A row of a fine-tuning run as a question. setup: as it ran, with open fields filled in."""

    asked: FineTuning
    setup: Setup
    source: str = ""
    """Key of the row's source in the evidence, which is held out; "" if it has none."""

    def predicted(self, quantity: str, level: float) -> tuple[Interval, str]:
        """Return a quantity with its interval, and for memory the verdict on the run's accelerator."""
        asked = self.asked
        if quantity.startswith(MEMORY):
            return memory_of(asked, self.setup, quantity)
        if asked.hardware is None:
            raise NapkinError("the accelerator is not stated")
        if quantity in PHASES:
            raise NapkinError("only reinforcement learning has phases")
        if asked.setup.task.generates:
            raise NapkinError("the time in which the model generates responses is not modeled")
        if asked.lengths.untimed:
            raise NapkinError(asked.lengths.untimed)
        return _timed(self, asked.hardware, quantity, level), ""

    @property
    def is_benchmark(self) -> bool:
        """Whether its clock stops at a target."""
        return self.asked.run_kind == BENCHMARK

    def run_seconds(self, hardware: Hardware, level: float) -> Interval:
        """Return the seconds of the run's steps, and of its checkpoints at the rate of published storage if the row
        says how often it writes them, with their interval. Refused if it does not say how many steps it took."""
        asked = self.asked
        if not asked.steps:
            raise NapkinError("how many steps the run took is not stated")
        seconds, low, high = (asked.steps * end for end in self.step_seconds(hardware, level))
        if not asked.saves:
            return seconds, low, high
        write, spread = written()
        each = replace(write, states=saved_states(asked.model, self.setup)).seconds(
            leaf("gpus", self.setup.layout.gpus, "GPU")
        )
        writing, wide = asked.saves * float(each.value), math.exp(deviations(level) * spread)
        return seconds + writing, low + writing / wide, high + writing * wide

    def step_seconds(self, hardware: Hardware, level: float) -> Interval:
        """Return the seconds of a step with their interval."""
        asked = self.asked
        seconds, half = _seconds(self, hardware, self.setup, level)
        others = [_seconds(self, hardware, one, level) for one in (*fitting(asked.divisions, asked), *asked.opened)]
        shortest = min(time * math.exp(-wide) for time, wide in [(seconds, half), *others])
        longest = max(time * math.exp(wide) for time, wide in [(seconds, half), *others])
        return seconds, shortest, longest

    def step(self, hardware: Hardware, setup: Setup) -> one_run.StepPrediction:
        """Return the prediction of a step."""
        return _step(self.asked, hardware, setup, self.source)

    def evidence(self, quantity: str) -> str:
        """Return the class of evidence of an interval."""
        asked = self.asked
        if asked.other:
            return "assumed"
        if quantity.startswith(MEMORY) or asked.hardware is None:
            return MEASURED if asked.setup.widths[0 if asked.setup.layout.gpus == 1 else 1][0].rows else DESCRIBED
        return self.step(asked.hardware, self.setup).evidence


def question_of(row: RowFields, inside: bool = False) -> TunedRow | RolloutRow:
    """Return a row as a question: a reinforcement learning step, or a fine-tuning step."""
    task = TASKS.get(row.text("task"))
    if task is not None and task.rollout:
        return rollout_row(row, inside)
    asked = fine_tuning(row)
    source = "" if inside else source_of(title_of(row))
    return TunedRow(asked, as_it_ran(asked, source), source)


def as_it_ran(asked: FineTuning, source: str) -> Setup:
    """Return the setup of a row. Of the values that it leaves open, take the first that fits its accelerator; of the
    parallel degrees, the fastest that fit, as a practitioner would choose."""
    hardware = asked.hardware
    if asked.oom or asked.room is None:
        return asked.setup
    ways = fitting((asked.setup, *asked.otherwise), asked) if asked.otherwise else [asked.setup]
    if asked.divisions and hardware is not None:
        ways = fitting((asked.setup, *asked.divisions), asked)
        ways.sort(key=lambda one: float(_step(asked, hardware, one, source).step().time.value))
    return ways[0] if ways else asked.setup


def _step(asked: FineTuning, hardware: Hardware, setup: Setup, source: str) -> one_run.StepPrediction:
    """Return the prediction of a step, with that source held out."""
    captured = Asynchronous(graphs=asked.graphs)
    return one_run.asked(asked.model, setup, hardware, asked.software, asked.kernel, captured, without=source)


def _timed(row: TunedRow, hardware: Hardware, quantity: str, level: float) -> Interval:
    """Return a time or a rate with its interval. If GPUs can share a micro-batch in several ways, the interval spans
    from the fastest to the slowest; so it does over what LoRA may be where the row leaves it open.

    The clock of a run goes on while it evaluates, saves and waits for samples (transformers trainer.py, train_runtime:
    from before the first epoch to after the last), of which rows say little: its goodput is that of published runs."""
    layout = row.asked.setup.layout
    if quantity == "run_seconds":
        seconds, shortest, longest = row.run_seconds(hardware, level)
        goodput, wide = tuning_runs.goodput(row.asked.run_kind, row.source), deviations(level)
        _, value = goodput.run(1.0, seconds)
        faster, _ = goodput.half_widths(math.log(seconds / shortest), wide)
        _, slower = goodput.half_widths(math.log(longest / seconds), wide)
        return value, value / math.exp(faster), value * math.exp(slower)
    seconds, shortest, longest = row.step_seconds(hardware, level)
    if quantity == "step_seconds":
        return seconds, shortest, longest
    tokens = float(layout.global_batch * layout.seq)
    each = tokens / float(layout.gpus) if quantity == "tokens_per_second_per_gpu" else float(layout.global_samples)
    return each / seconds, each / longest, each / shortest


def _seconds(row: TunedRow, hardware: Hardware, setup: Setup, level: float) -> tuple[float, float]:
    """Return the seconds of a step, and the half-width of their interval in log space."""
    asked, prediction = row.asked, row.step(hardware, setup)
    whole = prediction.step().time
    seconds = float(whole.value)
    half, _ = prediction.half_width(level, named=False, found=whole)
    if asked.joined:  # attention within samples takes anything from nothing to that of the whole sequence
        scores = next(float(one.value) for one in whole.walk() if one.name == "step/compute/attention")
        wide = math.log(seconds / (seconds - scores)) / 2
        seconds, half = math.sqrt(seconds * (seconds - scores)), half + wide
    likely, least, most = (
        1.0 if ratio == 1.0 else _waiting(row, hardware, setup, ratio) / float(whole.value)
        for ratio in _waits(row, setup)
    )
    wider = math.log(OTHER_TIME) if asked.other and not asked.opened else 0.0
    return seconds * likely, half + wider + math.log(most / least) / 2


def _waits(row: TunedRow, setup: Setup) -> tuple[float, float, float]:
    """Return the tokens of the rank that others wait for over those of the mean one: the likely ratio, the least, the
    most."""
    layout = setup.layout
    return row.asked.lengths.waits(int(layout.dp), int(layout.sequences), int(setup.between_waits))


def _waiting(row: TunedRow, hardware: Hardware, setup: Setup, ratio: float) -> float:
    """Return the seconds of a step on a rank whose sequences are this many times as long as the mean one's: its host
    launches as many kernels as the others', and as many bytes are communicated."""
    longer = setup.layout.replaced(seq=max(round(float(setup.layout.seq) * ratio), 1))
    return float(row.step(hardware, replace(setup, layout=longer)).step().time.value)

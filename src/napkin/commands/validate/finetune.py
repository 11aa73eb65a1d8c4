"""Rows of measured fine-tuning (schema finetune/1): each quantity that was measured next to what napkin predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from napkin.commands.validate.rollout_rows import Interval, RolloutRow, rollout_row
from napkin.errors import NapkinError
from napkin.evidence import single
from napkin.evidence.compared import Compared
from napkin.evidence.constants import deviations
from napkin.evidence.finetune_rows import FineTuning, fine_tuning
from napkin.evidence.goodput import PUBLISHED
from napkin.evidence.intervals import DESCRIBED, MEASURED
from napkin.evidence.margins import widths_of
from napkin.evidence.published import MAIN
from napkin.evidence.row_files import TUNING
from napkin.evidence.rows import RowFields, WrongRow
from napkin.evidence.runs import BENCHMARK
from napkin.evidence.teams import source_of
from napkin.inputs.hardware import Hardware
from napkin.inputs.load import printable
from napkin.planning.verdicts import evaluate
from napkin.record import record
from napkin.timing.goodput import UNBROKEN
from napkin.training.tasks import TASKS

MEMORY = "memory"
TIMES = ("tokens_per_second_per_gpu", "samples_per_second", "step_seconds")
"""Quantities of speed, the first that a row measured is taken: the others follow from it."""
MOVES = 1.02
"""From which ratio on memory depends on what a row does not state."""
PHASES = ("gen_seconds", "logprob_seconds", "update_seconds")
BESIDE = ("oom", "what", "kind", "unit", "printed", "gb", "gib", "mib", "derived", "steps", "samples", "tokens", "runs")
"""Fields of `measured` that say more of a quantity, or of the run, and are none themselves."""


def measured(row: RowFields) -> Iterator[tuple[str, float | None]]:
    """Yield each quantity that a row measured, and its value; None: only that the run was out of memory."""
    if row.flag("measured.oom"):
        yield f"{MEMORY}_used", None
    peak = row.number("measured.peak_bytes_per_gpu") or row.number("measured.peak_bytes")
    driver = row.number("measured.driver_bytes")
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


def compared(row: RowFields, level: float) -> list[Compared]:
    """Return what a row measured next to the predictions; where one is not made, why: a row has an entry at least."""
    try:
        return _compared(row, level) or [_silent(row, _unmeasured(row))]
    except WrongRow as problem:
        return [_silent(row, problem.message)]


def _silent(row: RowFields, why: str) -> Compared:
    """Return the entry of a row of which nothing is read."""
    return Compared(row.text("id"), MAIN[TUNING], None, None, None, None, "", why)


def _unmeasured(row: RowFields) -> str:
    """Return why a row has nothing to hold a prediction against: which fields it states, and which are read."""
    stated = [name for name, value in row.part("measured").items() if value is not None and name not in BESIDE]
    names = ", ".join(printable(f"measured.{name}", 60) for name in stated[:3])
    said = f"{names}: not read" if names else "nothing is measured"
    return f"{said}; measured takes peak_bytes, driver_bytes, {', '.join(TIMES)}, run_seconds or oom: true"


def _compared(row: RowFields, level: float) -> list[Compared]:
    """Return an entry for each quantity that a row measured."""
    source = row.text("source.title") or row.text("source")
    quantities = list(measured(row))
    asked: TunedRow | RolloutRow | None = None
    why = ""
    try:
        asked = _question(row)
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
                source,
                evidence=asked.evidence(quantity) if asked is not None and found is not None else "",
            )
        )
    return answers


@record
class TunedRow:
    """A row of a run that trains on samples, as a question."""

    asked: FineTuning
    source: str = ""
    """Key of the source of the evidence that it is of, which is held out."""

    def predicted(self, quantity: str, level: float) -> tuple[Interval, str]:
        """Return a quantity with its interval; and for memory the verdict on the run's accelerator."""
        asked = self.asked
        if quantity.startswith(MEMORY):
            return _memory(asked, quantity)
        if asked.hardware is None:
            raise NapkinError("the accelerator is not stated")
        if quantity in PHASES:
            raise NapkinError("only reinforcement learning has phases")
        if asked.untimed:
            raise NapkinError(asked.untimed)
        return _timed(self, asked.hardware, quantity, level), ""

    def step(self, hardware: Hardware) -> single.StepPrediction:
        """Return the prediction of its step."""
        asked = self.asked
        return single.asked(asked.model, asked.setup, hardware, asked.software, without=self.source)

    def evidence(self, quantity: str) -> str:
        """Return the class of evidence that an interval rests on."""
        asked = self.asked
        if quantity.startswith(MEMORY) or asked.hardware is None:
            return (
                MEASURED
                if widths_of(asked.setup.framework.name)[0 if asked.setup.layout.gpus == 1 else 1][0].rows
                else DESCRIBED
            )
        return self.step(asked.hardware).evidence


def _question(row: RowFields) -> TunedRow | RolloutRow:
    """Return a row as a question: of steps that generate answers, or of steps that train on samples."""
    task = TASKS.get(row.text("task"))
    if task is not None and task.rollout:
        return rollout_row(row)
    return TunedRow(fine_tuning(row), source_of(row.text("source.title") or row.text("source")))


def _timed(row: TunedRow, hardware: Hardware, quantity: str, level: float) -> Interval:
    """Return a time or a rate with its interval."""
    asked, prediction = row.asked, row.step(hardware)
    whole = prediction.step().time
    seconds = float(whole.value)
    half, _ = prediction.half_width(level, named=False)
    if asked.joined:  # attention within samples takes anything from nothing to that of the whole sequence
        scores = next(float(one.value) for one in whole.walk() if one.name == "step/compute/attention")
        wide = math.log(seconds / (seconds - scores)) / 2
        seconds, half = math.sqrt(seconds * (seconds - scores)), half + wide
    layout = asked.setup.layout
    tokens = float(layout.global_batch * layout.seq)
    if quantity == "run_seconds":
        if not asked.steps:
            raise NapkinError("how many steps the run took is not stated")
        goodput = PUBLISHED[BENCHMARK] if asked.run_kind == BENCHMARK else UNBROKEN
        _, value = goodput.run(asked.steps, seconds)
        half = goodput.half_width(half, deviations(level))
    else:
        rates = {
            "tokens_per_second_per_gpu": tokens / seconds / float(layout.gpus),
            "samples_per_second": float(layout.global_samples) / seconds,
            "step_seconds": seconds,
        }
        value = rates[quantity]
    return value, value / math.exp(half), value * math.exp(half)


def _memory(asked: FineTuning, quantity: str) -> tuple[Interval, str]:
    """Return the bytes of the worst GPU: an unstated figure is anything from what is allocated to what is used."""
    capacity = asked.hardware.capacity if asked.hardware is not None else None
    fit = evaluate(asked.model, asked.setup, asked.implementation, capacity)
    for other, why in asked.others:
        most = evaluate(asked.model, other, asked.implementation, capacity).rank.live
        if most > MOVES * fit.rank.live:
            raise NapkinError(why)
    found, ends = fit.reported, fit.reported.ends
    name = quantity.removeprefix(f"{MEMORY}_")
    shown = {"allocated": found.allocated, "reserved": found.reserved, "used": found.used}.get(name, found.reserved)
    low = ends[f"memory/{name if name != 'unstated' else 'allocated'}"][0]
    high = ends[f"memory/{name if name != 'unstated' else 'used'}"][1]
    if asked.longer > 1 and name != "allocated" and capacity is not None:
        high = max(high, capacity)  # blocks of one length serve no other: the cache grows until the card is full
    bound = capacity if capacity is not None and not asked.oom else math.inf
    value = min(float(shown.value), bound)
    return (round(value), math.floor(min(low, bound)), math.ceil(min(high, bound))), fit.verdict

"""`napkin watch LOG`: follow a training log: progress, speed, MFU, and time left."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from napkin.commands import mfu
from napkin.commands.command import Command
from napkin.commands.inputs import Inputs
from napkin.commands.mfu.question import check_missing, read_rated
from napkin.commands.screens.watch import parts_of, screen
from napkin.errors import NapkinError
from napkin.inputs.load import name_of
from napkin.inputs.log import Logged, figures, is_over, may_hold_figures, progress_of
from napkin.inputs.log_file import medians
from napkin.inputs.log_follow import follow
from napkin.options.question import MEASURED_RATES
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.progress import CLEAR
from napkin.render.terminal import readable, width_of
from napkin.term import GIVEN, MEASURED, Term, constant, largest, leaf, multiply, subtract
from napkin.units import human

WINDOW = 20
"""Number of recent lines whose median is shown."""


@record
class RunProgress:
    """Progress of a run. step, total, seconds (of a step): None if unknown; over: the run has ended."""

    step: int | None
    total: int | None
    seconds: float | None
    over: bool


class LogState:
    """Reads the log line by line and keeps the last figures."""

    def __init__(self, total: int | None, clock: Callable[[], float]) -> None:
        self._kept: deque[Logged] = deque(maxlen=WINDOW)
        self._clock, self._stated = clock, total
        self._step: int | None = None
        self._total: int | None = None
        self._over = False
        self._first: tuple[float, int] | None = None
        self._last = 0.0
        self.heard = clock()

    @property
    def has_figures(self) -> bool:
        """Whether any line had a figure."""
        return bool(self._kept)

    def read(self, line: str) -> bool:
        """Read a line; return whether it had a figure."""
        self.heard = self._clock()
        self._over = self._over or is_over(line)
        if not may_hold_figures(line):
            return False
        found = figures(line)
        if not set(found.quantities) - {"global_batch"}:
            return False
        self._kept.append(found)
        self._advance(progress_of(line))
        return True

    def _advance(self, found: tuple[int, int | None] | None) -> None:
        if found is None:
            return
        step, total = found
        if self._step is None or step < self._step:  # the first line, or a run that began again
            self._first, self._over = (self.heard, step), False
        self._step, self._total, self._last = step, total or self._total, self.heard

    def logged(self) -> Logged:
        """Return the medians of the last lines with figures."""
        return medians(list(self._kept))

    def progress(self) -> RunProgress:
        """Return the progress of the run."""
        total = self._stated or self._total
        over = self._over or (total is not None and self._step is not None and self._step >= total)
        return RunProgress(self._step, total, self._seconds(), over)

    def _seconds(self) -> float | None:
        """Return the seconds of a step as the log states them, else from the arrival of its lines."""
        said = self.logged().quantities
        if "step_seconds" in said:
            return said["step_seconds"]
        if "steps_per_second" in said:
            return 1 / said["steps_per_second"]
        if self._first is None or self._step is None:
            return None
        began, first = self._first
        return (self._last - began) / (self._step - first) if self._step > first and self._last > began else None


QUIET_FROM = 60.0
"""Seconds without a new line after which the silence is shown."""


class LiveLine:
    """A line on standard error that is overwritten; nothing without a terminal or with --quiet."""

    def __init__(self, quiet: bool) -> None:
        self._shows = not quiet and sys.stderr.isatty()
        self._parts: Sequence[str] = ("waiting for a line with figures",)
        self._written = ""

    def show(self, parts: Sequence[str], silence: float) -> None:
        """Show these parts; silence: seconds since the last line of the log."""
        self._parts = parts or self._parts
        more = [f"no line for {human(float(round(silence, -1)), 'second', 2)}"] if silence >= QUIET_FROM else []
        if self._shows:
            text = "   ".join((*self._parts, *more))[: width_of(sys.stderr) - 1]
            if text != self._written:
                sys.stderr.write(CLEAR + readable(text, sys.stderr))
                sys.stderr.flush()
                self._written = text

    def erase(self) -> None:
        """Erase the line before other output."""
        if self._written:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            self._written = ""


CLOCK: Callable[[], float] = time.monotonic
SLEEP: Callable[[float], None] = time.sleep
INTERRUPTED = 130
EVERY = 1.0
"""Seconds between two answers while lines come."""
QUANTITIES: Mapping[str, tuple[str, str]] = {
    "tokens_per_second": ("tokens_per_second", "token/s"),
    "tokens_per_second_per_gpu": ("tokens_per_second_per_gpu", "token/s/GPU"),
    "samples_per_second": ("samples_per_second", "1/s"),
    "step_seconds": ("step/seen", "second"),
    "flops_per_second_per_gpu": ("flops_per_second/logged", "FLOP/s/GPU"),
    "mfu": ("mfu/logged", "1"),
}
"""Quantity of a log → its path and unit."""

UNASKED = (*MEASURED_RATES, "claimed-mfu", "time", "batch")
"""Options of mfu that the log provides or that belong to a matmul."""


def run(inputs: Inputs) -> Answer:
    """Answer with the last figures of a log when the run is over, or at Ctrl-C (status 130)."""
    path, once = inputs.text("log-file", "which training log?"), inputs.flag("once")
    total = inputs.integer_or_none("steps")
    if _read_is_counted(inputs):
        check_missing(inputs, rated=True)
    state, live = LogState(total, CLOCK), LiveLine(once or inputs.flag("quiet"))
    interrupted = False
    try:
        _run_to_the_end(inputs, path, once, state, live)
    except KeyboardInterrupt:
        if not state.has_figures:
            raise
        interrupted = True
    finally:
        live.erase()
    if not state.has_figures:
        raise NapkinError(
            f"{name_of(path)}: no line says a throughput, step time, TFLOP/s or MFU that napkin knows",
            "napkin mfu takes the figure itself: --tokens-per-second, --step-time or --tflops",
        )
    answer = _read_answer(inputs, path, state)
    answer.status = INTERRUPTED if interrupted else answer.status
    return answer


def _read_is_counted(inputs: Inputs) -> bool:
    """Return whether an MFU is requested, of a model or of a number of parameters."""
    return inputs.has("model") or inputs.has("params")


def _run_to_the_end(inputs: Inputs, path: str, once: bool, state: LogState, live: LiveLine) -> None:
    """Read lines until the log ends, or states the end of the run and nothing follows."""
    shown, parts = CLOCK() - EVERY, list[str]()
    new = False
    for line in follow(path, once, SLEEP):
        new = (line is not None and state.read(line)) or new
        now = CLOCK()
        if new and not once and now - shown >= EVERY:
            parts = parts_of(_read_answer(Inputs(inputs.command, inputs.given), path, state))
            shown, new = now, False
        if not once:
            live.show(parts, now - state.heard)
        if line is None and state.has_figures and state.progress().over:
            return


def _read_answer(inputs: Inputs, path: str, state: LogState) -> Answer:
    """Return the answer for the current figures of the log."""
    logged, progress = state.logged(), state.progress()
    terms = _of_progress(progress, "steps" in inputs)
    if _read_is_counted(inputs):
        question = read_rated(inputs, logged)
        found = mfu.answer(question)
        own = {term.name for term in found.terms}
        found.terms = (*terms, *found.terms, *(one for one in _of_log(logged) if one.name not in own))
        model, convention = f"{question.name} on {question.hardware.name}", question.basis
    else:
        found = Answer("watch", (*terms, *_of_log(logged), *_read_job(inputs, logged)))
        model, convention = "", ""
    found.command = "watch"
    found.extra["complete"] = progress.over
    found.screen = screen(name_of(path), model, logged.lines, found, convention)
    return found


def _of_log(logged: Logged) -> list[Term]:
    """Return the figures of the log by path."""
    said = [(QUANTITIES[name], value) for name, value in logged.quantities.items() if name in QUANTITIES]
    return [leaf(path, value, unit, MEASURED) for (path, unit), value in said]


def _read_job(inputs: Inputs, logged: Logged) -> list[Term]:
    """Return the tokens per second of the entire job, if the log has those of one GPU and --gpus is given."""
    each = "tokens_per_second_per_gpu"
    if each not in logged.quantities or "tokens_per_second" in logged.quantities or not inputs.has("gpus"):
        return []
    rate = leaf(each, logged.quantities[each], "token/s/GPU", MEASURED)
    return [multiply("tokens_per_second", rate, inputs.term("gpus"))]


def _of_progress(progress: RunProgress, stated: bool) -> list[Term]:
    """Return the progress of the run, and the time left at the speed of the last lines."""
    if progress.step is None:
        return []
    step = leaf("progress/step", progress.step, "1", MEASURED)
    if progress.total is None:
        return [step]
    total = leaf("progress/total", progress.total, "1", GIVEN if stated else MEASURED)
    if progress.seconds is None:
        return [step, total]
    rest = largest("progress/rest", subtract("progress/steps_left", total, step), constant("0", 0))
    left = multiply("progress/left", rest, leaf("step/seconds", progress.seconds, "second", MEASURED))
    return [step, total, left]


COMMAND = Command(
    "watch",
    "Follow a training log: progress, speed and MFU, until the run is over",
    run,
    brief="Follow a training log: speed, MFU, time left",
    options=(*(name for name in mfu.COMMAND.options if name not in UNASKED), "steps", "once"),
    arguments=("log-file", "model"),
    verdicts=mfu.COMMAND.verdicts,
    defaults=mfu.COMMAND.defaults,
    examples=(
        "watch configs/logs/megatron.log llama3-8b --gpus 8 --hardware h100 --seq 8192 --once",
        "watch configs/logs/megatron.log --once",
    ),
)

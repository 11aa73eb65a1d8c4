"""The state of a log: its last figures, the progress of the run, and whether it is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from napkin.inputs.log import Logged, figures, is_over, may_hold_figures, progress_of
from napkin.inputs.log_file import medians
from napkin.record import record

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

"""A published figure and napkin's prediction."""

from __future__ import annotations

from napkin.record import record


@record
class Compared:
    """One row of `validate`.

    predicted  None if nothing is predicted; then `why`
    verdict    of runs of which only is known whether they fit
    wrong      a field has an invalid value
    evidence   the class that the interval rests on (intervals/steps.py)
    """

    id: str
    quantity: str
    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None
    source: str
    why: str = ""
    verdict: str = ""
    suspect: str = ""
    group: str = ""
    wrong: bool = False
    evidence: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1

    @property
    def covered(self) -> bool | None:
        if self.low is None or self.high is None or not self.measured:
            return None
        return self.low <= self.measured <= self.high

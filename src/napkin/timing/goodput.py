"""Calendar time of a run: the time of its uninterrupted steps over the share of the calendar that is training.

Checkpoints, evaluation, interruptions, restarts and slow steps take the rest:

    time = time/uninterrupted / goodput
"""

from __future__ import annotations

import math

from napkin.record import record
from napkin.term import GIVEN, Term, constant, divide, multiply


@record
class Goodput:
    """The share of a run's calendar time that is training at a good step's rate.

    spread  σ of its logarithm        run_kind  production, benchmark or speedrun: which published runs it is of"""

    share: Term
    spread: float = 0.0
    run_kind: str = "production"

    def calendar(self, uninterrupted: Term) -> Term:
        """Return the calendar time of uninterrupted seconds."""
        return divide("time", uninterrupted, self.share)

    def uninterrupted(self, calendar: Term) -> Term:
        """Return the seconds of training in a calendar time."""
        return multiply("time/uninterrupted", calendar, self.share)

    def ends(self, deviations: float) -> tuple[float, float]:
        """Return the interval of the share, at most 1; deviations: σ of a normal spread at the confidence level."""
        factor = math.exp(deviations * self.spread)
        return float(self.share.value) / factor, min(float(self.share.value) * factor, 1.0)

    def run(self, tokens: float, each: float) -> tuple[float, float]:
        """Return the seconds of training of a run, and its calendar seconds; each: seconds of one token on the whole
        machine."""
        running = tokens * each
        return running, running / float(self.share.value)

    def half_width(self, step: float, deviations: float) -> float:
        """Return half the interval of ln(calendar time); step: that of a step's time."""
        return math.hypot(step, deviations * self.spread)

    @property
    def is_given(self) -> bool:
        """Whether the user stated it."""
        return self.share.kind == GIVEN


IN_MFU = Goodput(constant("goodput", 1, "1", "the given MFU is that of the whole run"))
"""The share where a whole-run MFU is given, which has all losses in it."""
UNBROKEN = Goodput(constant("goodput", 1, "1", "a trainer's own clock: of its steps"))
"""The share of the time that a trainer prints."""

"""Calendar time of a run: the time of its uninterrupted steps divided by the goodput.

Checkpoints, evaluation, interruptions, restarts and slow steps take the rest:

    time = time/uninterrupted / goodput
"""

from __future__ import annotations

import math

from napkin.record import record, replace
from napkin.term import GIVEN, Term, add, constant, divide, multiply

TYPE_CHECKING = False  # mypy takes it as true; failures are loaded if they are predicted
if TYPE_CHECKING:
    from napkin.timing.interruptions import Interruptions


@record
class Goodput:
    """The share of a run's calendar time spent training at the normal step rate.

    spread  σ of its logarithm        run_kind  kind of published runs that it comes from: production, benchmark or
            speedrun
    interruptions  inputs of the prediction for a number of GPUs (`on`)        spares  standby GPUs
    gpus    number of GPUs that it was predicted for        own  σ of the logarithm of the published share, without
    failures"""

    share: Term
    spread: float = 0.0
    run_kind: str = "production"
    interruptions: Interruptions | None = None
    spares: Term | None = None
    gpus: Term | None = None
    own: float = 0.0

    def on(self, gpus: Term) -> Goodput:
        """Return the goodput on this many GPUs: predicted from failures, unless given."""
        failing = self.interruptions
        if failing is None or self.gpus is not None:
            return self
        spread = math.hypot(self.spread, failing.spread(gpus))
        return Goodput(failing.share(gpus), spread, self.run_kind, failing, self.spares, gpus, self.spread)

    def saving(self, states: Term) -> Goodput:
        """Return the goodput of a job with checkpoints of this size, on any machine."""
        failing = self.interruptions
        if failing is None:
            return self
        found = replace(self, interruptions=failing.saving(states))
        return found if self.gpus is None else replace(found, spread=self.own, gpus=None).on(self.gpus)

    def expected(self, lasting: Term) -> list[Term]:
        """Return the expected failures in a calendar time, their mean distance, and the checkpoint interval; empty if
        goodput is not predicted."""
        if self.interruptions is None or self.gpus is None:
            return []
        return self.interruptions.terms(self.gpus, lasting)

    def paid(self, gpus: Term) -> Term:
        """Return the GPUs to pay for: training and standby."""
        return gpus if self.spares is None else add("gpus/paid", gpus, self.spares)

    def calendar(self, uninterrupted: Term) -> Term:
        """Return the calendar time of uninterrupted seconds."""
        return divide("time", uninterrupted, self.share)

    def uninterrupted(self, calendar: Term) -> Term:
        """Return the seconds of training in a calendar time."""
        return multiply("time/uninterrupted", calendar, self.share)

    def whole_run(self, mfu: Term) -> Term:
        """Return the MFU of the whole run from that of its steps."""
        return multiply("mfu", mfu, self.share)

    def ends(self, deviations: float) -> tuple[float, float]:
        """Return the interval of the goodput, at most 1; deviations: half-width of the confidence interval in σ."""
        factor = math.exp(deviations * self.spread)
        return float(self.share.value) / factor, min(float(self.share.value) * factor, 1.0)

    def run(self, tokens: float, each: float) -> tuple[float, float]:
        """Return the training seconds and the calendar seconds of a run; each: seconds per token on all GPUs."""
        running = tokens * each
        return running, running / float(self.share.value)

    def half_width(self, step: float, deviations: float) -> float:
        """Return the half-width of the interval of ln(calendar time); step: that of ln(step time)."""
        return math.hypot(step, deviations * self.spread)

    @property
    def is_given(self) -> bool:
        """Whether the user gave it."""
        return self.share.kind == GIVEN


IN_MFU = Goodput(constant("goodput", 1, "1", "the given MFU is that of the whole run"))
"""The goodput for a given whole-run MFU, which includes all losses."""
UNBROKEN = Goodput(constant("goodput", 1, "1", "a trainer's own clock: of its steps"))
"""The goodput for times that a trainer prints."""

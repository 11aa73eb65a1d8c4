"""Calendar time of a run: the time of its uninterrupted steps over the share of the calendar that is training.

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
    """The share of a run's calendar time that is training at a good step's rate.

    spread  σ of its logarithm        run_kind  production, benchmark or speedrun: which published runs it is of
    interruptions  what predicts it once the number of GPUs is known (`on`)        spares  GPUs that stand by
    gpus    of the machine that it was predicted for        own  σ of the published share's logarithm, without failures
    """

    share: Term
    spread: float = 0.0
    run_kind: str = "production"
    interruptions: Interruptions | None = None
    spares: Term | None = None
    gpus: Term | None = None
    own: float = 0.0

    def on(self, gpus: Term) -> Goodput:
        """Return the share on a machine of this size: predicted from its failures, if nothing else was given."""
        failing = self.interruptions
        if failing is None or self.gpus is not None:
            return self
        spread = math.hypot(self.spread, failing.spread(gpus))
        return Goodput(failing.share(gpus), spread, self.run_kind, failing, self.spares, gpus, self.spread)

    def saving(self, states: Term) -> Goodput:
        """Return the same for a job whose checkpoints hold these bytes, on whatever machine."""
        failing = self.interruptions
        if failing is None:
            return self
        found = replace(self, interruptions=failing.saving(states))
        return found if self.gpus is None else replace(found, spread=self.own, gpus=None).on(self.gpus)

    def expected(self, lasting: Term) -> list[Term]:
        """Return the failures to expect in a calendar time, how far apart, and how often to write a checkpoint; nothing
        if the share is not predicted."""
        if self.interruptions is None or self.gpus is None:
            return []
        return self.interruptions.terms(self.gpus, lasting)

    def paid(self, gpus: Term) -> Term:
        """Return the GPUs that cost money: those that train, and those that stand by."""
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
"""The share if a whole-run MFU is given, which has all losses in it."""
UNBROKEN = Goodput(constant("goodput", 1, "1", "a trainer's own clock: of its steps"))
"""The share of the time that a trainer prints."""

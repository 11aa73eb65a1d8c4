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
    loss    σ of its logarithm downwards, where that is another
    interruptions  inputs of the prediction for a number of GPUs (`on`)        spares  standby GPUs
    gpus    number of GPUs that it was predicted for        before  without a number of GPUs"""

    share: Term
    spread: float = 0.0
    run_kind: str = "production"
    interruptions: Interruptions | None = None
    spares: Term | None = None
    gpus: Term | None = None
    loss: float | None = None
    before: Goodput | None = None

    def on(self, gpus: Term) -> Goodput:
        """Return the goodput on this many GPUs: predicted from failures, unless given."""
        failing = self.interruptions
        if failing is None or self.gpus is not None:
            return self
        own = failing.spread(gpus)
        spread, loss = math.hypot(self.spread, own), None if self.loss is None else math.hypot(self.loss, own)
        return replace(self, share=failing.share(gpus), spread=spread, loss=loss, gpus=gpus, before=self)

    def saving(self, states: Term) -> Goodput:
        """Return the goodput of a job with checkpoints of this size, on any machine."""
        failing = self.interruptions
        if failing is None:
            return self
        found = replace(self.before or self, interruptions=failing.saving(states))
        return found if self.gpus is None else found.on(self.gpus)

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
        more, less = self.half_widths(0.0, deviations)
        return float(self.share.value) / math.exp(less), min(float(self.share.value) * math.exp(more), 1.0)

    def run(self, tokens: float, each: float) -> tuple[float, float]:
        """Return the training seconds and the calendar seconds of a run; each: seconds per token on all GPUs."""
        running = tokens * each
        return running, running / float(self.share.value)

    def half_widths(self, step: float, deviations: float) -> tuple[float, float]:
        """Return how far the interval of ln(calendar time) reaches down and up; step: half that of ln(step time)."""
        loss = self.spread if self.loss is None else self.loss
        return math.hypot(step, deviations * self.spread), math.hypot(step, deviations * loss)

    @property
    def is_spread(self) -> bool:
        """Whether it is uncertain."""
        return bool(self.spread or self.loss)

    @property
    def is_given(self) -> bool:
        """Whether the user gave it."""
        return self.share.kind == GIVEN


IN_MFU = Goodput(constant("goodput", 1, "1", "the given MFU is that of the whole run"))
"""The goodput for a given whole-run MFU, which includes all losses."""

"""The memory of a GPU in the passes without gradients of a reinforcement learning step, which run before the update.

They are those over the responses of the policy and the reference (log-probabilities), of a reward model and of a value
model. Nothing is saved for a backward pass: next to the states of the trainer, a GPU holds one layer's tensors, or the
head's input with the logits of a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import ceiling
from napkin.footprint.memory import holding, parts_of
from napkin.footprint.moments import Moments
from napkin.footprint.other_models import peak_of
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.stages import places
from napkin.operations.model import Model
from napkin.planning.verdicts import figures_of
from napkin.record import replace
from napkin.term import Term, largest
from napkin.training.setup import Setup
from napkin.training.tasks import ForwardPass


def used_in_passes(model: Model, setup: Setup, away: Sequence[str]) -> Term | None:
    """Return the most bytes that the driver shows during the passes without gradients that run before the update; None
    if there are none. setup: of their largest micro-batch; away: states on the host until the update needs them."""
    passes = [one for one in setup.forwards if one.first and not one.trained]
    if not passes:
        return None
    step = prepare(model, setup)
    return largest("logprobs/used", *(_used(step, one, away) for one in passes))


def _used(step: PreparedStep, one: ForwardPass, away: Sequence[str]) -> Term:
    """Return the bytes of one pass on the rank that uses the most: allocated ones, the cache and the context."""
    found = []
    for place in places(step):
        rank = holding(step, place).alone()
        moment = Moments(step, rank, parts_of(step, rank.stage)).first_pass(peak_of(one, step, rank.stage))
        moved = rank.optimizer if "optimizer" in away else 0
        flow = replace(rank, moments=(moment, moment)).flow(step.setup)
        live = moment.live - moved
        flow = replace(flow, standing=live - moment.passing, passing=moment.passing - rank.bucket)
        found.append(figures_of(step.setup, ceiling(live), flow).used)
    return max(found, key=lambda used: float(used.value)).renamed("pass/used")

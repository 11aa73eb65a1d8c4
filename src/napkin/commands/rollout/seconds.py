"""The seconds of a step of reinforcement learning, and how far published steps were from them."""

from __future__ import annotations

import math

from napkin.evidence.constants import deviations
from napkin.evidence.generation import UNKNOWN, rates_on
from napkin.evidence.rollouts import longer, said
from napkin.evidence.single import StepPrediction
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.rollouts import ELEMENT, FORMAT, Engine, RolloutLengths, rollout_of, tensors
from napkin.record import record
from napkin.term import TRUE, Term, add, constant, largest, leaf, multiply
from napkin.timing.rollout import generation_time, offload_time, sync_time
from napkin.training.tasks import CRITIC, LOGPROBS, REFERENCE, REWARD

GENERATES = ("step/time", "step/generation", "step/weight_transfer", "step/offload", "step/together")
"""Times with generation in them; the others are passes like those of training steps."""


@record
class RolloutSeconds:
    """A step's seconds. phases: of which it consists, some at the same time as others; inner: parts of them; evidence:
    what the interval rests on."""

    time: Term
    phases: tuple[Term, ...]
    inner: tuple[Term, ...]
    prediction: StepPrediction
    evidence: str

    def ends(self, level: float, named: bool, without: str = "") -> dict[str, tuple[float, float]]:
        """Return the factors to the interval's ends, by path: those of training steps for their passes, those of
        published steps of reinforcement learning for a whole step and what generates. without: a source that is held
        out."""
        of_step, _ = self.prediction.half_width(level, named=named)
        middle, wide = longer(deviations(level), without)
        passes = (math.exp(-of_step), math.exp(of_step))
        whole = (math.exp(min(-of_step, middle - wide)), math.exp(max(of_step, middle + wide)))
        named_terms = (self.time, *self.time.parts, *self.phases)
        return {term.name: whole if term.name in GENERATES else passes for term in named_terms}


PASSES = {LOGPROBS: "logprobs", REFERENCE: "reference", REWARD: "reward", "values": "values", CRITIC: "critic"}
"""Other passes of a step, by name."""


def seconds_of(
    prediction: StepPrediction,
    engine: Engine | None,
    lengths: RolloutLengths,
    hardware: Hardware,
    model: Model,
    away: Term | None = None,
) -> RolloutSeconds:
    """Return the seconds of a step: the phases follow each other, or, where answers may be behind the weights, those of
    the next step are generated while the trainer works. prediction: of one of its optimizer steps; away: bytes of the
    trainer on a GPU that are moved to the host while the engine generates there."""
    whole = prediction.step()
    others = [part for part in whole.time.parts if part.name.removeprefix("step/") in PASSES]
    rest = [part for part in whole.time.parts if part not in others]
    update = add("step/update", *(part.renamed(part.name.replace("step/", "step/update/")) for part in rest))
    inner: list[Term] = [*update.parts]
    parts: list[Term] = [_repeated(part, lengths.updates) for part in (*others, update)]
    if engine is not None:
        capacity = hardware.term("capacity", "memory/capacity", "byte")
        rates = rates_on(hardware, FORMAT, engine.family or UNKNOWN)
        generation = generation_time(rollout_of(engine, lengths, capacity), rates)
        weights = multiply(
            "weights",
            leaf("params", _count(model), "param", TRUE),
            leaf("bytes_of_a_weight", ELEMENT, "byte/param", TRUE, "bf16"),
        )
        trained_on = int(prediction.plan.dp * prediction.plan.tp)
        sync = sync_time(weights, tensors(model), engine.ranks, trained_on, engine.apart, prediction.rates)
        inner += generation.parts
        moved = [offload_time(away)] if away is not None else []
        phases = (generation, *parts, sync, *moved)
        if lengths.behind:
            together = largest("step/together", generation, add("step/training", *parts))
            return RolloutSeconds(add("step/time", together, sync), phases, tuple(inner), prediction, said())
        parts = [*phases]
    return RolloutSeconds(add("step/time", *parts), tuple(parts), tuple(inner), prediction, said())


def _repeated(part: Term, updates: int) -> Term:
    """Return the seconds of a phase over all optimizer steps of a step."""
    if updates == 1:
        return part
    return multiply(part.name, constant("updates", updates), part.renamed(f"{part.name}/each"))


def _count(model: Model) -> int:
    """Return a model's parameters."""
    from napkin.counting.params import params

    return int(params(model)["params/total"].value)

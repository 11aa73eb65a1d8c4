"""The time of a reinforcement learning step, and the error of such predictions on published steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from napkin.evidence.intervals.rollouts import half_width, said, slower, with_others
from napkin.evidence.predictions.one_run import StepPrediction
from napkin.evidence.serving.generation import UNKNOWN, rates_on
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.planning.rollouts import ELEMENT, Engine, rollout_of, tensors
from napkin.record import record, replace
from napkin.term import GIVEN, TRUE, Term, add, constant, largest, leaf, multiply, subtract
from napkin.timing.rollout import (
    broadcast_time,
    dispatch_time,
    generation_time,
    offload_time,
    sync_time,
    together_time,
)
from napkin.training.tasks import CRITIC, LOGPROBS, REFERENCE, REWARD


@record
class RolloutSeconds:
    """The time of a step in seconds. phases: its parts, some of which overlap; inner: parts of those; evidence: the
    basis of the interval."""

    time: Term
    phases: tuple[Term, ...]
    inner: tuple[Term, ...]
    prediction: StepPrediction
    evidence: str

    def ends(self, level: float, named: bool, without: str = "") -> dict[str, tuple[float, float]]:
        """Return the factors to the interval's ends by path: the wider of those from published reinforcement learning
        steps and from training steps. without: a source to hold out."""
        of_step, _ = self.prediction.half_width(level, named=named)
        half = max(of_step, half_width(level, without))
        ends = math.exp(-half), math.exp(half)
        return {term.name: ends for term in (self.time, *self.time.parts, *self.phases)}


def spanned(found: Sequence[RolloutSeconds], level: float, named: bool) -> dict[str, tuple[float, float]]:
    """Return the interval of each time, in seconds, over a step with several possible lengths, the likely first."""
    times = [{term.name: float(term.value) for term in (one.time, *one.time.parts, *one.phases)} for one in found]
    return {
        name: with_others(times[0][name], ends, [other[name] for other in times[1:] if name in other])
        for name, ends in found[0].ends(level, named).items()
    }


WAITS = "step/overhead/host"
"""The seconds of an optimizer step in which the GPUs wait for the host to launch kernels."""
PASSES = {LOGPROBS: "logprobs", REFERENCE: "reference", REWARD: "reward", "values": "values", CRITIC: "critic"}
"""Other passes of a step, by name."""


def seconds_of(
    prediction: StepPrediction,
    engine: Engine | None,
    lengths: RolloutLengths,
    hardware: Hardware,
    model: Model,
    away: Term | None = None,
    without: str = "",
) -> RolloutSeconds:
    """Return the seconds of a step. Its phases run in sequence, or, if responses may lag behind the weights, the next
    responses are generated while the trainer works. Each phase is scaled by a factor fitted to published steps, except
    for what a trainer's GPUs wait for the host.
    prediction: of one of its optimizer steps; away: the trainer's bytes per GPU that are offloaded during generation;
    without: a source of published steps to hold out."""
    whole = prediction.step()
    others = [part for part in whole.time.parts if part.name.removeprefix("step/") in PASSES]
    rest = [part for part in whole.time.parts if part not in others]
    update = add("step/update", *(part.renamed(part.name.replace("step/", "step/update/")) for part in rest))
    inner: list[Term] = [*update.parts]
    factor = slower(without)
    repeated = [_dispatched(_repeated(part, lengths.updates), lengths) for part in (*others, update)]
    parts: list[Term] = [_trained_slower(part, factor, lengths.updates) for part in repeated]
    if engine is not None:
        generation, sync = _generation(engine, lengths, hardware), _sync(engine, prediction, model)
        inner += generation.parts
        generation = _slower(_in_share(generation, lengths.generated), factor)
        sent = None if sync is None else _in_share(sync, lengths.generated)
        moved = [
            _slower(one, factor) for one in (sent, None if away is None else offload_time(away)) if one is not None
        ]
        phases = (generation, *parts, *moved)
        if lengths.behind:
            training = add("step/training", *parts)
            plan = prediction.plan
            gpus = int(plan.dp * plan.tp * plan.pp * plan.cp)
            together = together_time(generation, training, engine.gpus, gpus, lengths.lent)
            return RolloutSeconds(add("step/time", together, *moved), phases, tuple(inner), prediction, said())
        parts = [*phases]
    return RolloutSeconds(add("step/time", *parts), tuple(parts), tuple(inner), prediction, said())


def _generation(engine: Engine, lengths: RolloutLengths, hardware: Hardware) -> Term:
    """Return the seconds in which the engine generates the responses of a step."""
    capacity = hardware.term("capacity", "memory/capacity", "byte")
    rates = rates_on(hardware, engine.compute(hardware), engine.family or UNKNOWN)
    rates = replace(rates, reached=replace(rates.reached, eager=engine.eager))
    return generation_time(rollout_of(engine, lengths, capacity), rates)


def _sync(engine: Engine, prediction: StepPrediction, model: Model) -> Term | None:
    """Return the seconds in which the trainer's weights reach the engine; None if both hold the same ones."""
    if engine.shared:
        return None
    weights = multiply(
        "weights",
        leaf("params", _count(model), "param", TRUE),
        leaf("bytes_of_a_weight", ELEMENT, "byte/param", TRUE, "bf16"),
    )
    if engine.apart and engine.broadcast:
        return broadcast_time(weights, engine.broadcast, "the library's own full broadcasts")
    holders = int(prediction.plan.dp * prediction.plan.tp) + (engine.gpus if engine.apart else 0)
    return sync_time(weights, tensors(model), engine.ranks, holders, engine.apart, prediction.rates)


def _slower(phase: Term, factor: Term) -> Term:
    """Return the seconds of a phase scaled by a factor."""
    return multiply(phase.name, factor, phase.renamed(f"{phase.name}/counted"))


def _trained_slower(phase: Term, factor: Term, updates: int) -> Term:
    """Return the seconds of a trainer's phase scaled by a factor. Uneven sequences make the GPUs' work longer, but not
    the host's, which launches as many kernels whatever the lengths: that work hides more of the launches, so that the
    phase takes the longer of the scaled work alone and of all that is counted."""
    waits = [one for one in _within(phase) if one.name == WAITS and float(one.value) > 0]
    if not waits:
        return _slower(phase, factor)
    counted = phase.renamed(f"{phase.name}/counted")
    host = multiply(f"{phase.name}/host", constant("updates", updates), waits[0])
    work = subtract(f"{phase.name}/work", counted, host)
    return largest(phase.name, multiply(f"{phase.name}/work/slower", factor, work), counted)


def work_of(phase: Term) -> float:
    """Return the seconds of a phase's work, without those in which its GPUs wait for the host."""
    return next((float(one.value) for one in _within(phase) if one.name == f"{phase.name}/work"), float(phase.value))


def _within(phase: Term) -> Iterator[Term]:
    """Yield the terms of a phase, the outer ones first."""
    level = [phase]
    while level:
        yield from level
        level = [part for one in level if one.name != WAITS for part in one.parts]


def _in_share(phase: Term, share: float) -> Term:
    """Return the mean seconds of a phase that only this share of all steps has."""
    if share == 1.0:
        return phase
    return multiply(phase.name, leaf("share_of_steps", share, "1", GIVEN), phase.renamed(f"{phase.name}/in_a_step"))


def _repeated(part: Term, updates: int) -> Term:
    """Return the seconds of a phase over all optimizer updates of a step."""
    if updates == 1:
        return part
    return multiply(part.name, constant("updates", updates), part.renamed(f"{part.name}/each"))


def _dispatched(part: Term, lengths: RolloutLengths) -> Term:
    """Return the seconds of a phase with those in which its sequences are sent to the workers, where they are known."""
    if not lengths.dispatch:
        return part
    sent = dispatch_time(f"{part.name}/dispatch", lengths.dispatched, lengths.dispatch)
    return add(part.name, part.renamed(f"{part.name}/passes"), sent)


def _count(model: Model) -> int:
    """Return a model's parameters."""
    from napkin.counting.params import params

    return int(params(model)["params/total"].value)

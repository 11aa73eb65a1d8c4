"""The memory of a GPU in each phase of a reinforcement learning step, with its interval, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import Number, ceiling
from napkin.errors import UNDECIDED
from napkin.footprint.memory import holding, parts_of
from napkin.footprint.moments import Moments
from napkin.footprint.other_models import peak_of
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.stages import places
from napkin.operations.model import Model
from napkin.planning import verdicts
from napkin.planning.rollouts import Engine, held_by_rollout
from napkin.planning.step_memory import terms_of, with_wider_ends
from napkin.planning.verdicts import FITS, NOT, Fit, figures_of
from napkin.record import record, replace
from napkin.term import TRUE, Term, add, largest, leaf, subtract
from napkin.training.setup import Setup
from napkin.training.tasks import ForwardPass


def used_in_passes(model: Model, setup: Setup, away: Sequence[str]) -> Term | None:
    """Return the most bytes that the driver shows during the passes without gradients that run before the update; None
    if there are none: log-probabilities of the policy and the reference, and a reward model's and a value model's.

    Nothing is saved for a backward pass: next to the states of the trainer, a GPU holds one layer's tensors, or the
    head's input with the logits of a micro-batch.

    setup  of their largest micro-batch     away  states on the host until the update needs them
    """
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


ENGINE = ("engine/", "memory/engine")
SHARE = ("engine/memory", "memory/engine")
"""The engine's share of the memory, among its parts."""
STATES = {"optimizer": ("memory/optimizer",), "parameters": ("memory/parameters", "memory/models")}
"""States that a trainer can offload during generation → their terms. No gradients or activations are live then."""
TRAINERS = ("update", "logprobs")
"""Phases in which the trainer runs."""
OUTSIDE = 2 * 2**30
"""assumed: maximum bytes of CUDA graphs and communication of an engine outside its share."""


@record
class Sharing:
    """How a trainer and an engine share GPUs. engine: None if responses are not generated here; asleep: it frees its
    memory while the trainer runs; away: the STATES that the trainer offloads during generation,
    and has back for the update; movable: those that its library can offload then; returns: --offload is how it does."""

    engine: Engine | None
    asleep: bool
    away: tuple[str, ...]
    movable: tuple[str, ...] = tuple(STATES)
    returns: bool = False


@record
class RolloutFit:
    """The memory of a step.

    update  of the trainer's passes      terms  of it, by path, without its total; what is used is the GPU's
    phases  of the step                  ends   their intervals, by path, and that of the total
    """

    update: Fit
    terms: dict[str, Term]
    phases: tuple[Term, ...]
    total: Term
    ends: dict[str, tuple[Number, Number]]
    verdict: str


def weigh(
    model: Model,
    setups: tuple[Setup, Setup],
    sharing: Sharing,
    capacity: Term,
    source: str = "",
    times: float = 1.0,
) -> RolloutFit:
    """Return the memory of each phase of a step on a GPU. setups: of the largest micro-batch of the update, and of
    passes without gradients; source: the implementation that the activations belong to;
    times: factor on the width of the update's interval."""
    most = int(capacity.value)
    setup, passing = setups
    fit = with_wider_ends(verdicts.evaluate(model, setup, most), times, most)
    terms = terms_of(fit, source)
    used = terms.pop("memory/total").renamed("update/used")
    phases = _phases(sharing, terms, used, used_in_passes(model, passing, sharing.away), capacity)
    ends = _ends(phases, used, fit.reported.ends["memory/used"], sharing.engine)
    low, high = max(low for low, _ in ends.values()), max(high for _, high in ends.values())
    verdict = verdict_of(low, high, capacity)
    total = largest("memory/total", *phases)
    terms["memory/used"] = total.renamed("memory/used")
    whole = {**fit.reported.ends, **ends, **dict.fromkeys(("memory/used", "memory/total"), (low, high))}
    return RolloutFit(fit, terms, tuple(phases), total, whole, verdict)


def spanned(fit: RolloutFit, others: list[RolloutFit], capacity: Term) -> RolloutFit:
    """Return a fit whose intervals and verdict also cover other lengths."""
    if not others:
        return fit
    ends = dict(fit.ends)
    for one in others:
        for name, (low, high) in one.ends.items():
            ends[name] = (min(ends[name][0], low), max(ends[name][1], high))
    low, high = ends["memory/total"]
    return replace(fit, ends=ends, verdict=verdict_of(low, high, capacity))


def verdict_of(low: Number, high: Number, capacity: Term) -> str:
    """Return the verdict for an interval of bytes."""
    return FITS if high <= capacity.value else NOT if low > capacity.value else UNDECIDED


def hosted_between(terms: dict[str, Term], away: tuple[str, ...]) -> dict[str, Term]:
    """Return the bytes that a GPU's trainer holds in host memory while responses are generated, by path. terms: its
    memory on the GPU; away: which STATES are offloaded."""
    found = {}
    for name in away:
        path, parts = f"memory/host/{name}", [terms[one] for one in STATES[name] if one in terms]
        found[path] = parts[0].renamed(path) if len(parts) == 1 else add(path, *parts)
    return found


def moved_away(terms: dict[str, Term], away: tuple[str, ...]) -> Term | None:
    """Return the bytes offloaded from a GPU during generation, as in `hosted_between`; None if there are none."""
    return add("offload/bytes", *hosted_between(terms, away).values()) if away else None


def _ends(
    phases: list[Term], used: Term, of_update: tuple[Number, Number], engine: Engine | None
) -> dict[str, tuple[float, float]]:
    """Return the interval of each phase. The trainer's part is as uncertain as its update (of_update). The engine takes
    its share, minus up to the room for its largest pass, plus, during generation, up to the graphs and workspace
    outside the share."""
    low, high = (float(end) / float(used.value) for end in of_update)
    profiled = 0.0 if engine is None else float(engine.profiled())
    found = {}
    for one in phases:
        own = [part for part in (one, *one.parts) if part.name.startswith(ENGINE)]
        taken = sum(float(part.value) for part in own)
        trainer = float(one.value) - taken
        outside = OUTSIDE if own and not one.name.endswith(TRAINERS) else 0.0
        unused = profiled if any(part.name in SHARE for part in own) else 0.0
        found[one.name] = (taken - unused + trainer * low, taken + trainer * high + outside)
    return found


def _phases(sharing: Sharing, terms: dict[str, Term], used: Term, in_passes: Term | None, capacity: Term) -> list[Term]:
    """Return the memory of a trainer's GPU during generation, weight transfer, passes without gradients and, last, the
    update; with a separate engine also that of the engine's GPU. terms: those of the update; in_passes: None if there
    are no such passes."""
    engine = sharing.engine
    passes = {"logprobs": in_passes, "update": used}
    trained = {f"memory/phase/{name}": one for name, one in passes.items() if one is not None}
    if engine is None or engine.apart:
        own = [] if engine is None else [engine.memory(capacity).renamed("memory/engine")]
        return [*own, *(one.renamed(path) for path, one in trained.items())]
    kept = _kept(sharing.away, terms)
    if engine.shared:
        beyond = subtract("engine/memory", engine.memory(capacity).renamed("engine/share_of_it"), engine.weights())
        return [
            add("memory/phase/rollout", beyond, kept.renamed("kept")),
            *(add(path, one, *([] if sharing.asleep else [beyond])) for path, one in trained.items()),
        ]
    rollout = add("memory/phase/rollout", *held_by_rollout(engine, capacity, kept))
    sync = add("memory/phase/weight_transfer", engine.weights(), kept.renamed("kept"), terms["memory/parameters"])
    beside = [] if sharing.asleep else [engine.memory(capacity)]
    return [rollout, sync, *(add(path, one, *beside) for path, one in trained.items())]


def _kept(away: tuple[str, ...], terms: dict[str, Term]) -> Term:
    """Return the trainer's bytes that stay on a GPU during generation: its context, and the STATES that are not
    offloaded."""
    context = leaf("overhead", terms["memory/overhead"].value, "byte", TRUE, "context and communication")
    staying = [path for name, paths in STATES.items() if name not in away for path in paths]
    return add("memory/kept", context, *(terms[path] for path in staying if path in terms))

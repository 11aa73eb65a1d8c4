"""The layout and the batch that `serve` answers for: the fastest on the given GPUs, or on the fewest."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.commands.serve.question import ServeQuestion
from napkin.commands.serve.served import ServedModel, served_of
from napkin.errors import BROKEN, NapkinError
from napkin.planning.generation import ServingSetup
from napkin.planning.service import hold, least_latency
from napkin.planning.serving_search import MOST_GPUS, fastest, fewest, keeps, largest_batch, layouts, sharing
from napkin.planning.verdicts import FITS
from napkin.record import replace
from napkin.timing.generation import CLOSED, LatencyLimits
from napkin.units import human


def choose(question: ServeQuestion) -> ServedModel:
    """Return the service on the layout with the highest rate among those on which the sequences surely fit, on the
    given GPUs or on the fewest that serve the load. If none fits, return the nearest."""
    given = question.ranks
    in_time = _in_time(question)
    if given.gpus is not None:
        setups = list(layouts(question.setup, given))
    else:
        setups = fewest(
            question.setup,
            given,
            lambda setup: _replicas_needed(question, setup) if in_time(setup) else 0,
            lambda setup: question.limits == LatencyLimits() or keeps(_asked(question, setup).service, question.limits),
        )
    best = fastest(
        setups,
        lambda setup: _fitting(question, setup) if in_time(setup) else None,
        lambda found: found.service,
        lambda found, above: _within(question, found, above),
    )
    if best is not None:
        return best
    if question.maximize:
        raise _no_batch(question, setups)
    if not setups and (given.tp is None or question.limits != LatencyLimits()):
        raise _too_many(question)
    return min(
        (_asked(question, setup) for setup in setups or layouts(question.setup, given)),
        key=lambda found: found.cache - found.room.low,
    )


def _in_time(question: ServeQuestion) -> Callable[[ServingSetup], bool]:
    """Return whether a layout can meet the latency limits with any number of stages, replicas and sequences."""
    known: dict[tuple[int, int], bool] = {}

    def in_time(setup: ServingSetup) -> bool:
        limits, key = question.limits, (setup.groups.tp, setup.groups.ep)
        if limits == LatencyLimits():
            return True
        if key not in known:
            ttft, tpot = least_latency(setup, question.traffic, question.rates)
            known[key] = ttft <= (limits.ttft or math.inf) and tpot <= (limits.tpot or math.inf)
        return known[key]

    return in_time


def _replicas_needed(question: ServeQuestion, setup: ServingSetup) -> int:
    """Return the replicas whose memory surely holds the load; 0 if no number does."""
    most = most_sequences(question, setup)
    if question.traffic.mode == CLOSED:
        return -(-question.traffic.at_once // most) if most else 0
    return sharing(setup.groups) if most >= question.traffic.at_once else 0


def most_sequences(question: ServeQuestion, setup: ServingSetup) -> int:
    """Return the sequences that surely fit in a replica at a time."""
    room = question.room(setup)
    if room.low <= 0:
        return 0
    each = float(hold(setup, question.requests(setup, 1), None).each.value)
    return int(min(room.low / each, setup.most)) if each else setup.most


def _asked(question: ServeQuestion, setup: ServingSetup, batch: int | None = None) -> ServedModel:
    """Return the service of the load on a setup, or of that many sequences per replica."""
    return served_of(question, setup, question.requests(setup, batch), question.rates)


def _fitting(question: ServeQuestion, setup: ServingSetup) -> ServedModel | None:
    """Return the service on a setup, with as many sequences as surely fit for --max batch; None if the load does not
    surely fit."""
    if not question.maximize:
        found = _asked(question, setup)
        return found if found.verdict == FITS else None
    most = most_sequences(question, setup)
    return _asked(question, setup, most) if most else None


def _within(question: ServeQuestion, found: ServedModel, above: float) -> ServedModel | None:
    """Return the service of as many sequences as meet the latency limits; None if none do at a higher rate."""
    if not question.maximize or keeps(found.service, question.limits):
        return found
    batch = largest_batch(
        lambda batch: _asked(question, found.setup, batch).service, found.service, question.limits, above
    )
    return _asked(question, found.setup, batch) if batch else None


def _no_batch(question: ServeQuestion, setups: list[ServingSetup]) -> NapkinError:
    """Return the error that not even one sequence fits."""
    tried = setups or list(layouts(question.setup, replace(question.ranks, gpus=None)))
    if any(most_sequences(question, setup) for setup in tried):
        return _too_slow(question, tried, 1)
    name = question.setup.model.name
    where = f"{question.ranks.gpus:,} GPUs" if question.ranks.gpus is not None else f"up to {MOST_GPUS:,} GPUs"
    return NapkinError(f"one sequence of {name} does not surely fit on {where}", _smaller(question), status=BROKEN)


def _too_many(question: ServeQuestion) -> NapkinError:
    """Return the error that no number of GPUs serves the load."""
    tried = [setup for setup in layouts(question.setup, question.ranks) if _replicas_needed(question, setup)]
    if tried:
        return _too_slow(question, tried, None if question.traffic.mode != CLOSED else 1)
    name = question.setup.model.name
    return NapkinError(
        f"{name} does not fit on any layout of up to {MOST_GPUS:,} GPUs", _smaller(question), status=BROKEN
    )


def _too_slow(question: ServeQuestion, tried: list[ServingSetup], batch: int | None) -> NapkinError:
    """Return the error that the latency limits cannot be met, with the best latency."""
    held = [setup for setup in tried if most_sequences(question, setup)]
    if batch == 1 and question.traffic.prompt <= question.setup.chunk:  # then more stages are not faster
        held = list({(one.groups.tp, one.groups.ep): one for one in reversed(held)}.values())
    services = [_asked(question, setup, batch).service for setup in held]
    first = min(float(service.ttft.value) for service in services)
    later = min((float(one.tpot.value) for one in services if one.tpot is not None), default=None)
    best = f"{human(first, 'second', 3)} to the first token"
    if later is not None:
        best += f", {human(later, 'second', 3)} for each further one"
    alone = "a single request takes" if batch == 1 else "the batch takes"
    return NapkinError(
        f"no layout meets the latency limit: {alone} at best {best}",
        f"a higher limit, or {_faster(question)}",
        status=BROKEN,
    )


def _smaller(question: ServeQuestion) -> str:
    """Return a hint that makes a model fit."""
    return "--dtype fp8, or a smaller --batch" if question.setup.weights.each > 1 else "a larger accelerator"


def _faster(question: ServeQuestion) -> str:
    """Return a hint that makes a model faster."""
    return "--dtype fp8" if question.setup.weights.each > 1 else "a faster accelerator"

"""The search for the highest serving throughput: over layouts, and over the concurrent sequences of a replica.

A model is divided over t tensor-parallel ranks and s stages; r replicas of that take t·s·r GPUs. Experts stay inside a
replica, or are divided over the ranks of e/t replicas (attention is then data parallel, experts are not). The memory
and time of a replica depend only on (t, s, e) and its own sequences, so finding the fewest GPUs needs no search over
their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from napkin.errors import NapkinError
from napkin.operations.fold_cache import remembered
from napkin.operations.model import Model
from napkin.planning.generation import ServingSetup
from napkin.planning.served import undivided_when_served
from napkin.planning.service import Service, serve
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.generation import CLOSED, OFFLINE, EngineRanks, GenerationRates, LatencyLimits, Traffic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Found = TypeVar("Found")

MOST_GPUS = 1024
"""Maximum GPUs that are tried if their number is not given, and maximum tensor-parallel ranks in any case."""


@record
class GivenRanks:
    """GPUs and degrees that are given; None: searched."""

    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None


# --- which layouts there are -----------------------------------------------------------------------------------------


def sharing(groups: EngineRanks) -> int:
    """Return the number of replicas over which experts are divided."""
    return max(groups.ep // groups.tp, 1)


@remembered
def divisions(model: Model, given: GivenRanks) -> list[EngineRanks]:
    """Return the ways to divide the model over the given GPUs, or over at most MOST_GPUS (also the limit of tensor
    parallelism), sorted by GPUs, then by stages."""
    whole = given.gpus or MOST_GPUS
    found = []
    for tp in _numbers(given.tp, min(whole, MOST_GPUS), given.gpus):
        if undivided_when_served(model, tp):
            continue
        for pp in _numbers(given.pp, min(whole // tp, model.depth), given.gpus and given.gpus // tp):
            for ep in _expert_ranks(model, given, tp, whole // pp):
                groups = EngineRanks(tp, pp, ep)
                if _replicas(groups, given):
                    found.append(groups)
    return sorted(found, key=lambda one: (one.tp * one.pp * sharing(one), one.pp, one.ep > one.tp, one.tp))


def _numbers(given: int | None, most: int, divided: int | None) -> Iterable[int]:
    """Return the given degree, or all degrees up to `most`, that divide the model."""
    tried = range(1, most + 1) if given is None else (given,)
    return [n for n in tried if not (divided and divided % n)]


def _expert_ranks(model: Model, given: GivenRanks, tp: int, most: int) -> list[int]:
    """Return the possible expert-parallel ranks: 1 if experts are divided by the tensor-parallel ranks of a replica,
    else multiples of these."""
    if given.ep is not None:
        return [given.ep] if max(given.ep, tp) % min(given.ep, tp) == 0 else []
    several = range(2 * tp, min(most, *model.experts) + 1, tp) if model.experts else ()
    return [1, *(ep for ep in several if not any(number % ep for number in model.experts))]


def _replicas(groups: EngineRanks, given: GivenRanks) -> int:
    """Return the replicas: as many as the GPUs hold, as given, or as many as share the experts; 0 if not possible."""
    dp = given.dp or sharing(groups)
    if given.gpus is not None:
        dp = given.gpus // (groups.tp * groups.pp)
        if given.gpus % (groups.tp * groups.pp) or (given.dp is not None and given.dp != dp):
            return 0
    return dp if dp and dp % sharing(groups) == 0 else 0


def layouts(setup: ServingSetup, given: GivenRanks) -> Iterator[ServingSetup]:
    """Yield the ways to serve the model: on the given GPUs, else each with the fewest replicas."""
    for groups in divisions(setup.model, given):
        yield replace(setup, groups=groups, dp=_replicas(groups, given))


# --- which layout ----------------------------------------------------------------------------------------------------


def fastest(
    setups: Iterable[ServingSetup],
    found_on: Callable[[ServingSetup], Found | None],
    service: Callable[[Found], Service],
    limited: Callable[[Found, float], Found | None] | None = None,
) -> Found | None:
    """Return the result for the setup with the highest token rate (the first among equals); None if nothing fits.

    found_on: raises an error or returns None if a setup cannot serve the load; the last error is raised if nothing is
    found. limited: the result within latency limits, never with a higher rate; None if its rate is not above the given
    one."""
    found, problem = [], None
    for setup in setups:
        try:
            one = found_on(setup)
        except NapkinError as refused:
            problem = refused
            continue
        if one is not None:
            found.append(one)

    def rate(one: Found) -> float:
        return float(service(one).output_rate.value)

    if not found and problem is not None:
        raise problem
    best: Found | None = None
    for one in sorted(found, key=rate, reverse=True):
        if best is not None and rate(one) <= rate(best):
            break
        kept = one if limited is None else limited(one, 0.0 if best is None else rate(best))
        if kept is not None and (best is None or rate(kept) > rate(best)):
            best = kept
    return best


def fewest(
    setup: ServingSetup,
    given: GivenRanks,
    needed: Callable[[ServingSetup], int],
    within: Callable[[ServingSetup], bool],
) -> list[ServingSetup]:
    """Return the layouts on the fewest GPUs that serve the load; none if no number up to MOST_GPUS does.

    needed  the replicas that a layout needs for the load to fit in memory, 0 if none are enough
    within  whether a layout meets the limits; monotonic in the number of replicas"""
    found: list[ServingSetup] = []
    least = MOST_GPUS
    for one in layouts(setup, given):
        each = one.gpus // one.dp
        if each * sharing(one.groups) > least:
            break
        dp = _enough(one, given, least // each, needed(one), within)
        if dp:
            found = [other for other in found if other.gpus <= each * dp]
            found.append(replace(one, dp=dp))
            least = each * dp
    return found


def _enough(
    one: ServingSetup, given: GivenRanks, room: int, needed: int, within: Callable[[ServingSetup], bool]
) -> int:
    """Return the fewest replicas that are enough, at most `room`; 0 if none are."""
    unit = sharing(one.groups)
    low, high = -(-needed // unit), room // unit
    if given.dp is not None:
        low, high = (given.dp // unit,) * 2 if given.dp <= room and needed <= given.dp else (1, 0)
    if not needed or low > high or not within(replace(one, dp=high * unit)):
        return 0
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if within(replace(one, dp=middle * unit)) else (middle + 1, high)
    return low * unit


# --- how many sequences at a time ------------------------------------------------------------------------------------


def largest_batch(served: Callable[[int], Service], whole: Service, limits: LatencyLimits, above: float = 0.0) -> int:
    """Return the most sequences of a replica that meet the limits, 0 if none do; it may also be 0 if none of them has
    a rate above `above`. whole: the service of as many as memory holds, which does not meet the limits. More sequences
    have a higher rate and a longer latency.

    A cycle takes nearly a + b·B seconds for B sequences, so two services tell which B has the rate `above`, or the
    latency of the limits; every third B is the middle of those that are left."""
    low, high = 0, whole.at_once
    known = [whole]
    while high - low > 1:
        middle = (
            (low + high) // 2 if len(known) % 3 == 0 else min(max(_likely(known, limits, above), low + 1), high - 1)
        )
        found = served(middle)
        known.append(found)
        if keeps(found, limits):
            low, above = middle, 0.0 if found.output_rate.value > above else above
        elif found.output_rate.value <= above:
            return 0
        else:
            high = middle
    return low


def _likely(known: Sequence[Service], limits: LatencyLimits, above: float) -> int:
    """Return the sequences that have the rate `above`, or, where it is 0, the latency of the limits, on the line
    through the last two services, or through the last one and 0."""

    def excess(one: Service) -> float:
        if above:
            return one.at_once * (above / float(one.output_rate.value) - 1)
        later = float(one.tpot.value) / limits.tpot if limits.tpot and one.tpot is not None else 0.0
        return max(later, float(one.ttft.value) / limits.ttft if limits.ttft else 0.0) - 1

    last = known[-1]
    first, at_first = (known[-2].at_once, excess(known[-2])) if len(known) > 1 else (0, 0.0 if above else -1.0)
    rise = excess(last) - at_first
    return int(last.at_once - excess(last) * (last.at_once - first) / rise) if rise else 0


def keeps(service: Service, limits: LatencyLimits) -> bool:
    """Return whether a service meets the latency limits."""
    slow = limits.tpot is not None and service.tpot is not None and bool(service.tpot.value > limits.tpot)
    return not slow and (limits.ttft is None or bool(service.ttft.value <= limits.ttft))


def fullest(
    setups: Iterable[ServingSetup],
    traffic: Traffic,
    rates: GenerationRates,
    left: Callable[[ServingSetup], Term],
    limits: LatencyLimits,
) -> Service:
    """Return the service of a queue of requests on the layout with the highest rate, with as many concurrent sequences
    as its cache holds and the limits allow. left: bytes of a setup's GPU for the KV cache. Raises NapkinError if no
    layout holds the weights, or keeps the limits."""

    def full(setup: ServingSetup) -> tuple[ServingSetup, Term, Service]:
        room = left(setup)
        found = serve(setup, replace(traffic, mode=OFFLINE), rates, room)
        if found.held.batch is not None and found.held.batch.value < 1:
            raise NapkinError("the weights do not fit on its GPUs")
        return setup, room, found

    def limited(one: tuple[ServingSetup, Term, Service], above: float) -> tuple[ServingSetup, Term, Service] | None:
        setup, room, whole = one
        if keeps(whole, limits):
            return one

        def served(batch: int) -> Service:
            return serve(setup, replace(traffic, mode=CLOSED, at_once=batch * setup.dp), rates, room)

        most = largest_batch(served, whole, limits, above)
        return (setup, room, served(most)) if most else None

    best = fastest(setups, full, lambda one: one[2], limited)
    if best is None:
        raise NapkinError("no layout keeps the limits on latency")
    return best[2]

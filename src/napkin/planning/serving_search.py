"""The search of what serves most tokens a second: over layouts, and over the sequences of a replica at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from napkin.errors import NapkinError
from napkin.footprint import served_weights
from napkin.planning import enlarge
from napkin.planning.generation import ServingSetup
from napkin.planning.served import undivided_when_served
from napkin.planning.service import Service, serve
from napkin.record import replace
from napkin.term import Term
from napkin.timing.generation import CLOSED, OFFLINE, EngineRanks, GenerationRates, LatencyLimits, Traffic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Found = TypeVar("Found")


# --- which layout ----------------------------------------------------------------------------------------------------


def layouts(setup: ServingSetup, gpus: int) -> Iterator[ServingSetup]:
    """Yield the ways to serve the model on `gpus` GPUs: replicas of tensor-parallel groups of each power of two; with
    experts also attention on every GPU by itself and experts over all of them."""
    ranks = 1
    while ranks <= gpus:
        if gpus % ranks == 0 and not undivided_when_served(setup.model, ranks):
            yield replace(setup, groups=EngineRanks(ranks), dp=gpus // ranks)
            if ranks > 1 and served_weights.weights_read(setup.model, 1, setup.weights).experts:
                yield replace(setup, groups=EngineRanks(1, 1, ranks), dp=gpus)
        ranks *= 2


def fastest(
    setups: Iterable[ServingSetup],
    found_on: Callable[[ServingSetup], Found | None],
    service: Callable[[Found], Service],
    first: bool = False,
) -> Found | None:
    """Return what is found on the setup of the largest rate of tokens, of equal ones the earliest; None: nothing fits.

    found_on: raises an error or returns None where a setup does not serve what is asked. The last error is raised where
    nothing is found. first: the first setup that serves it is taken."""
    best: Found | None = None
    problem: NapkinError | None = None
    for setup in setups:
        try:
            found = found_on(setup)
        except NapkinError as refused:
            problem = refused
            continue
        if found is None:
            continue
        if first:
            return found
        if best is None or service(found).output_rate.value > service(best).output_rate.value:
            best = found
    if best is None and problem is not None:
        raise problem
    return best


# --- how many sequences at a time ------------------------------------------------------------------------------------


def largest_batch(served: Callable[[int], Service], most: int, limits: LatencyLimits) -> int:
    """Return the most sequences of a replica that keep the limits, 0 where one does not; most: that memory holds."""
    if limits == LatencyLimits():
        return most
    return enlarge.largest_that_fits(lambda batch: batch <= most and keeps(served(batch), limits), most=most)


def keeps(service: Service, limits: LatencyLimits) -> bool:
    """Return whether a service keeps limits on latency."""
    slow = limits.tpot is not None and service.tpot is not None and bool(service.tpot.value > limits.tpot)
    return not slow and (limits.ttft is None or bool(service.ttft.value <= limits.ttft))


def fullest(
    setup: ServingSetup, traffic: Traffic, rates: GenerationRates, left: Term, limits: LatencyLimits
) -> Service:
    """Return the service of a queue of requests by as many sequences at a time as the cache holds and the limits allow.
    left: bytes that a GPU has for keys and values."""
    full = serve(setup, replace(traffic, mode=OFFLINE), rates, left)
    if full.held.batch is not None and full.held.batch.value < 1:
        raise NapkinError("the weights do not fit on its GPUs")
    if keeps(full, limits):
        return full

    def served(batch: int) -> Service:
        return serve(setup, replace(traffic, mode=CLOSED, at_once=batch * setup.dp), rates, left)

    most = largest_batch(served, full.at_once, limits)
    if not most:
        raise NapkinError("no batch keeps the limits on latency")
    return served(most)

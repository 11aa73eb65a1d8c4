"""What serves most of a queue of requests on given GPUs: the layout and the batch of the largest rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from napkin.errors import NapkinError
from napkin.footprint import serving as inference
from napkin.planning import enlarge
from napkin.planning.generation import ServingSetup
from napkin.planning.service import Service, serve
from napkin.record import record, replace
from napkin.term import TRUE, Term, leaf
from napkin.timing.generation import CLOSED, OFFLINE, EngineRanks, GenerationRates, Traffic


@record
class Limits:
    """Most seconds to the first token, and of each token after it."""

    ttft: float
    tpot: float


def layouts(setup: ServingSetup, gpus: int) -> Iterator[ServingSetup]:
    """Yield the ways to serve the model on `gpus` GPUs: replicas of tensor-parallel groups of each power of two; with
    experts also attention on every GPU by itself and experts over all of them."""
    ranks = 1
    while ranks <= gpus:
        if gpus % ranks == 0 and setup.model.heads % ranks == 0:
            yield replace(setup, groups=EngineRanks(ranks), dp=gpus // ranks)
            if ranks > 1 and inference.weights_read(setup.model, 1, setup.weights).experts:
                yield replace(setup, groups=EngineRanks(1, 1, ranks), dp=gpus)
        ranks *= 2


def best(
    setup: ServingSetup,
    gpus: int | None,
    traffic: Traffic,
    rates: GenerationRates,
    room: Callable[[ServingSetup], float],
    limits: Limits | None = None,
) -> tuple[ServingSetup, Service]:
    """Return the setup and the service of the largest rate of tokens. gpus: to be divided, None: the setup's groups are
    given; room: bytes that a GPU has for keys and values in a setup."""
    found = None
    for one in [setup] if gpus is None else layouts(setup, gpus):
        free = room(one)
        if free <= 0:
            continue
        service = fullest(one, traffic, rates, leaf("cache/room", free, "byte", TRUE), limits)
        if service is not None and (found is None or service.output_rate.value > found[1].output_rate.value):
            found = one, service
    if found is None:
        raise NapkinError("the weights do not fit on its GPUs, or no batch keeps the limits on latency")
    return found


def fullest(
    setup: ServingSetup, traffic: Traffic, rates: GenerationRates, left: Term, limits: Limits | None
) -> Service | None:
    """Return the service of as many sequences at a time as the cache holds and the limits allow; None: not one."""
    full = serve(setup, replace(traffic, mode=OFFLINE), rates, left)
    if full.held.batch is not None and full.held.batch.value < 1:
        return None
    if limits is None or _keeps(full, limits):
        return full

    def of(at_once: int) -> Service:
        return serve(setup, replace(traffic, mode=CLOSED, at_once=at_once * setup.dp), rates, left)

    most = enlarge.largest_that_fits(lambda n: n <= full.at_once and _keeps(of(n), limits))
    return of(most) if most else None


def _keeps(service: Service, limits: Limits) -> bool:
    """Return whether a service keeps limits on latency."""
    slow = service.tpot is not None and service.tpot.value > limits.tpot
    return not slow and bool(service.ttft.value <= limits.ttft)

"""The service of an engine: latency, throughput, and the sequences that its cache holds.

With B sequences of a replica at a time, p tokens of a prompt and o of a response, P(n) the seconds of n prompts and D
those of one decoding step of B sequences at their mean context:

    cycle = P(B) + (o − 1)·D      B responses: the first token of each comes from its prompt's pass
    rate  = B·o / cycle           of a fixed batch, and of B sequences in flight all the time (Little's law)

In a fixed batch all prompts run first: the first token takes P(B), each further one D. In a closed loop a new prompt
runs while others decode: the first token takes P(1) + D, and the rest of the cycle is spread over the further tokens.
Requests of equal length that started together also end and restart together: their prompts run in sequence, and the
first token takes P(1) to P(B)."""

from __future__ import annotations

from napkin.footprint import kv_cache
from napkin.planning.generation import ServingSetup, Tokens, cache_of, decode_passes, prefill_passes
from napkin.record import record, replace
from napkin.term import GIVEN, TRUE, Term, add, constant, divide, floor, largest, leaf, multiply, smallest, subtract
from napkin.timing.generation import CLOSED, OFFLINE, GenerationRates, Traffic, passes_time


@record
class HeldCache:
    """The KV cache of a service.

    per_token  bytes of a token, all layers, of one copy     sequence  bytes of one sequence on a replica's rank
    each       mean bytes of a sequence on a GPU
    tokens     tokens that fit on all GPUs                   batch     sequences that fit in a replica
    """

    per_token: Term
    sequence: Term
    each: Term
    tokens: Term | None = None
    batch: Term | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(one for one in (self.per_token, self.sequence, self.tokens, self.batch) if one is not None)


@record
class Service:
    """Times and rates. step: seconds of one decoding step; tpot: mean seconds of a token after the first, None if
    a response is one token; at_once: sequences of a replica; waiting: requests that its cache cannot hold."""

    ttft: Term
    tpot: Term | None
    step: Term | None
    prefill: Term
    request: Term
    output_rate: Term
    output_rate_per_gpu: Term
    total_rate: Term
    request_rate: Term
    in_flight: Term
    held: HeldCache
    at_once: int
    waiting: int

    @property
    def terms(self) -> tuple[Term, ...]:
        own = (self.output_rate, self.output_rate_per_gpu, self.total_rate, self.request_rate, self.in_flight)
        times = (self.ttft, self.tpot, self.request, self.step, self.prefill)
        return (*own, *(one for one in times if one is not None), *self.held.terms)


def serve(setup: ServingSetup, traffic: Traffic, rates: GenerationRates, left: Term | None = None) -> Service:
    """Return times and rates. left: bytes of a GPU for the KV cache; None: no limit."""
    held = hold(setup, traffic, left)
    at_once, waiting = _at_once(setup, traffic, held)
    tokens = Tokens(traffic.prompt, traffic.response)
    response = leaf("response_tokens", traffic.response, "token", GIVEN)
    later = leaf("later_tokens", traffic.response - 1, "1", TRUE, "the first comes from the prompt's pass")
    prefill = passes_time("serve/prefill", prefill_passes(setup, at_once, traffic.prompt), setup.groups, rates)
    step = None
    cycle = prefill
    if traffic.response > 1:
        one = decode_passes(setup, tokens, constant("steps", 1), at_once, at_once)
        step = passes_time("serve/step", one, setup.groups, rates)
        cycle = add("serve/cycle", prefill, multiply("serve/decode", later, step))
    replicas = constant("replicas", setup.dp)
    in_flight = multiply("serve/in_flight", replicas, leaf("sequences_of_a_replica", at_once, "1", TRUE))
    if traffic.mode == CLOSED:  # some replicas have one fewer if they do not share evenly
        in_flight = smallest("serve/in_flight", in_flight, leaf("requests", traffic.at_once, "1", GIVEN))
    requests = divide("serve/requests_per_second", in_flight, cycle)
    rate = multiply("serve/output_tokens_per_second", requests, response)
    each = add("tokens_of_a_request", leaf("prompt_tokens", traffic.prompt, "token", GIVEN), response)
    ttft, tpot, request = _latency(setup, traffic, rates, cycle, step, at_once, waiting, requests)
    return Service(
        ttft=ttft,
        tpot=tpot,
        step=step,
        prefill=prefill,
        request=request,
        output_rate=rate,
        output_rate_per_gpu=divide("serve/output_tokens_per_second_per_gpu", rate, constant("gpus", setup.gpus)),
        total_rate=multiply("serve/total_tokens_per_second", requests, each),
        request_rate=requests,
        in_flight=in_flight,
        held=held,
        at_once=at_once,
        waiting=waiting,
    )


def least_latency(setup: ServingSetup, traffic: Traffic, rates: GenerationRates) -> tuple[float, float]:
    """Return lower bounds of the time to the first token and of that of each further one, over all numbers of stages,
    replicas and sequences: P(1), and D of one sequence on one stage for all later tokens but one, because in a closed
    loop the first step counts towards the first token. Stages pass a prompt on in parts, so P(1) bounds only a prompt
    of one part."""
    one = replace(setup, groups=replace(setup.groups, pp=1))
    first = later = 0.0
    if traffic.prompt <= setup.chunk:
        first = float(passes_time("serve/prefill", prefill_passes(one, 1, traffic.prompt), one.groups, rates).value)
    if traffic.response > 1:
        tokens = Tokens(traffic.prompt, traffic.response)
        step = passes_time("serve/step", decode_passes(one, tokens, constant("steps", 1), 1, 1), one.groups, rates)
        later = float(step.value) * (traffic.response - 2) / (traffic.response - 1)
    return first, later


def _latency(
    setup: ServingSetup,
    traffic: Traffic,
    rates: GenerationRates,
    cycle: Term,
    step: Term | None,
    at_once: int,
    waiting: int,
    requests: Term,
) -> tuple[Term, Term | None, Term]:
    """Return the time to the first token, the time of each further one, and that of a whole request."""
    if traffic.mode in (CLOSED, OFFLINE) and at_once > 1:
        alone = passes_time("serve/prefill/one", prefill_passes(setup, 1, traffic.prompt), setup.groups, rates)
        first = alone.renamed("serve/ttft") if step is None else add("serve/ttft", alone, step)
        if traffic.alike and traffic.mode == CLOSED:
            both = add("serve/ttft/first_and_last", alone, cycle if step is None else cycle.parts[0])
            first = divide("serve/ttft", both, constant("2", 2))
        first = smallest("serve/ttft", first, cycle)
    else:
        first = cycle.renamed("serve/ttft") if step is None else cycle.parts[0].renamed("serve/ttft")
    tpot = None
    if step is not None:
        later = constant("later_tokens", traffic.response - 1)
        tpot = divide("serve/tpot", subtract("serve/after_the_first", cycle, first), later)
    request = cycle.renamed("serve/request")
    if waiting and traffic.mode == CLOSED:  # offline, all requests are there from the start
        queue = divide("serve/queue", leaf("waiting_requests", waiting, "1", TRUE), requests)
        first = add("serve/ttft", queue, first.renamed("serve/ttft/served"))
        request = add("serve/request", queue, cycle)
    return first, tpot, request


def hold(setup: ServingSetup, traffic: Traffic, left: Term | None) -> HeldCache:
    """Return the KV cache: each sequence of a fixed batch reaches its full length; in a closed loop sequences are on
    average half-way through their responses."""
    whole = traffic.prompt + traffic.response
    in_the_mean = traffic.mode in (CLOSED, OFFLINE)
    context = traffic.prompt + traffic.response // 2 if in_the_mean else whole
    growing = kv_cache.growing(setup.model, *((traffic.response, traffic.prompt) if setup.encodes else (whole, 0)))
    width = constant(f"bytes of {setup.cache_name}", setup.element, "byte")
    held = leaf("elements_of_a_sequence", growing, "1", TRUE, kv_cache.LATENT)
    length = leaf("tokens_of_a_sequence", whole, "token", GIVEN)
    per_token = divide("serve/kv_cache/per_token", multiply("serve/kv_cache/grown", held, width), length)
    full = leaf("serve/kv_cache/sequence", cache_of(setup, whole, traffic.prompt), "byte", TRUE, kv_cache.LATENT)
    each = leaf("cache_of_a_sequence", cache_of(setup, context, traffic.prompt) / setup.groups.pp, "byte", TRUE)
    if left is None:
        return HeldCache(per_token, full, each)
    room = largest("cache/room", left, constant("0", 0, "byte"))
    batch = floor("serve/max_batch", divide("sequences_that_fit", room, each))
    one = divide("cache_of_a_token", each, leaf("mean_context", context, "token", GIVEN))
    tokens = floor("serve/kv_cache/tokens", multiply("tokens", constant("replicas", setup.dp), divide("t", room, one)))
    return HeldCache(per_token, full, each, tokens, batch)


def _at_once(setup: ServingSetup, traffic: Traffic, held: HeldCache) -> tuple[int, int]:
    """Return the concurrent sequences of a replica, and the total number of waiting requests."""
    room = setup.most if held.batch is None else min(int(held.batch.value), setup.most)
    each = -(-traffic.at_once // setup.dp)
    if traffic.mode == OFFLINE:
        return max(min(room, each) if each else room, 1), 0
    if traffic.mode != CLOSED or each <= room or not room:
        return each, 0
    return room, traffic.at_once - room * setup.dp

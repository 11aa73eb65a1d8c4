"""Transfers between a GPU and its host: the parameters, gradients and activations that a step offloads."""

from __future__ import annotations

from napkin import term
from napkin.elementwise import where
from napkin.term import Term
from napkin.timing.clock import PER_PARAM, TWO, WIDE_BYTES, Clock, size, zero
from napkin.timing.data_parallel import Shards, own_parts
from napkin.timing.pipeline import Stages


def offload_time(clock: Clock, stages: Stages, shards: Shards, width: Term, stack: Term) -> Term:
    """Return the seconds of a step's transfers to and from the host that compute does not hide.

    Copies run on streams of their own, to the host and back at once (torch/distributed/fsdp/_fully_shard;
    deepspeed/runtime/zero/partitioned_param_coordinator.py; pytorch/torchtune training/_activation_offloading.py). In
    the forward pass of a micro-batch parameters arrive and activations leave. In its backward pass both arrive, and
    gradients leave: of every micro-batch with offloaded parameters, else of the last one.

    width  elements of the residual stream of a token"""
    layers, head = [one for _, one in stages.layers.runs], stages.layers.head
    ahead = _of_a_stage(stages, "offload/ahead", [one.ahead for one in layers], head.ahead)
    whole = [term.add(f"{one.ahead.name}/and_back", *one.groups.values()) for one in layers]
    behind = term.subtract(
        "offload/behind", _of_a_stage(stages, "offload/passes", whole, stages.layers.head_seconds), ahead
    )
    returns = term.greater("offload/returns", behind, zero("offload/none"))
    weights, gradients, inputs = _parameters(clock, shards), _gradients(clock, shards), _inputs(clock, stages, width)
    arriving = term.add("offload/arriving", weights, inputs)
    leaving = term.multiply("offload/leaving", _always(clock), gradients)
    there = _shown(clock, "offload/forward", term.largest("offload/forward/bytes", weights, inputs), ahead)
    back, last = (
        term.multiply(
            f"{name}/any", returns, _shown(clock, name, term.largest(f"{name}/bytes", arriving, left), behind)
        )
        for name, left in (("offload/backward", leaving), ("offload/last_backward", gradients))
    )
    every = term.multiply(
        "offload/micro_batches",
        size("micro_batches", clock.layout.micro_batches),
        term.add("offload/micro_batch", there, back),
    )
    return term.multiply(
        "step/offload", stack, term.add("offload/shown", every, term.subtract("offload/last", last, back))
    )


def _always(clock: Clock) -> Term:
    """Return 1 if gradients leave after every micro-batch, as they do where the GPU holds no parameters to add them up
    next to; else they leave once, in the last one."""
    always = where(clock.layout.fetched_bytes > 0, 1, 0)
    return term.leaf("returns_always", always, "1", term.GIVEN, "1 with offloaded parameters")


def _shown(clock: Clock, name: str, moved: Term, compute: Term) -> Term:
    """Return the seconds in which bytes are still moved when the compute of a pass has ended."""
    link = term.multiply(
        "host_link/rate",
        term.leaf("host_link/bandwidth", clock.rates.host_link, "byte/s", term.TRUE, "datasheet, one way"),
        clock.rate("host_link/share", clock.rates.pinned, source="copies of pinned memory"),
    )
    taken = term.divide(f"{name}/transfer", moved, link)
    return term.largest(f"{name}/shown", term.subtract(f"{name}/left", taken, compute), zero(f"{name}/none"))


def _of_a_stage(stages: Stages, name: str, layers: list[Term], head: Term) -> Term:
    """Return the seconds on the slowest stage of what each type of layer and the head take."""
    every = (term.multiply(f"{one.name}/stage", on, one) for on, one in zip(stages.layers_on, layers, strict=True))
    return term.add(name, *every, term.multiply(f"{name}/head", stages.head_on, head))


def _parameters(clock: Clock, shards: Shards) -> Term:
    """Return the bytes of a rank's own part of the parameters, which each pass reads from the host."""
    each = term.leaf("fetched_bytes", clock.layout.fetched_bytes, PER_PARAM, term.GIVEN, "as they are stored")
    trained = term.multiply("offload/trained", each, term.add("offload/own", *own_parts("offload/own", shards)))
    frozen = term.add(
        "offload/frozen/passes",
        term.divide("offload/frozen/dense", shards.frozen.dense, shards.ways),
        term.divide("offload/frozen/experts", shards.frozen.experts, shards.expert_ways),
    )
    away = term.leaf("fetches", where(clock.layout.fetched_bytes > 0, 1, 0), "1", term.GIVEN, "1 where they are away")
    of_a_pass = term.divide("offload/frozen/pass", frozen, TWO)
    return term.add("offload/parameters", trained, term.multiply("offload/frozen", away, of_a_pass))


def _gradients(clock: Clock, shards: Shards) -> Term:
    """Return the bytes of a rank's own part of the gradients, which go to the host where it updates the parameters."""
    each = term.leaf("returned_bytes", clock.layout.returned_bytes, PER_PARAM, term.GIVEN, "of a gradient")
    own = term.add("offload/gradients/own", *own_parts("offload/gradients/own", shards))
    return term.multiply("offload/gradients", each, own)


def _inputs(clock: Clock, stages: Stages, width: Term) -> Term:
    """Return the bytes of the inputs of a stage's layers that run again, which wait on the host for it."""
    each = term.multiply("offload/input", clock.tokens, width, WIDE_BYTES)
    divided = term.divide("offload/input/own", each, clock.stream)
    stashed = term.leaf("stashes", clock.layout.stashes, "1", term.GIVEN, "1 with offloaded activations")
    layers = {place for _, place in stages.layers.order.runs}
    count = term.add("offload/layers", *(on for place, on in enumerate(stages.layers_on) if place in layers))
    return term.multiply("offload/inputs", stashed, count, divided)

"""Collectives inside a layer: tensor parallelism's all-reduces, and ring attention."""

from __future__ import annotations

from collections.abc import Iterable

from napkin import term
from napkin.elementwise import Number
from napkin.operations.rewrite import FusedLinear
from napkin.operations.roles import COLUMN, ROW
from napkin.term import Term
from napkin.timing.clock import ONE, SECOND, STACK, TWO, WIDE_BYTES, Clock, size
from napkin.timing.collectives import all_reduced, gathered

Seconds = tuple[dict[str, Term], dict[str, Term]]
"""Seconds by group, forward and backward."""


def tensor_time(clock: Clock, kind: str, width: Number, linears: Iterable[FusedLinear]) -> Seconds:
    """Return the time of all-reduces of the residual stream: one per row-parallel layer in forward, and one per
    column-parallel layer in backward (Shoeybi et al. 2019, arXiv:1909.08053, section 3)."""
    forward = [one for one in linears if one.shard == ROW]
    backward = [one for one in linears if one.shard == COLUMN and one.learning.inputs]
    shown = all_reduce_time(clock, kind, width)
    ways = (("forward", forward), ("backward", backward))
    ahead, back = (
        {"tensor": term.multiply(f"{kind}/tensor/{way}", term.constant("collectives", len(several)), shown)}
        for way, several in ways
    )
    return ahead, back


def all_reduce_time(clock: Clock, kind: str, width: Number) -> Term:
    """Return the exposed time of one all-reduce of `width` elements per token over the tensor-parallel ranks."""
    rates = clock.rates
    payload = term.multiply(f"{kind}/stream/bytes", WIDE_BYTES, clock.tokens, size(f"{kind}/width", width))
    each = clock.rate("tensor_latency", rates.tensor_latency, SECOND)
    # sequence parallelism makes two collectives of each all-reduce: a reduce-scatter and an all-gather
    collectives = term.add("collectives_of_an_all_reduce", ONE, clock.sequence_parallel)
    once = clock.transfer(
        f"{kind}/tensor/collective",
        all_reduced(f"{kind}/tensor/bytes", payload, clock.tp),
        clock.bus(f"{kind}/tensor/bandwidth", clock.groups.tensor),
        clock.latency(
            f"{kind}/tensor/latency", clock.tp, term.multiply(f"{kind}/tensor/latency/all", each, collectives)
        ),
    )
    exposed = clock.rate("tensor/exposed", rates.tensor_exposed, source=STACK)
    return term.multiply(f"{kind}/tensor/shown", exposed, once)


def ring_time(clock: Clock, kind: str, elements: Number) -> Seconds:
    """Return the seconds of ring attention: keys and values circulate among the ranks once in forward and twice in
    backward (Liu et al. 2023, arXiv:2310.01889)."""
    shared = term.divide(
        f"{kind}/context/keys_and_values",
        term.multiply(
            f"{kind}/context/all",
            clock.micro_batch,
            clock.sequence,
            WIDE_BYTES,
            size(f"{kind}/cached_elements", elements),
        ),
        clock.tp,
    )
    sent = term.multiply(f"{kind}/context/bytes", shared, gathered(f"{kind}/context/share", clock.cp))
    passing = clock.transfer(f"{kind}/context/ring", sent, clock.bus(f"{kind}/context/bandwidth", clock.groups.context))
    shown = clock.rate("context/exposed", clock.rates.context_exposed, source=STACK)
    return (
        {"context": term.multiply(f"{kind}/context/forward", shown, passing)},
        {"context": term.multiply(f"{kind}/context/backward", TWO, shown, passing)},
    )

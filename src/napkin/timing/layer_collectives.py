"""Collectives inside a layer: tensor parallelism's all-reduces, ring attention, and Ulysses' exchange of heads."""

from __future__ import annotations

from collections.abc import Iterable

from napkin import term
from napkin.elementwise import Number, holds_for_all, maximum
from napkin.operations.base import Operation
from napkin.operations.facts import ThinPair
from napkin.operations.rewrite import FusedLinear
from napkin.operations.roles import COLUMN, ROW
from napkin.term import Term
from napkin.timing.clock import ONE, SECOND, STACK, TWO, WIDE_BYTES, Clock, size, total
from napkin.timing.collectives import all_reduced, gathered, in_one_node

Seconds = tuple[dict[str, Term], dict[str, Term]]
"""Seconds by group, forward and backward."""
WAYS = ("forward", "backward")


def tensor_time(clock: Clock, kind: str, width: Number, linears: Iterable[FusedLinear]) -> Seconds:
    """Return the seconds of all-reduces of the residual stream, `width` elements a token: one per row-parallel layer in
    forward, and one per column-parallel layer in backward (Shoeybi et al. 2019, arXiv:1909.08053, section 3). Where
    each rank keeps its part alone of what a column-parallel layer reads, half of one more for the gradient of its
    weight (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2)."""
    forward = [one for one in linears if one.shard == ROW]
    backward = [one for one in linears if one.shard == COLUMN and one.learning.inputs]
    shown = all_reduce_time(clock, kind, width)
    counts = [term.constant("collectives", len(several)) for several in (forward, backward)]
    if not holds_for_all(clock.layout.gathers_inputs == 0):
        read = term.constant("inputs", sum(1 for one in backward if one.learning.weights) / 2)
        again = term.multiply("inputs_gathered", size("gathers_inputs", clock.layout.gathers_inputs), read)
        counts[1] = term.add("collectives_backward", counts[1], again)
    ahead, back = (
        {"tensor": term.multiply(f"{kind}/tensor/{way}", count, shown)} for way, count in zip(WAYS, counts, strict=True)
    )
    return ahead, back


def adapter_time(clock: Clock, kind: str, adapted: Iterable[ThinPair]) -> Seconds:
    """Return the seconds of what adapters exchange, which nothing hides, in halves of an all-reduce.

    Where both matrices are divided: next to a column-parallel layer what A reads, gathered forward and its gradient
    scattered backward; next to a row-parallel one what B makes, gathered, and the gradient of each rank's tokens.
    Without sequence parallelism the first one's gradient is all-reduced, and the second's is complete. What A makes is
    gathered, or reduced next to a row-parallel layer, and its gradient, to which each rank's part of B adds, reduced.

    Where they are divided as the layer, what A makes alone: next to a column-parallel layer gathered forward with
    sequence parallelism, and its gradient reduced; next to a row-parallel one reduced, and with sequence parallelism
    its gradient gathered."""
    halves: tuple[list[Term], list[Term]] = ([], [])
    parallel = clock.sequence_parallel
    whole = term.subtract("halves_of_a_reduction", TWO, parallel)  # a reduce-scatter is one
    wide = {COLUMN: (parallel, whole), ROW: (ONE, parallel)}
    as_layer = {COLUMN: (parallel, whole), ROW: (whole, parallel)}
    narrow = {COLUMN: (ONE, TWO), ROW: (TWO, TWO)}
    for op in adapted:
        exchanged = [("thin", op.thin, (narrow if op.divided else as_layer)[op.shard], (True, True))]
        if op.divided:
            width = op.d_in if op.shard == COLUMN else op.d_out
            exchanged.append(("wide", width, wide[op.shard], (True, op.shard == ROW or bool(op.learning.inputs))))
        for what, elements, counts, passes in exchanged:
            name = f"{kind}/{op.name}/{what}"
            half = term.divide(f"{name}/half", all_reduce(clock, name, elements), TWO)
            for one, way, count, passed in zip(halves, WAYS, counts, passes, strict=True):
                if passed:
                    one.append(term.multiply(f"{name}/tensor/{way}", count, half))
    ahead, back = (total(f"{kind}/adapters/tensor/{way}", one) for way, one in zip(WAYS, halves, strict=True))
    return {"tensor": ahead}, {"tensor": back}


def all_reduce_time(clock: Clock, kind: str, width: Number) -> Term:
    """Return the exposed time of one all-reduce of `width` elements per token over the tensor-parallel ranks."""
    exposed = clock.rate("tensor/exposed", clock.rates.tensor_exposed, source=STACK)
    return term.multiply(f"{kind}/tensor/shown", exposed, all_reduce(clock, kind, width))


def all_reduce(clock: Clock, kind: str, width: Number) -> Term:
    """Return the time of one all-reduce of `width` elements per token over the tensor-parallel ranks."""
    rates = clock.rates
    payload = term.multiply(f"{kind}/stream/bytes", WIDE_BYTES, clock.tokens, size(f"{kind}/width", width))
    each = clock.rate("tensor_latency", rates.tensor_latency, SECOND)
    # sequence parallelism makes two collectives of each all-reduce: a reduce-scatter and an all-gather
    collectives = term.add("collectives_of_an_all_reduce", ONE, clock.sequence_parallel)
    return clock.transfer(
        f"{kind}/tensor/collective",
        all_reduced(f"{kind}/tensor/bytes", payload, clock.tp),
        clock.bus(f"{kind}/tensor/bandwidth", clock.groups.tensor),
        clock.latency(
            f"{kind}/tensor/latency", clock.tp, term.multiply(f"{kind}/tensor/latency/all", each, collectives)
        ),
    )


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


def heads_time(clock: Clock, kind: str, operations: Iterable[Operation]) -> Seconds:
    """Return the seconds of Ulysses' all-to-alls, forward and backward alike: queries, keys and values of all heads for
    a rank's tokens become those of its heads for all tokens, and the result goes back (Jacobs et al. 2023,
    arXiv:2309.14509, section 3.2). Attention waits for them. Key and value heads fewer than ranks are repeated."""
    cores = [core for op in operations if (core := op.attends()) is not None]
    queries = sum(core.heads * (core.qk_dim + core.v_dim) for core in cores)
    local = term.multiply(f"{kind}/context/local", WIDE_BYTES, clock.tokens)
    apart = clock.layout.tp * clock.layout.cp
    cached = sum(maximum(core.kv_heads, apart) * (core.qk_dim + core.v_dim) for core in cores)
    width = term.divide(f"{kind}/context/width", size(f"{kind}/exchanged_elements", queries + cached), clock.tp)
    sent = term.multiply(f"{kind}/context/sent", local, width)
    group = clock.groups.context
    together = in_one_node("context_ranks_of_a_node", group.ranks, clock.node, group.stride)
    near, far = (
        term.divide(
            f"{kind}/context/{where}",
            term.multiply(f"{kind}/context/{where}/bytes", sent, term.divide(f"{where}_share", others, group.ranks)),
            rate,
        )
        for where, others, rate in (
            ("near", term.subtract("near_ranks", together, ONE), clock.link),
            ("far", term.subtract("far_ranks", group.ranks, together), clock.network),
        )
    )
    passing = term.largest(f"{kind}/context/exchange", near, far)
    return {"context": passing}, {"context": passing}

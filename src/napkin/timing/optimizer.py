"""The time of the optimizer step: on the GPUs, or on their hosts."""

from __future__ import annotations

from napkin import term
from napkin.elementwise import minimum, where
from napkin.term import Term
from napkin.timing.clock import PER_PARAM, Clock
from napkin.timing.data_parallel import Shards, own_parts

FUSED_ON_HOST, LOOPED_ON_HOST = 1, 2
"""Kernels of an optimizer on the host (StepLayout.host)."""


def optimizer_time(clock: Clock, shards: Shards, stack: Term) -> Term:
    """Return the time for the optimizer step to move the bytes of its shard, and of its matrix work. ZeRO divides both
    over the replicas."""
    layout = clock.layout
    none = term.leaf("whole", where(layout.zero == 0, 1, 0), "1", term.GIVEN, "1 without ZeRO")
    own = term.choose(
        "optimizer/parameters", none, shards.weights, term.add("optimizer/own", *own_parts("optimizer/own", shards))
    )
    each = term.leaf("optimizer/bytes_of_a_parameter", layout.optimizer_bytes, PER_PARAM, term.TRUE, "optimizers.py")
    slowness = clock.rate("optimizer/slowness", clock.rates.optimizer_slowness)
    if layout.host:
        return host_time(clock, term.multiply("optimizer/bytes", each, own))
    moved = clock.move("optimizer/moved", term.multiply("optimizer/bytes", each, own))
    if layout.works is None:
        return term.multiply("step/optimizer", stack, slowness, moved)
    divided = term.divide("optimizer/works/own", shards.works, shards.ways)
    works = term.choose("optimizer/works", none, shards.works, divided, "ZeRO gives each matrix to one rank")
    both = term.add("optimizer/both", term.multiply("optimizer/elementwise", slowness, moved), works)
    return term.multiply("step/optimizer", stack, both)


def host_time(clock: Clock, each: Term) -> Term:
    """Return the time in which hosts update the states of their GPUs, `each` bytes of one GPU. Parameters
    are copied behind the update (Ren et al. 2021, arXiv:2101.06840, section 4.1); gradients: host_link.py."""
    layout = clock.layout
    gpus = layout.tp * layout.pp * layout.dp * layout.cp
    sharing = term.leaf("optimizer/gpus_of_a_host", minimum(gpus, clock.rates.node), "1", term.GIVEN)
    reached = clock.rates.host_fused if layout.host == FUSED_ON_HOST else clock.rates.host_looped
    rate = clock.rate("optimizer/host_rate", reached, "byte/s", "published updates on hosts")
    return term.divide("step/optimizer", term.multiply("optimizer/host_bytes", each, sharing), rate)

"""Placement of ranks: which GPUs form a communication group, and which groups span several nodes.

GPUs are numbered as Megatron-LM orders them (parallel_state.py, order `tp-cp-ep-dp-pp`): tensor-parallel ranks are
neighbors, then come those of context, data and, furthest apart, pipeline parallelism. A node is a fixed number of
consecutive GPUs. Expert groups have a separate order over the same GPUs: expert-tensor-parallel ranks, then
expert-parallel ranks, then replicas of the same experts."""

from __future__ import annotations

from napkin import term
from napkin.record import record
from napkin.term import Term
from napkin.timing.step_layout import StepLayout


@record
class RankGroup:
    """Ranks that exchange data: their number, and the distance between neighbors in GPUs."""

    ranks: Term
    stride: Term


@record
class Groups:
    """The groups of a step.

    tensor    divide layers                        context  divide the sequence
    replicas  hold the same dense weights          shards   of these, divide weights or states under ZeRO
    copies    hold the same shard                  stages   of the pipeline
    experts   share the experts of a layer         expert_tensor  divide each expert
    """

    tensor: RankGroup
    context: RankGroup
    replicas: RankGroup
    shards: RankGroup
    copies: RankGroup
    stages: RankGroup
    experts: RankGroup
    expert_tensor: RankGroup


def groups_of(layout: StepLayout) -> Groups:
    """Return every group of a layout by the order of the ranks."""
    one = term.constant("1", 1)
    names = ("tp", "cp", "dp", "pp", "ep", "etp", "shards")
    tp, cp, dp, pp, ep, etp, given = (term.leaf(name, getattr(layout, name), "1", term.GIVEN) for name in names)
    replicas = term.multiply("replicas", dp, cp)
    several = term.greater("shards/given", given, term.constant("0", 0))
    shards = term.choose("shards", several, given, replicas, "all that hold the same weights, unless given")
    model = term.multiply("stride/data", tp, cp)
    return Groups(
        tensor=RankGroup(tp, one),
        context=RankGroup(cp, tp),
        replicas=RankGroup(replicas, tp),
        shards=RankGroup(shards, tp),
        copies=RankGroup(term.divide("copies", replicas, shards), term.multiply("stride/copies", tp, shards)),
        stages=RankGroup(pp, term.multiply("stride/pipeline", model, dp)),
        experts=RankGroup(ep, etp),
        expert_tensor=RankGroup(etp, one),
    )

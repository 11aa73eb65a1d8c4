"""Collectives by latency and bandwidth, the bytes per rank, the bandwidth of groups within and across nodes,
and which GPUs form a group.

Bus bandwidth is the rate at which each rank sends in a ring or tree. Between nodes, every GPU of the group in a node
uses its own network card. The factors of the payload are those of nccl-tests (PERFORMANCE.md).

GPUs are numbered as Megatron-LM orders them (parallel_state.py, order `tp-cp-ep-dp-pp`): tensor-parallel ranks are
neighbors, then come those of context, data and, furthest apart, pipeline parallelism. A node is a fixed number of
consecutive GPUs. Expert groups have a separate order over the same GPUs: expert-tensor-parallel ranks, then
expert-parallel ranks, then replicas of the same experts.
"""

from __future__ import annotations

import math

from napkin import term
from napkin.elementwise import maximum, where
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


TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.elementwise import Number

ONE, TWO = term.constant("1", 1), term.constant("2", 2)


def in_one_node(name: str, ranks: Term, node: Term, stride: Term) -> Term:
    """Return the number of a group's ranks in one node of `node` GPUs; neighbors are `stride` GPUs apart."""
    return term.smallest(name, term.largest(f"{name}/room", term.divide(f"{name}/slots", node, stride), ONE), ranks)


def crosses_nodes(name: str, ranks: Term, node: Term, stride: Term) -> Term:
    """Return 1 if a group whose neighbors are `stride` GPUs apart spans several nodes, else 0."""
    return term.greater(name, ranks, in_one_node(f"{name}/in_one_node", ranks, node, stride))


def bus_bandwidth(name: str, ranks: Term, node: Term, stride: Term, link: Term, network: Term) -> Term:
    """Return the byte/s of each rank: the link inside a node, else the network cards of the ranks in a node, at most
    the link."""
    together = in_one_node(f"{name}/in_one_node", ranks, node, stride)
    across = term.smallest(f"{name}/network", link, term.multiply(f"{name}/cards", network, together))
    return term.choose(name, term.greater(f"{name}/crosses_nodes", ranks, together), across, link)


def once_around(name: str, ranks: Term, node: Term, stride: Term, link: Term, network: Term) -> Term:
    """Return the seconds that a ring's first bytes take from rank to rank: (n − N) hops inside the N nodes, N − 1
    between them. All-gathers and reduce-scatters have no algorithm whose hops are fewer (NVIDIA/nccl src/graph/
    tuning.cc: nsteps of a ring is nRanks − 1; trees serve all-reduces alone)."""
    nodes = term.ceil_divide(f"{name}/nodes", ranks, in_one_node(f"{name}/in_one_node", ranks, node, stride))
    return term.add(
        name,
        term.multiply(f"{name}/inside", link, term.subtract(f"{name}/inside/hops", ranks, nodes)),
        term.multiply(f"{name}/between", network, term.subtract(f"{name}/between/hops", nodes, ONE)),
    )


def gathered(name: str, ranks: Term) -> Term:
    """Return (n−1)/n: the share of the full tensor that a rank receives in an all-gather, or sends in a
    reduce-scatter."""
    return term.divide(name, term.subtract(f"{name}/others", ranks, ONE), ranks)


def all_reduced(name: str, payload: Term, ranks: Term) -> Term:
    """Return 2(n−1)/n of the payload, the traffic of each rank: a reduce-scatter and an all-gather."""
    return term.multiply(name, TWO, gathered(f"{name}/share", ranks), payload)


NODE_LIMITED = "arXiv:2412.19437, section 2.1.2, node-limited routing"


def distinct_nodes(name: str, ranks: Term, together: Term, choices: Term, *, groups: int = 1, chosen: int = 1) -> Term:
    """Return the expected number of *other* nodes that hold at least one of a token's `choices` experts, spread evenly
    over N nodes, `together` of the ranks in each: (N−1)·(1 − (1−1/N)^choices). A token is sent once to each of
    them. Of experts in `groups`, a token's are in the `chosen` ones (`node_chosen`)."""
    nodes = term.largest(f"{name}/nodes", term.divide(f"{name}/exact", ranks, together), ONE)
    if chosen < groups:
        sizes = (term.leaf(f"{name}/groups", groups, "1"), term.leaf(f"{name}/groups/chosen", chosen, "1"))
        found = term.make("node_chosen", f"{name}/hit", (nodes, *sizes, choices), NODE_LIMITED)
        return term.multiply(name, term.subtract(f"{name}/others", nodes, ONE), found)
    missed = term.subtract(f"{name}/missed_once", ONE, term.divide(f"{name}/one_of", ONE, nodes))
    hit = term.subtract(f"{name}/hit", ONE, term.power(f"{name}/missed", missed, choices))
    return term.multiply(name, term.subtract(f"{name}/others", nodes, ONE), hit)


def node_chosen(nodes: Number, groups: Number, chosen: Number, choices: Number) -> Number:
    """Return the probability that a node holds at least one of a token's `choices` experts, which are in `chosen` of
    `groups` groups. Groups lie one after the other over the nodes. Where a node is a part of a group, the group is
    chosen, and an expert of this part; where it holds m groups, h of them are chosen with hypergeometric probability,
    and a token has an expert in one of these h."""
    total, picked = int(groups), int(chosen)
    parts = maximum(nodes / total, 1)
    found: Number = picked / total * (1 - (1 - 1 / (picked * parts)) ** choices)
    for held in range(2, total + 1):
        ways = {h: math.comb(held, h) * math.comb(total - held, picked - h) for h in range(1, 1 + min(held, picked))}
        hit = sum(count * (1 - (1 - h / picked) ** choices) for h, count in ways.items()) / math.comb(total, picked)
        found = where(total / nodes > held - 0.5, hit, found)
    return found


term.define("node_chosen", node_chosen)


def copies_to_others(name: str, ranks: Term, together: Term, choices: Term) -> Term:
    """Return how many of a token's `choices` experts are in other nodes, spread evenly over N nodes, `together` of the
    ranks in each: choices · (1 − 1/N)."""
    nodes = term.largest(f"{name}/nodes", term.divide(f"{name}/exact", ranks, together), ONE)
    return term.multiply(name, choices, gathered(f"{name}/elsewhere", nodes))

"""Collectives by latency and bandwidth: how long ranks that lie in nodes take to exchange bytes.

Bus bandwidth is what each rank sends per second while a ring or tree runs; between nodes every GPU of the group that
lies in one node brings its own network card. The factors of the payload are those of nccl-tests (PERFORMANCE.md).
Every function takes numbers or arrays.
"""

from __future__ import annotations

from napkin.elementwise import Number, maximum, minimum, where


def in_one_node(ranks: Number, node: Number, stride: Number) -> Number:
    """How many of a group's ranks share a node of `node` GPUs when neighbours are `stride` GPUs apart."""
    return minimum(maximum(node / stride, 1), ranks)


def bus_bandwidth(ranks: Number, node: Number, stride: Number, link: Number, network: Number) -> Number:
    """byte/s of each rank: the link inside a node, else the network cards of the ranks in a node, at most the link."""
    together = in_one_node(ranks, node, stride)
    return where(ranks <= together, link, minimum(link, network * together))


def gather_share(ranks: Number) -> Number:
    """(n−1)/n: the part of the whole that a rank must receive in an all-gather, or send in a reduce-scatter."""
    return (ranks - 1) / ranks


def all_reduce_bytes(payload: Number, ranks: Number) -> Number:
    """2(n−1)/n of the payload passes each rank: a reduce-scatter and an all-gather."""
    return 2 * gather_share(ranks) * payload


def distinct_nodes(ranks: Number, node: Number, choices: Number) -> Number:
    """Expected number of *other* nodes that hold at least one of a token's `choices` experts, spread evenly over
    ranks/node nodes: (N−1)·(1 − (1−1/N)^choices). A token is sent once to each such node."""
    nodes = maximum(ranks / node, 1)
    return (nodes - 1) * (1 - (1 - 1 / nodes) ** choices)

"""Bytes that a step moves between a GPU and its host with offloaded states (Ren et al. 2021, ZeRO-Offload)."""

from __future__ import annotations

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, ceil_div
from napkin.footprint.rank import Rank
from napkin.training.setup import Setup


def host_bytes(rank: Rank, setup: Setup) -> Number:
    """Return the bytes that a step moves between a GPU and its host, without activations: the rank's gradients to the
    host and weights back; offloaded parameters move to the GPU for both passes and back after each backward pass."""
    layout = setup.layout
    own = ceil_div(rank.weights.all, setup.shards if layout.zero >= 1 else 1)
    weight, gradient = own * sized(1, setup.precision.param), own * sized(1, setup.precision.grad)
    if "parameters" in setup.offload:
        return layout.micro_batches * (2 * weight + gradient)
    return weight + gradient if "optimizer" in setup.offload else 0

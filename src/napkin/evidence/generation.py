"""What inference engines reach of a machine: the shares that the time of generation rests on."""

from __future__ import annotations

from napkin.evidence.constants import constants
from napkin.evidence.rates import machine
from napkin.inputs.hardware import Hardware
from napkin.timing.generation import EngineShares, GenerationRates


def rates_on(hardware: Hardware, compute: str) -> GenerationRates:
    """Return the rates of an engine that computes linear layers in `compute` on an accelerator."""
    at = machine(hardware, compute)
    return GenerationRates(at.peak, at.peak_wide, at.bandwidth, at.link, at.network, at.node, shares(at.generation))


def shares(generation: str) -> EngineShares:
    """Return what engines reach on a generation of accelerators: the shares of training steps."""
    known = constants()
    return EngineShares(
        weights=known["memory"],
        cache=known["memory"],
        matmul=known[f"matmul/{generation}/16"],
        attention=known[f"attention/{generation}"],
        bus=known["bus"],
        latency=known["tensor_latency"],
        layer=0.0,
        step=0.0,
        source="of training steps",
    )

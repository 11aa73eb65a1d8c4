"""Measurements of `napkin bench` that replace constants, for training steps and inference engines."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.elementwise import Number
from napkin.evidence.rates.constants import constants
from napkin.evidence.rates.machines import machine
from napkin.evidence.rates.of_step import LARGEST_SHARE, matmul_of
from napkin.inputs.hardware import Hardware
from napkin.record import record, replace
from napkin.timing.efficiency import depth_share, tile_share
from napkin.timing.generation import GenerationRates

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.inputs.profile import Profile

TYPICAL = 8192
"""Side of the matmul whose tile and depth losses are taken off a measured rate: bench's shapes are about as large."""


@record
class MeasuredShares:
    """Measured replacements of constants by field of `Rates`; seconds of an all-reduce; what was used."""

    shares: Mapping[str, float]
    latency: float
    said: list[str]


def measured_shares(
    hardware: Hardware, profile: Profile, compute: str, units: int, waves: Number, half_depth: Number
) -> MeasuredShares:
    """Return the shares of an accelerator's peaks that a profile measured. units: that matrix products are tiled over;
    waves, half_depth: constants of the losses to tiles and to depth, which a constant of products is without."""
    said: list[str] = []
    shares: dict[str, float] = {}
    latency = 0.0
    whole = float(tile_share(TYPICAL, TYPICAL, 1, units, waves) * depth_share(TYPICAL, half_depth))
    wide = "bf16" if "bf16" in hardware.peaks else "fp16"
    for field, dtype in (("matmul_wide", wide), ("matmul", compute)):
        rate = profile.matmul_rate(dtype)
        if rate is not None:
            shares[field] = min(rate[0] / hardware.peak(dtype) / whole, LARGEST_SHARE * hardware.clock_gain)
            said.append(f"{dtype} products at {rate[0] / 1e12:.0f} TFLOP/s ({rate[1]})")
    moved = profile.memory_bandwidth()
    if moved is not None and hardware.memory_bandwidth:
        shares["memory"] = min(moved[0] / hardware.memory_bandwidth, 1.0)
        said.append(f"memory at {moved[0] / 1e9:.0f} GB/s ({moved[1]})")
    link = profile.link_rate("all_reduce")
    if link is not None and hardware.link_bandwidth:
        latency, shares["bus"] = link[0], link[1] / hardware.link_bandwidth
        said.append(f"all-reduce at {link[1] / 1e9:.0f} GB/s")
    return MeasuredShares(shares, latency, said)


def with_measured(
    rates: GenerationRates, hardware: Hardware, profile: Profile, compute: str
) -> tuple[GenerationRates, list[str]]:
    """Return an engine's rates with what a profile measured in place of the shares of training steps that they are
    built on, what an engine reaches of those unchanged; and what was used."""
    known, at = constants(), machine(hardware, compute)
    measured = measured_shares(hardware, profile, compute, int(at.units), known["waves"], known["half_depth"])
    shares, reached = measured.shares, rates.reached
    memory = shares.get("memory", known["memory"]) / known["memory"]
    usual = known[matmul_of(at.generation, int(at.bits))]
    matmul = shares.get("matmul", usual) / usual
    return replace(
        rates,
        reached=replace(
            reached,
            weights=reached.weights * memory,
            cache=reached.cache * memory,
            matmul=reached.matmul * matmul,
            bus=shares.get("bus", reached.bus),
        ),
    ), measured.said

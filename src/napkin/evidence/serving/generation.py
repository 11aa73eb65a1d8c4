"""The shares of peak rates that inference engines reach, for the time of generation.

They are those of training steps on the same generation of accelerators (tools/calibrate.py), each times exp(effects)
that tools/serving_shares.py fits to published rows of serving: one effect that all engines share, and those of an
engine family, a kind of memory or a number of bits. Effects without rows are 0, so an engine without measurements has
only the shared effect."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.elementwise import maximum, minimum, where
from napkin.evidence.rates.constants import constants
from napkin.evidence.rates.machines import HOPPER, HOPPER_UNITS, Machine, machine
from napkin.evidence.rates.of_step import LARGEST_SHARE, beside, bus_of_slots
from napkin.formats import COMPUTE_BITS
from napkin.inputs.hardware import Hardware
from napkin.timing.generation import EngineShares, GenerationRates

UNKNOWN = "unknown"
"""The engine with only the effects that all engines share."""
LAYER, LATENCY, HOST = 30e-6, 12e-6, 10e-6
"""assumed, before any row: seconds to launch the kernels of a layer (six, of about 5 μs), of its routing to experts as
many, of one collective, and of the work for one sequence of a pass of a host that schedules in Python."""
SCHEDULED_IN_PYTHON = ("vllm", "tgi")
"""Families of engines whose host loops over all sequences in Python after each pass, while the device waits (vLLM
v1/core/sched/scheduler.py, update_from_output; TGI server/text_generation_server/models/flash_causal_lm.py,
generate_token). SGLang's loop overlaps with the next pass since 0.4 (lmsys.org/blog/2024-12-04-sglang-v0-4,
zero-overhead batch scheduler); TensorRT-LLM and llama.cpp have theirs in C++, and gpt-fast has one sequence."""


def rates_on(hardware: Hardware, compute: str, engine: str = UNKNOWN, without: str = "") -> GenerationRates:
    """Return the rates of an engine that computes linear layers in `compute` on an accelerator. engine: its family;
    without: a source of rows that the effects are fitted without."""
    return rates_of(hardware, compute, engine, effects(without))


def rates_of(hardware: Hardware, compute: str, engine: str, fitted: Mapping[str, float]) -> GenerationRates:
    """Return the rates with these effects."""
    at = machine(hardware, compute)
    found = shares(at, COMPUTE_BITS.get(compute, 16), kind_of(hardware), engine, fitted)
    return GenerationRates(at.peak, at.peak_wide, at.bandwidth, at.link, at.network, at.node, found)


def kind_of(hardware: Hardware) -> str:
    """Return the kind of an accelerator's memory: stacked on the package (hbm), or next to it."""
    return "hbm" if hardware.memory_type.startswith("HBM") else "dram"


def effects(without: str = "") -> Mapping[str, float]:
    """Return the fitted effects, without one source of rows if it is named."""
    from napkin._tables import serving_shares as table

    return {**table.EFFECTS, **table.WITHOUT.get(without, {})}


def names(bits: int, kind: str, engine: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the effects on each share: what all engines share, and what is known of this family."""
    common: dict[str, tuple[str, ...]] = {
        "weights": ("weights",),
        "cache": ("cache",),
        "matmul": ("matmul", f"matmul/{bits}"),
        "attention": ("attention",),
        "latency": ("latency",),
        "layer": ("layer",),
        "routed": ("routed",),
    }
    if engine == UNKNOWN:
        return common
    found = {share: (*parts, f"{share}/{engine}") for share, parts in common.items() if share != "routed"}
    by_memory = {share: (*found[share], f"{share}/{engine}/{kind}") for share in ("weights", "matmul")}
    hosted = {"host": ("host",)} if engine in SCHEDULED_IN_PYTHON else {}
    return {**common, **found, **by_memory, **hosted}


def shares(at: Machine, bits: int, kind: str, engine: str, fitted: Mapping[str, float]) -> EngineShares:
    """Return the shares that an engine family reaches on a machine."""
    known = constants()
    of = {
        share: math.exp(sum(fitted.get(name, 0.0) for name in parts))
        for share, parts in names(bits, kind, engine).items()
    }
    depth = bits if f"matmul/{at.generation}/{bits}" in known else 16
    matmul = known[f"matmul/{at.generation}/{depth}"] * of["matmul"]
    attention = known[f"attention/{at.generation}"] * of["attention"]
    held = at.held * (at.generation == HOPPER)  # a kernel that keeps whole units busy for this share waits for these
    reached = where(held, minimum(matmul * HOPPER_UNITS / maximum(at.issued, 1), LARGEST_SHARE), matmul)
    return EngineShares(
        weights=known["memory"] * of["weights"],
        cache=known["memory"] * of["cache"],
        matmul=reached,
        attention=where(held, beside(attention, matmul, reached, at), attention),
        memory=known["memory"],
        bus=bus_of_slots(at) if at.slots else known["bus"],
        latency=LATENCY * of["latency"],
        layer=LAYER * of["layer"],
        routed=LAYER * of["routed"],
        host=HOST * of["host"] if "host" in of else 0.0,
        source="published rows of serving, over the shares of training steps",
        hop=known["data_latency"],
    )

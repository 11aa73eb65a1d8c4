"""From live tensors to what a card reports: allocated, reserved and used, each with an interval.

    allocated = live · (1 + rounding) + workspaces of matrix products    torch.cuda.max_memory_allocated
    reserved  = allocated · caching                                      torch.cuda.max_memory_reserved
    used      = reserved + CUDA context + communication buffers          what nvidia-smi shows

The shares are what published runs showed, or what the library's own code states; none of them is exact.
"""

from __future__ import annotations

from napkin.elementwise import Number, where
from napkin.record import record
from napkin.term import ASSUMED, SEEN, Term, add, leaf, multiply


@record
class Figure:
    """A figure with the ends of what was seen, and where."""

    value: float
    low: float
    high: float
    source: str


ROUNDING = Figure(0.003, 0.0, 0.015, "26 runs of LitGPT's fine-tuning table: allocated lies 0.3 % above live tensors")
WORKSPACE = Figure(
    8_519_680,
    8_519_680,
    34_603_008,
    "cuBLAS workspace 4,096 KiB × 2 + 16 KiB × 8; cuBLASLt 1 to 32 MiB (PyTorch PR 120925)",
)
EAGER = Figure(
    1.14, 1.08, 1.20, "caching and fragmentation of eager training: torchtune 1.14, BLOOM 1.158 over 77 runs"
)
COMPILED = Figure(1.06, 1.02, 1.09, "caching of compiled training: five runs of torchtitan")
CONTEXT = Figure(
    450e6,
    287e6,
    1.33e9,
    "CUDA context: 287 to 450 MB loaded lazily (PyTorch PR 86509, issue 109888), 1.0 to 1.3 GB eagerly",
)
CONTEXT_EAGER = Figure(
    1.33e9, 1.0e9, 1.4e9, "CUDA context before 11.7, all kernels loaded: 1,271 MiB stated by BLOOM's chronicles"
)
COMMUNICATION = Figure(
    1.3e9,
    0.5e9,
    3.0e9,
    "NCCL: 1 to 1.6 GB for the first communicator, more with several (NVIDIA/nccl issues 285, 864, 1685)",
)


SINGLE = (0.0, 0.0)
PARALLEL = (-0.05, 0.10)
UNSEEN = (-0.10, 0.15)
ESTIMATED = (-0.30, 0.30)
"""How far live bytes can lie from the formula's, below and above: one card and code that was measured · several cards,
whose buffers for communication differ by framework · code whose kept tensors were not measured · rules that are
estimates (recurrent kernels). From the first predictions of frameworks whose own numbers were not looked at: LitGPT-like
code −5 to +10 %, sharded recipes ± 30 %."""


@record
class Reported:
    """The three figures with their parts, and the ends of the interval of each."""

    allocated: Term
    reserved: Term
    used: Term
    overhead: Term
    ends: dict[str, tuple[Number, Number]]
    least: Number
    """What must be there even when the allocator gives its cache back: less than this does not fit."""


def _leaf(name: str, figure: Figure, unit: str = "byte", kind: str = SEEN) -> Term:
    return leaf(name, int(figure.value) if unit == "byte" else figure.value, unit, kind, figure.source)


def reported(
    live: Term,
    gpus: Number,
    compiled: bool,
    spread: tuple[float, float] = SINGLE,
    outside: Figure = CONTEXT,
) -> Reported:
    """allocated, reserved and used from live bytes on one of `gpus` cards."""
    caching = COMPILED if compiled else EAGER
    rounding = multiply("memory/rounding", live, _leaf("rounding", ROUNDING, "1"))
    workspace = _leaf("memory/workspace", WORKSPACE)
    allocated = add("memory/allocated", live, rounding, workspace)
    cache = multiply("memory/cache", allocated, leaf("caching", round(caching.value - 1, 6), "1", SEEN, caching.source))
    reserved = add("memory/reserved", allocated, cache)
    context = _leaf("memory/context", outside, kind=ASSUMED)
    alone = gpus == 1
    buffers = leaf(
        "memory/communication", where(alone, 0, int(COMMUNICATION.value)), "byte", ASSUMED, COMMUNICATION.source
    )
    used = add("memory/used", reserved, context, buffers)
    overhead = add("memory/overhead", rounding, workspace, cache, context, buffers)
    value = live.value
    low = value * (1 + spread[0]) * (1 + ROUNDING.low) + WORKSPACE.low
    high = value * (1 + spread[1]) * (1 + ROUNDING.high) + WORKSPACE.high
    outside_low = outside.low + where(alone, 0, COMMUNICATION.low)
    outside_high = outside.high + where(alone, 0, COMMUNICATION.high)
    ends = {
        "memory/allocated": (low, high),
        "memory/reserved": (low * caching.low, high * caching.high),
        "memory/used": (low * caching.low + outside_low, high * caching.high + outside_high),
    }
    return Reported(allocated, reserved, used, overhead, ends, low + outside_low)

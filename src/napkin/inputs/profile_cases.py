"""The records of a profile: a device, and what one case measured on it, with the spread of its repetitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1
KIND = "bench-profile"
OK, UNSUPPORTED, OOM, SKIPPED, FAILED, INTERRUPTED = "ok", "unsupported", "oom", "skipped", "failed", "interrupted"
STATUSES = (OK, UNSUPPORTED, OOM, SKIPPED, FAILED, INTERRUPTED)
FINAL = (OK, UNSUPPORTED)  # what `--resume` does not measure again
DEVICE_KINDS = ("cuda", "rocm", "mps", "cpu")
GPU_KINDS = ("cuda", "rocm")

Json = dict[str, Any]
STRICT = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class RepetitionSpread:
    """The spread of repeated measurements of one figure. Outliers are counted, not removed."""

    __pydantic_config__ = STRICT

    median: float
    p10: float
    p90: float
    min: float
    max: float
    mean: float
    cv: float  # standard deviation / mean
    blocks: int
    outliers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValue(RepetitionSpread):
    """A figure with the spread of its repetitions. `calls` are those of one block."""

    __pydantic_config__ = STRICT

    unit: str
    calls: int
    launch_bound: bool = False


@dataclass(frozen=True, slots=True)
class Sustained:
    """A sustained load: its seconds, and whether the clock was steady."""

    __pydantic_config__ = STRICT

    seconds: float
    settle_s: float
    drift: float
    spread: float
    steady: bool


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a sensor's samples."""

    __pydantic_config__ = STRICT

    mean: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The sensors' readings during the measurement; null if a sensor is missing. Shares are of the samples."""

    __pydantic_config__ = STRICT

    samples: int
    sm_clock_mhz: Range | None = None
    power_w: Range | None = None
    temperature_c: Range | None = None
    energy_j: float | None = None
    reasons: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. `figures` are further numbers by name, in base units."""

    __pydantic_config__ = STRICT

    id: str
    group: str
    status: str
    params: dict[str, str | int | float | bool | None]
    reason: str | None = None
    value: MeasuredValue | None = None
    figures: dict[str, float | None] = field(default_factory=dict)
    sustained: Sustained | None = None
    telemetry: Telemetry | None = None
    flags: list[str] = field(default_factory=list)
    started: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What identifies a device. None means that the device or its driver does not tell."""

    __pydantic_config__ = STRICT

    kind: str  # cuda, rocm, mps, cpu
    name: str
    memory_bytes: int
    sm_count: int | None = None
    l2_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    arch: str | None = None  # gfx942 and the like, on ROCm
    uuid_hash: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    sm_clock_max_mhz: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    count_visible: int = 1


@dataclass(frozen=True, slots=True)
class ProfiledDevice(DeviceInfo):
    """The device of a profile, and the accelerator of the table that it was taken for: given, or matched by name."""

    __pydantic_config__ = STRICT

    hardware: str | None = None
    hardware_origin: str | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """A datasheet's dense peak, FLOP/s."""

    __pydantic_config__ = STRICT

    dense_flops: float
    source: str


@dataclass(frozen=True, slots=True)
class OverRanks:
    """The same case on every GPU of the job; a synchronous job runs at the slowest."""

    __pydantic_config__ = STRICT

    unit: str
    min: float
    median: float
    max: float


def matmul_id(dtype: str, kind: str, m: int, k: int, n: int) -> str:
    """Return the id of a matmul case of m × k by k × n."""
    return f"matmul/{dtype}/{kind}/{m}x{k}x{n}"

"""What the benchmark asks of a device. torch drives the real ones; the tests bring a fake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from napkin.inputs.profile_cases import DeviceInfo

if TYPE_CHECKING:
    from napkin.bench.model_shapes import ModelAttention

# Reasons for which a GPU lowers its clock, as NVML's clocks-event-reasons mask numbers them.
CLOCK_REASONS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display",
}
UNHEALTHY_REASONS = frozenset({"hw_slowdown", "hw_thermal", "hw_power_brake"})  # never part of normal operation
THERMAL_REASONS = frozenset({"sw_thermal", "hw_thermal"})


class Unsupported(Exception):
    """The device cannot do this; the message says why. The case gets the status `unsupported` and no figure."""


class OutOfMemory(Exception):
    """The operands do not fit. The case gets the status `oom`, and the run goes on."""


class DeviceLost(Exception):
    """The device's context is gone (an asynchronous error): nothing more can be measured in this process."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of the device's sensors; None if a sensor is missing."""

    at: float
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None  # bit mask, CLOCK_REASONS


@dataclass(slots=True)
class Watch:
    """Samples taken while a case ran, and the energy that it used."""

    samples: list[Sample] = field(default_factory=list)
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Who else is on the device, asked before a run."""

    other_processes: int | None  # None where the driver hides them
    utilization: float | None  # share of the last second in which a kernel ran
    unexplained_bytes: int | None  # memory in use beyond this process's own


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """C(m×n) = A(m×k) · B(k×n), B stored as (n, k) and transposed, as the weights of a linear layer are."""

    dtype: str
    m: int
    k: int
    n: int
    out: str | None = None  # None: the dtype's own default (formats.FORMATS)
    scaling: str | None = None  # tensorwise or rowwise, fp8 only
    fast_accum: bool | None = None  # fp8 only
    data: str = "normal"  # or zeros: a demonstration, stamped in the profile

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def flops(self) -> int:
        """2·m·n·k: a multiply and an add for each of m·n outputs and k terms, in every dtype."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Kernel:
    """Something to time: `call(i)` enqueues it on operand set i mod sets and allocates nothing."""

    call: Callable[[int], None]
    sets: int
    work: float  # FLOP or bytes of one call
    unit: str  # FLOP/s or byte/s: the unit of work / seconds


class Event(Protocol):
    """A mark in the device's queue."""

    def record(self) -> None: ...
    def wait(self) -> None:
        """Block the host until the device has passed the mark."""

    def since(self, earlier: Event) -> float:
        """Return the seconds of device time between two marks that have both been passed."""


class Watcher(Protocol):
    """A context in which the device's sensors are sampled."""

    def __enter__(self) -> Watch: ...
    def __exit__(self, *details: object) -> None: ...


class Device(Protocol):
    """One device as the benchmark sees it."""

    info: DeviceInfo
    rotation_bytes: int  # operand sets are cycled until they exceed this: twice the last-level cache

    def event(self) -> Event: ...
    def synchronize(self) -> None: ...
    def sleep(self, seconds: float) -> None: ...
    def now(self) -> float:
        """Return the wall clock in seconds."""

    def watch(self, interval: float) -> Watcher: ...
    def occupancy(self) -> Occupancy: ...
    def free_bytes(self) -> int: ...
    def release(self) -> None:
        """Give cached memory back."""

    def matmul(self, spec: MatmulSpec) -> Kernel: ...
    def attention(self, dtype: str, shape: ModelAttention, backward: bool) -> Kernel:
        """Return a call of scaled dot-product attention, forward or backward."""

    def stream(self, operation: str, size: int) -> Kernel:
        """copy, write, read or triad over buffers of `size` bytes."""

    def transfer(self, direction: str, pinned: bool, size: int) -> Kernel:
        """Return a call that copies `size` bytes each way: h2d, d2h or both."""

    def graph(self, kernel: Kernel, calls: int) -> Kernel | None:
        """Capture `calls` calls as one that replays without the host's launch cost; None if that is not possible."""

    def explain(self, error: Exception) -> Exception:
        """Return an exception of the device's library as OutOfMemory or DeviceLost if it is one, else unchanged."""

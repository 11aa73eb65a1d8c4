"""The method by which every kernel is timed.

Operand sets are cycled so that the last-level cache cannot hold them; calls are grouped into blocks long enough for the
event resolution; all blocks are queued before a single synchronization. Synchronizing before each block would leave the
device idle there, and charge launch latency and the clock's new ramp to the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from napkin.bench.device import Device, Event, Kernel, Watch
from napkin.bench.stats import median

ESTIMATE_CALLS = 5
LAUNCH_FLOOR = 20e-6  # below it the host's launch rate (5 to 10 µs a call) may be what is measured
SHORTEST_CALL = 1e-7  # guards the division if a clock is too coarse to see one call


@dataclass(frozen=True, slots=True)
class Timing:
    """How often and how long. Block length 2 ms keeps an event resolution of 0.5 µs below 0.03 %."""

    blocks: int = 20
    min_block: float = 2e-3
    warmup: int = 3  # calls per operand set: heuristics, lazy module load and workspaces happen on the first calls
    idle: float = 0.0  # seconds of rest before the blocks: a burst from a cool, boosted clock
    watch: float = 0.02  # seconds between samples of the sensors


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds per call of each block, in the order in which they ran."""

    seconds: tuple[float, ...]
    calls: int
    launch_bound: bool
    watch: Watch


class Cycle:
    """Calls of a kernel on one operand set after the other."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._turn = 0

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self._kernel.call(self._turn % self._kernel.sets)
            self._turn += 1


def time_blocks(device: Device, kernel: Kernel, timing: Timing) -> Timed:
    """Time `kernel`; the device is synchronized exactly twice, once for the estimate and once for all blocks."""
    cycle = Cycle(kernel)
    cycle.run(timing.warmup * kernel.sets)
    estimate = _estimate(device, cycle)
    calls = max(1, math.ceil(timing.min_block / max(estimate, SHORTEST_CALL)))
    captured = device.graph(kernel, calls) if estimate < LAUNCH_FLOOR else None
    if timing.idle:
        device.sleep(timing.idle)
    with device.watch(timing.watch) as watch:
        pairs = []
        for _ in range(timing.blocks):
            start, end = device.event(), device.event()
            start.record()
            if captured is None:
                cycle.run(calls)
            else:
                captured.call(0)
            end.record()
            pairs.append((start, end))
        device.synchronize()
    seconds = tuple(end.since(start) / calls for start, end in pairs)
    return Timed(seconds, calls, launch_bound=captured is None and estimate < LAUNCH_FLOOR, watch=watch)


def _estimate(device: Device, cycle: Cycle) -> float:
    start, end = device.event(), device.event()
    start.record()
    cycle.run(ESTIMATE_CALLS)
    end.record()
    device.synchronize()
    return end.since(start) / ESTIMATE_CALLS


@dataclass(frozen=True, slots=True)
class Hold:
    """How long a load is sustained: until the clock has settled, and then for the measured window."""

    window: float = 10.0
    sub_window: float = 0.25
    settle_min: float = 3.0
    settle_max: float = 20.0
    settled: float = 0.005  # two successive one-second medians that differ by less


@dataclass(frozen=True, slots=True)
class HeldLoad:
    """A constant load, sustained until the clock settled and measured in sub-windows."""

    seconds: tuple[float, ...]  # per call, of each sub-window
    calls: int  # per sub-window
    settle_s: float
    watch: Watch

    @property
    def window_s(self) -> float:
        return sum(self.seconds) * self.calls


def hold(device: Device, kernel: Kernel, how: Hold, warmup: int = 3) -> HeldLoad:
    """Measure throughput under constant load, after the clock has settled at the power or thermal limit."""
    cycle = Cycle(kernel)
    cycle.run(warmup * kernel.sets)
    estimate = _estimate(device, cycle)
    calls = max(1, math.ceil(how.sub_window / max(estimate, SHORTEST_CALL)))
    windows = _windows(device, cycle, calls)
    settle = _settle(windows, calls, how)
    with device.watch(0.02) as watch:
        seconds: list[float] = []
        while len(seconds) < 2 or sum(seconds) * calls < how.window:
            seconds.append(next(windows))
    windows.close()
    device.synchronize()
    return HeldLoad(tuple(seconds), calls, settle, watch)


def _windows(device: Device, cycle: Cycle, calls: int) -> Generator[float, None, None]:
    """Yield seconds per call of successive windows, two of them queued ahead so that the device never idles."""

    def enqueue() -> Event:
        cycle.run(calls)
        mark = device.event()
        mark.record()
        return mark

    previous = device.event()
    previous.record()
    queued = [enqueue(), enqueue()]
    while True:
        queued.append(enqueue())
        mark = queued.pop(0)
        mark.wait()
        yield mark.since(previous) / calls
        previous = mark


def _settle(windows: Iterator[float], calls: int, how: Hold) -> float:
    """Run until two successive one-second medians agree; the seconds that it took."""
    total, last = 0.0, 0.0
    second: list[float] = []
    while total < how.settle_max:
        value = next(windows)
        second.append(value)
        total += value * calls
        if sum(second) * calls < 1.0:
            continue
        now = median(second)
        if total >= how.settle_min and last and abs(now / last - 1.0) < how.settled:
            break
        last, second = now, []
    return total


def time_many(device: Device, kernels: Sequence[Kernel], calls: Sequence[int]) -> list[float]:
    """Return seconds per call of many kernels, one block each, queued without a pause after one untimed call each."""
    pairs = []
    for kernel, count in zip(kernels, calls, strict=True):
        kernel.call(0)
        start, end = device.event(), device.event()
        start.record()
        for turn in range(count):
            kernel.call((turn + 1) % kernel.sets)
        end.record()
        pairs.append((start, end))
    device.synchronize()
    return [end.since(start) / count for (start, end), count in zip(pairs, calls, strict=True)]

"""The CPU, and Apple's GPU, which shares the host's memory."""

from __future__ import annotations

import os
import time
from typing import Any

from napkin.bench.device import (
    Event,
)
from napkin.bench.queued_event import QueuedEvent
from napkin.bench.telemetry import Sensors
from napkin.bench.torch_device import TorchDevice
from napkin.inputs.profile_cases import DeviceInfo

MPS_CACHE_BYTES = 256 << 20  # above twice the system cache of every Apple chip so far (96 MB)
CPU_CACHE_BYTES = 64 << 20  # if the system does not tell its last-level cache


class _HostEvent:
    """For devices whose calls return when they are done."""

    def __init__(self) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def wait(self) -> None:
        pass

    def since(self, earlier: Event) -> float:
        assert isinstance(earlier, _HostEvent)
        return self.at - earlier.at


class CpuDevice(TorchDevice):
    """The host: for the tests, and for machines without a GPU."""

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self.place = torch.device("cpu")
        self.sensors = Sensors()
        self.info = DeviceInfo(
            kind="cpu",
            name=f"{_cpu_name()}, threads: {torch.get_num_threads()}",
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )
        self.rotation_bytes = 2 * _last_level_cache()

    def event(self) -> Event:
        return _HostEvent()

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int:
        return _available(self.info.memory_bytes)


def _available(total: int) -> int:
    """Return the bytes that the system can give; half of its memory if it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return total // 2


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


def _last_level_cache() -> int:
    for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        if name in os.sysconf_names and (size := os.sysconf(name)) > 0:
            return min(size, CPU_CACHE_BYTES)
    return CPU_CACHE_BYTES // 2


class MpsDevice(TorchDevice):
    """An Apple GPU."""

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self.place = torch.device("mps")
        self.sensors = Sensors()
        self.info = DeviceInfo(kind="mps", name=f"Apple GPU, {_cpu_name()}", memory_bytes=self._limit())
        self.rotation_bytes = MPS_CACHE_BYTES

    def _limit(self) -> int:
        return int(self.torch.mps.recommended_max_memory())

    def event(self) -> Event:
        return QueuedEvent(self.torch.mps)

    def synchronize(self) -> None:
        self.torch.mps.synchronize()

    def free_bytes(self) -> int:
        return self._limit() - int(self.torch.mps.driver_allocated_memory())

    def release(self) -> None:
        super().release()
        self.torch.mps.empty_cache()

"""NVIDIA GPUs, and AMD ones through ROCm, as torch.cuda drives them."""

from __future__ import annotations

import hashlib
from typing import Any

from napkin.bench.device import (
    DeviceLost,
    Event,
    Kernel,
    Unsupported,
)
from napkin.bench.queued_event import QueuedEvent
from napkin.bench.telemetry import RocmSensors, nvidia_sensors
from napkin.bench.torch_device import TorchDevice
from napkin.inputs.profile_cases import DeviceInfo

ROCM_CACHE_BYTES = 512 << 20  # twice the 256 MB last-level cache that torch's l2 figure need not show


class CudaDevice(TorchDevice):
    """An NVIDIA or AMD GPU, through torch.cuda."""

    def __init__(self, torch: Any, index: int) -> None:
        super().__init__(torch)
        self.place = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        torch.zeros(1, device=self.place)  # from here on this process has a context, and is one of those on the device
        rocm = torch.version.hip is not None
        self.sensors = RocmSensors(torch, index) if rocm else nvidia_sensors(properties)
        l2 = getattr(properties, "L2_cache_size", None)
        uuid = getattr(properties, "uuid", None)
        link = self.sensors.pcie()
        self.info = DeviceInfo(
            kind="rocm" if rocm else "cuda",
            name=properties.name,
            memory_bytes=properties.total_memory,
            sm_count=properties.multi_processor_count,
            l2_bytes=l2,
            compute_capability=None if rocm else (properties.major, properties.minor),
            arch=getattr(properties, "gcnArchName", None) if rocm else None,
            uuid_hash=None if uuid is None else hashlib.sha256(str(uuid).encode()).hexdigest()[:8],
            pcie_gen=link[0] if link else None,
            pcie_width=link[1] if link else None,
            count_visible=torch.cuda.device_count(),
            **self.sensors.limits(),
        )
        self.rotation_bytes = max(2 * (l2 or 0), ROCM_CACHE_BYTES if rocm or not l2 else 0)

    def event(self) -> Event:
        return QueuedEvent(self.torch.cuda)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize(self.place)

    def free_bytes(self) -> int:
        free = self.torch.cuda.mem_get_info(self.place)[0]
        cached = self.torch.cuda.memory_reserved(self.place) - self.torch.cuda.memory_allocated(self.place)
        return int(free + cached)

    def _own_bytes(self) -> int:
        return int(self.torch.cuda.memory_reserved(self.place))

    def release(self) -> None:
        super().release()
        self.torch.cuda.empty_cache()

    def graph(self, kernel: Kernel, calls: int) -> Kernel | None:
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for turn in range(calls):
                    kernel.call(turn % kernel.sets)
            graph.replay()
        except RuntimeError as error:
            if isinstance(known := self.explain(error), DeviceLost):
                raise known from error
            return None  # this call cannot be captured: the case is marked launch_bound
        return Kernel(lambda i: graph.replay(), 1, kernel.work * calls, kernel.unit)

    def transfer(self, direction: str, pinned: bool, size: int) -> Kernel:
        torch = self.torch
        if direction == "both" and not pinned:
            raise Unsupported("two directions at once need pinned memory")
        try:
            host = [torch.empty(size, dtype=torch.uint8, pin_memory=pinned) for _ in range(2)]
            here = [torch.empty(size, dtype=torch.uint8, device=self.place) for _ in range(2)]
        except (RuntimeError, MemoryError) as error:
            raise self.explain(error) from error
        for buffer in host:
            buffer.fill_(1)  # touched, so that its pages exist
        if direction == "h2d":
            return Kernel(lambda i: here[0].copy_(host[0], non_blocking=pinned), 1, float(size), "byte/s")
        if direction == "d2h":
            return Kernel(lambda i: host[0].copy_(here[0], non_blocking=pinned), 1, float(size), "byte/s")
        up, down = torch.cuda.Stream(self.place), torch.cuda.Stream(self.place)

        def both(i: int) -> None:
            now = torch.cuda.current_stream(self.place)
            up.wait_stream(now)
            down.wait_stream(now)
            with torch.cuda.stream(up):
                here[0].copy_(host[0], non_blocking=True)
            with torch.cuda.stream(down):
                host[1].copy_(here[1], non_blocking=True)
            now.wait_stream(up)
            now.wait_stream(down)

        return Kernel(both, 1, float(2 * size), "byte/s")

    def reset_peak(self) -> None:
        self.torch.cuda.reset_peak_memory_stats(self.place)

    def peak_bytes(self) -> dict[str, float | None]:
        cuda = self.torch.cuda
        used = self.sensors.used_bytes()
        return {
            "allocated": cuda.max_memory_allocated(self.place) or None,
            "reserved": cuda.max_memory_reserved(self.place) or None,
            "used": None if used is None else float(used),
        }

    def attention_backends(self) -> tuple[Any, ...]:
        """Return the allowed kernels: unrestricted, torch silently falls back to the one that stores all scores."""
        from torch.nn.attention import SDPBackend

        return (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)

    def software(self) -> dict[str, str | None]:
        torch = self.torch
        nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else None
        return {
            **super().software(),
            "cudnn": torch.backends.cudnn.version(),
            "nccl": nccl and ".".join(map(str, nccl)),
        }

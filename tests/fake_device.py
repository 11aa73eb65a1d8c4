"""A device without hardware: kernels take scripted seconds on a queue, and the clock moves only when someone waits."""

from __future__ import annotations

import math
from collections.abc import Callable

from napkin.bench import formats
from napkin.bench.device import Event, Kernel, MatmulSpec, Occupancy, Sample, Unsupported, Watch
from napkin.bench.model_shapes import ModelAttention
from napkin.inputs.profile_cases import DeviceInfo


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.at = math.nan

    def record(self) -> None:
        self.device.queue = max(self.device.queue, self.device.host)
        self.at = self.device.queue

    def wait(self) -> None:
        self.device.host = max(self.device.host, self.at)

    def since(self, earlier: Event) -> float:
        assert isinstance(earlier, FakeEvent)
        return self.at - earlier.at


class FakeWatcher:
    def __init__(self, device: FakeDevice, interval: float) -> None:
        self.device = device
        self.interval = interval

    def __enter__(self) -> Watch:
        self.start = self.device.now()
        self.watch = Watch()
        return self.watch

    def __exit__(self, *details: object) -> None:
        end = max(self.device.now(), self.device.queue)
        count = min(100, int((end - self.start) / self.interval) + 1)  # evenly spread, however long it took
        step = (end - self.start) / count
        self.watch.samples += [self.device.sensors(self.start + i * step) for i in range(count)]
        self.watch.energy_j = 700.0 * (end - self.start)


class FakeDevice:
    """Kernels take `seconds(spec, time)` on a queue; the host's clock moves when it waits."""

    def __init__(
        self,
        seconds: Callable[[MatmulSpec, float], float] | None = None,
        info: DeviceInfo | None = None,
        sensors: Callable[[float], Sample] | None = None,
        occupancy: Occupancy | None = None,
        fail: Callable[[MatmulSpec], Exception | None] | None = None,
    ) -> None:
        self.info = info or DeviceInfo("cuda", "Fake H200", 140 << 30, 132, 50 << 20, (9, 0), sm_clock_max_mhz=1980)
        self.seconds = seconds or (lambda spec, at: spec.flops / 750e12)
        self.sensors = sensors or (lambda at: Sample(at, 1900.0, 690.0, 65.0, 0x4))
        self.others = occupancy or Occupancy(0, 0.0, 0)
        self.fail = fail or (lambda spec: None)
        self.rotation_bytes = 2 * (self.info.l2_bytes or 0)
        self.host = 0.0
        self.queue = 0.0
        self.syncs = 0
        self.sets_used: list[int] = []
        self.launched = 0

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.syncs += 1
        self.host = max(self.host, self.queue)

    def sleep(self, seconds: float) -> None:
        self.host += seconds

    def now(self) -> float:
        return self.host

    def watch(self, interval: float) -> FakeWatcher:
        return FakeWatcher(self, interval)

    def occupancy(self) -> Occupancy:
        return self.others

    def free_bytes(self) -> int:
        return self.info.memory_bytes

    def release(self) -> None:
        pass

    def graph(self, kernel: Kernel, calls: int) -> Kernel | None:
        return None

    def explain(self, error: Exception) -> Exception:
        return error

    def timed(
        self, seconds: Callable[[float], float], sets: int = 1, work: float = 1.0, unit: str = "FLOP/s"
    ) -> Kernel:
        def call(i: int) -> None:
            self.launched += 1
            self.sets_used.append(i)
            self.queue = max(self.queue, self.host)
            self.queue += seconds(self.queue)

        return Kernel(call, sets, work, unit)

    def matmul(self, spec: MatmulSpec) -> Kernel:
        error = self.fail(spec)
        if error is not None:
            raise error
        reason = formats.unsupported(spec.dtype, self.info) or formats.illegal(spec)
        if reason:
            raise Unsupported(reason)
        sets = self.rotation_bytes // formats.spec_bytes(spec) + 1
        return self.timed(lambda at: self.seconds(spec, at), sets, float(spec.flops))

    def attention(self, dtype: str, shape: ModelAttention, backward: bool) -> Kernel:
        work = shape.flops * (2 if backward else 1)
        return self.timed(lambda at: work / 500e12, 1, float(work))

    def stream(self, operation: str, size: int) -> Kernel:
        factor = {"copy": 2, "write": 1, "read": 1, "triad": 3}[operation]
        return self.timed(lambda at: factor * size / 4.2e12, 1, float(factor * size), "byte/s")

    def transfer(self, direction: str, pinned: bool, size: int) -> Kernel:
        if direction == "both" and not pinned:
            raise Unsupported("two directions at once need pinned memory")
        both = 2 if direction == "both" else 1
        return self.timed(lambda at: size / (55e9 if pinned else 12e9), 1, float(both * size), "byte/s")

"""The devices that torch drives: CUDA (NVIDIA, and AMD through ROCm), Apple's MPS, and the CPU."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from napkin.bench import formats
from napkin.bench.device import (
    Device,
    DeviceLost,
    Event,
    Kernel,
    MatmulSpec,
    Occupancy,
    OutOfMemory,
    Unsupported,
    Watcher,
)
from napkin.bench.telemetry import RocmSensors, Sensors, SensorThread, nvidia_sensors
from napkin.errors import ABSENT, USAGE, NapkinError
from napkin.inputs.profile_cases import DeviceInfo

if TYPE_CHECKING:
    from napkin.bench.model_shapes import ModelAttention

ALIGNMENT = 256  # bytes: what the caching allocator gives, and what tensor cores like best
ARENA_BYTES = 4 << 30
ARENA_SHARE = 0.2  # of free memory, where that is less
FILL_ELEMENTS = 1 << 26  # random numbers are made in chunks: the float32 scratch stays small
SEED = 0  # of the inputs, random normal numbers: constant ones flip fewer bits, draw less power and clock higher
ROCM_CACHE_BYTES = 512 << 20  # twice the 256 MB last-level cache that torch's l2 figure need not show
MPS_CACHE_BYTES = 256 << 20  # above twice the system cache of every Apple chip so far (96 MB)
CPU_CACHE_BYTES = 64 << 20  # where the system does not tell its last-level cache
STREAM_FACTORS = {"copy": 2, "write": 1, "read": 1, "triad": 3}  # buffers that the program reads or writes

# torch.nn.functional.ScalingType and SwizzleType as numbers, for the operator that takes `out=`.
BLOCK_1X16, BLOCK_1X32 = 2, 3
SWIZZLE_32_4_4 = 1


def import_torch() -> Any:
    """torch, or an error that says how to get it."""
    try:
        import torch
    except ImportError as error:
        raise NapkinError(
            "torch is not installed: there is nothing to measure with",
            "pip install 'napkin-math[bench]', or run napkin with the Python that has torch",
            ABSENT,
        ) from error
    return torch


def open_device(name: str | None) -> TorchDevice:
    """The device to measure: a CUDA device unless another one is asked for by name."""
    torch = import_torch()
    if name is None or name.partition(":")[0] in ("cuda", "rocm"):
        if not torch.cuda.is_available():
            raise NapkinError("no CUDA device", _without_cuda(torch), ABSENT)
        index = _index(name, torch.cuda.device_count())
        torch.cuda.set_device(index)
        return CudaDevice(torch, index)
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise NapkinError(
                "no MPS device", "MPS exists on Apple GPUs only: --device cpu measures this machine", ABSENT
            )
        return MpsDevice(torch)
    if name == "cpu":
        return CpuDevice(torch)
    raise NapkinError(f"--device: unknown device {name!r}", "known: cuda, cuda:0, mps, cpu", USAGE)


def _without_cuda(torch: Any) -> str:
    built = torch.version.cuda or torch.version.hip
    if built is None:
        reason = f"torch {torch.__version__} is built without CUDA: install a CUDA build"
    else:
        reason = "torch has CUDA but sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES"
    other = "--device mps or --device cpu" if torch.backends.mps.is_available() else "--device cpu"
    return f"{reason}, or measure the host with {other}"


def _index(name: str | None, count: int) -> int:
    text = (name or "").partition(":")[2]
    if not text:
        return int(os.environ.get("LOCAL_RANK", "0")) % count
    if not text.isdigit() or int(text) >= count:
        raise NapkinError(f"--device: no device {name!r}", f"{count} visible: cuda:0 to cuda:{count - 1}", USAGE)
    return int(text)


class TorchDevice(Device):
    """Kernels from the same torch calls on every device; events, sensors and limits are the subclasses'."""

    info: DeviceInfo
    rotation_bytes: int
    place: Any  # torch.device
    sensors: Sensors

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._flat: dict[tuple[str, str], Any] = {}
        self._out: dict[str, Any] = {}
        torch.manual_seed(SEED)

    # --- what every device does the same way -------------------------------------------------------------------

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def watch(self, interval: float) -> Watcher:
        return SensorThread(self.sensors, interval)

    def occupancy(self) -> Occupancy:
        return self.sensors.occupancy(self._own_bytes())

    def _own_bytes(self) -> int:
        return 0

    def release(self) -> None:
        self._flat.clear()
        self._out.clear()

    def graph(self, kernel: Kernel, calls: int) -> Kernel | None:
        return None

    def explain(self, error: Exception) -> Exception:
        """torch's exceptions in the benchmark's words."""
        torch, text = self.torch, str(error)
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
            return OutOfMemory(text.splitlines()[0] if text else "out of memory")
        lost = getattr(torch, "AcceleratorError", None)
        if (lost is not None and isinstance(error, lost)) or "CUDA error" in text or "HIP error" in text:
            return DeviceLost(text.splitlines()[0])
        return error

    # --- operands ----------------------------------------------------------------------------------------------

    def _element(self, key: str) -> Any:
        torch = self.torch
        if key == "fp8_e4m3" and (self.info.arch or "").startswith("gfx942"):
            return torch.float8_e4m3fnuz
        return {
            "fp64": torch.float64,
            "fp32": torch.float32,
            "tf32": torch.float32,
            "fp16": torch.float16,
            "bf16": torch.bfloat16,
            "fp8_e4m3": torch.float8_e4m3fn,
            "mxfp8": torch.float8_e4m3fn,
            "int8": torch.int8,
            "int32": torch.int32,
            "mxfp4": torch.uint8,
            "nvfp4": torch.uint8,
        }[key]

    def _inputs(self, key: str, data: str, elements: int) -> Any:
        """At least `elements` random elements in one flat buffer, kept for the next shape."""
        flat = self._flat.get((key, data))
        if flat is None or flat.numel() < elements:
            kind = self._element(key)
            floor = 0
            if self.info.kind in ("cuda", "rocm"):
                floor = int(min(ARENA_BYTES, ARENA_SHARE * self.free_bytes())) // kind.itemsize
            self._flat.pop((key, data), None)
            flat = self.torch.empty(max(elements, floor), dtype=kind, device=self.place)
            self._fill(flat, data)
            self._flat[key, data] = flat
        return flat

    def _fill(self, flat: Any, data: str) -> None:
        torch = self.torch
        for start in range(0, flat.numel(), FILL_ELEMENTS):
            part = flat[start : start + FILL_ELEMENTS]
            if data == "zeros":
                part.copy_(torch.zeros(part.numel(), device=self.place))
            elif flat.dtype in (torch.int8, torch.uint8):
                low, high = (-128, 128) if flat.dtype == torch.int8 else (0, 256)
                part.copy_(torch.randint(low, high, (part.numel(),), device=self.place, dtype=flat.dtype))
            else:
                part.copy_(torch.randn(part.numel(), device=self.place))

    def _outputs(self, key: str, elements: int) -> Any:
        flat = self._out.get(key)
        if flat is None or flat.numel() < elements:
            self._out.pop(key, None)
            flat = self.torch.empty(elements, dtype=self._element(key), device=self.place)
            self._out[key] = flat
        return flat

    # --- kernels -----------------------------------------------------------------------------------------------

    def matmul(self, spec: MatmulSpec) -> Kernel:
        reason = formats.unsupported(spec.dtype, self.info)
        if reason is None and self.info.kind in ("cuda", "rocm"):
            reason = formats.illegal(spec)
        if reason is not None:
            raise Unsupported(reason)
        size = formats.spec_bytes(spec)
        if size > self.free_bytes() + self._arena_bytes():
            raise OutOfMemory(f"{spec.shape} in {spec.dtype} needs {size} bytes, {self.free_bytes()} are free")
        sets = self.rotation_bytes // size + 1
        try:
            kernel = Kernel(self._matmul_call(spec, sets), sets, float(spec.flops), "FLOP/s")
            kernel.call(0)  # what torch cannot do it says at the first call
        except (RuntimeError, NotImplementedError, ValueError, MemoryError) as error:
            known = self.explain(error)
            if known is error:
                raise Unsupported(f"torch {self.torch.__version__}: {str(error).splitlines()[0]}") from error
            raise known from error
        return kernel

    def _arena_bytes(self) -> int:
        return sum(flat.numel() * flat.element_size() for flat in (*self._flat.values(), *self._out.values()))

    def _matmul_call(self, spec: MatmulSpec, sets: int) -> Any:
        form = formats.FORMATS[spec.dtype]
        out = spec.out or form.out
        kind = self._element(spec.dtype)
        columns = spec.k // 2 if form.bits == 4 else spec.k  # fp4 packs two values in a byte

        def stride(elements: int, itemsize: int) -> int:
            per = ALIGNMENT // itemsize
            return -(-elements // per) * per

        a_size, b_size = stride(spec.m * columns, kind.itemsize), stride(spec.n * columns, kind.itemsize)
        c_size = stride(spec.m * spec.n, self._element(out).itemsize)
        flat = self._inputs(spec.dtype, spec.data, sets * (a_size + b_size))
        result = self._outputs(out, sets * c_size)
        a, b, c = [], [], []
        for i in range(sets):
            at = i * (a_size + b_size)
            a.append(flat[at : at + spec.m * columns].view(spec.m, columns))
            b.append(flat[at + a_size : at + a_size + spec.n * columns].view(spec.n, columns).t())
            c.append(result[i * c_size : i * c_size + spec.m * spec.n].view(spec.m, spec.n))
        return self._operation(spec, out, a, b, c)

    def _operation(self, spec: MatmulSpec, out: str, a: list[Any], b: list[Any], c: list[Any]) -> Any:
        torch = self.torch
        if spec.dtype in ("fp32", "tf32"):
            precision = "high" if spec.dtype == "tf32" else "highest"

            def float32(i: int) -> None:
                # The legacy switch, and back at once: reading it after the new one was used raises in torch.compile.
                torch.set_float32_matmul_precision(precision)
                torch.mm(a[i], b[i], out=c[i])
                torch.set_float32_matmul_precision("highest")

            return float32
        if spec.dtype == "int8":
            return lambda i: torch._int_mm(a[i], b[i], out=c[i])
        if spec.dtype == "fp8_e4m3":
            scale_a, scale_b = self._fp8_scales(spec)
            target, fast = self._element(out), bool(spec.fast_accum)
            return lambda i: torch._scaled_mm(
                a[i], b[i], scale_a, scale_b, out_dtype=target, use_fast_accum=fast, out=c[i]
            )
        if spec.dtype in ("mxfp8", "mxfp4", "nvfp4"):
            return self._block_scaled(spec, a, b, c)
        return lambda i: torch.mm(a[i], b[i], out=c[i])

    def _fp8_scales(self, spec: MatmulSpec) -> tuple[Any, Any]:
        torch = self.torch
        if spec.scaling == "rowwise":
            return torch.ones(spec.m, 1, device=self.place), torch.ones(1, spec.n, device=self.place)
        return torch.ones((), device=self.place), torch.ones((), device=self.place)

    def _block_scaled(self, spec: MatmulSpec, a: list[Any], b: list[Any], c: list[Any]) -> Any:
        """Formats with one scale for 16 (nvfp4) or 32 values (mx), swizzled as the tensor cores read them."""
        torch = self.torch
        block, recipe = (16, BLOCK_1X16) if spec.dtype == "nvfp4" else (32, BLOCK_1X32)

        def scales(rows: int) -> Any:
            count = -(-rows // 128) * 128 * -(-spec.k // (4 * block)) * 4
            if spec.dtype == "nvfp4":
                return torch.ones(count, device=self.place).to(torch.float8_e4m3fn)
            one = torch.full((count,), 127, dtype=torch.uint8, device=self.place)  # an exponent of 0
            return one.view(torch.float8_e8m0fnu)

        scale_a, scale_b = scales(spec.m), scales(spec.n)
        if spec.dtype != "mxfp8":
            packed = torch.float4_e2m1fn_x2
            a = [x.view(packed) for x in a]
            b = [x.t().view(packed).t() for x in b]
        call = getattr(torch, "_scaled_mm_v2", None)
        if call is None:
            raise Unsupported(
                f"torch {torch.__version__} has no matmul of block-scaled formats with an output of its own"
            )
        swizzle = [SWIZZLE_32_4_4]
        return lambda i: call(
            a[i], b[i], [scale_a], [recipe], swizzle, [scale_b], [recipe], swizzle, None, torch.bfloat16, out=c[i]
        )

    def attention(self, dtype: str, shape: ModelAttention, backward: bool) -> Kernel:
        torch, a = self.torch, shape
        kind = self._element(dtype)

        def tensor(heads: int, width: int) -> Any:
            return torch.randn(a.sequences, a.length, heads, width, device=self.place).to(kind).transpose(1, 2)

        try:
            q, k, v = tensor(a.heads, a.qk_dim), tensor(a.kv_heads, a.qk_dim), tensor(a.kv_heads, a.v_dim)
        except (RuntimeError, MemoryError) as error:
            raise self.explain(error) from error

        def forward() -> Any:
            with self._attention_kernels():
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=a.causal, enable_gqa=a.heads != a.kv_heads
                )

        if not backward:
            return Kernel(lambda i: forward(), 1, float(a.flops), "FLOP/s")
        leaves = [t.requires_grad_() for t in (q, k, v)]
        out = forward()
        gradient = torch.randn_like(out)
        # the two products of the forward pass have four in the backward; that it recomputes the scores is not counted
        return Kernel(
            lambda i: torch.autograd.grad(out, leaves, gradient, retain_graph=True), 1, 2.0 * a.flops, "FLOP/s"
        )

    def _attention_kernels(self) -> AbstractContextManager[Any]:
        kernels = self.attention_backends()
        if not kernels:
            return nullcontext()
        from torch.nn.attention import sdpa_kernel

        return sdpa_kernel(list(kernels))

    def stream(self, operation: str, size: int) -> Kernel:
        torch = self.torch
        count = size // 4
        try:
            buffers = [torch.empty(count, device=self.place) for _ in range(STREAM_FACTORS[operation])]
        except (RuntimeError, MemoryError) as error:
            raise self.explain(error) from error
        for buffer in buffers:
            self._fill(buffer, "normal")
        x = buffers[0]
        if operation == "copy":
            source = buffers[1]
            call: Any = lambda i: x.copy_(source)  # noqa: E731
        elif operation == "write":
            call = lambda i: x.fill_(1.5)  # noqa: E731  (not zero_, which is a memset)
        elif operation == "read":
            total = torch.empty((), device=self.place)
            call = lambda i: torch.sum(x, 0, out=total)  # noqa: E731  (a reduction: a lower bound of what reads reach)
        else:
            b, c = buffers[1], buffers[2]
            call = lambda i: torch.add(b, c, alpha=1.5, out=x)  # noqa: E731
        sets = 1
        return Kernel(call, sets, float(STREAM_FACTORS[operation] * count * 4), "byte/s")

    def transfer(self, direction: str, pinned: bool, size: int) -> Kernel:
        raise Unsupported(f"{self.info.name} shares the host's memory: there is no link to measure")

    # --- a training step ---------------------------------------------------------------------------------------

    def reset_peak(self) -> None:
        """Forget the largest allocation so far."""

    def peak_bytes(self) -> dict[str, float | None]:
        """The largest allocated and reserved bytes since reset_peak, and all that is in use; None where unknown."""
        return {"allocated": None, "reserved": None, "used": None}

    def attention_backends(self) -> tuple[Any, ...]:
        """Kernels that attention may use; () leaves the choice to torch."""
        return ()

    def software(self) -> dict[str, Any]:
        torch = self.torch
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda or torch.version.hip,
            "cudnn": None,
            "nccl": None,
            "driver": self.sensors.driver(),
        }


class _QueuedEvent:
    """torch's event of a device with a queue of its own, CUDA's or Apple's."""

    def __init__(self, backend: Any) -> None:
        self.event = backend.Event(enable_timing=True)

    def record(self) -> None:
        self.event.record()

    def wait(self) -> None:
        self.event.synchronize()

    def since(self, earlier: Event) -> float:
        assert isinstance(earlier, _QueuedEvent)
        return float(earlier.event.elapsed_time(self.event)) / 1e3


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
        return _QueuedEvent(self.torch.cuda)

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
        """Without a restriction torch falls back silently to the kernel that stores the full square of scores."""
        from torch.nn.attention import SDPBackend

        return (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)

    def software(self) -> dict[str, Any]:
        torch = self.torch
        nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else None
        return {
            **super().software(),
            "cudnn": torch.backends.cudnn.version(),
            "nccl": nccl and ".".join(map(str, nccl)),
        }


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
    """Memory that the system can give; half of it all where the system does not say."""
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
        return _QueuedEvent(self.torch.mps)

    def synchronize(self) -> None:
        self.torch.mps.synchronize()

    def free_bytes(self) -> int:
        return self._limit() - int(self.torch.mps.driver_allocated_memory())

    def release(self) -> None:
        super().release()
        self.torch.mps.empty_cache()

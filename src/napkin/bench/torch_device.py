"""The part of torch that is the same on every device: kernels, operands, errors. The devices are in cuda_device and
host_devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from napkin.bench import formats, torch_matmuls
from napkin.bench.device import (
    Device,
    DeviceLost,
    Kernel,
    MatmulSpec,
    Occupancy,
    OutOfMemory,
    Unsupported,
    Watcher,
)
from napkin.bench.telemetry import Sensors, SensorThread
from napkin.inputs.profile_cases import DeviceInfo

if TYPE_CHECKING:
    from torch import Tensor, device

    from napkin.bench.model_shapes import ModelAttention


ALIGNMENT = 256  # bytes: what the caching allocator gives, and what tensor cores like best
ARENA_BYTES = 4 << 30
ARENA_SHARE = 0.2  # of free memory, if that is less
FILL_ELEMENTS = 1 << 26  # random numbers are made in chunks: the float32 scratch stays small
SEED = 0  # of the inputs, random normal numbers: constant ones flip fewer bits, draw less power and clock higher
STREAM_FACTORS = {"copy": 2, "write": 1, "read": 1, "triad": 3}  # buffers that the program reads or writes

# One call refused by cuBLAS or hipBLAS. torch reports it as "CUDA error: …", as it does the errors that end a context.
BLAS_REFUSALS = ("BLAS_STATUS_NOT_SUPPORTED", "BLAS_STATUS_INVALID_VALUE", "BLAS_STATUS_ARCH_MISMATCH")
BLAS_OUT_OF_MEMORY = "BLAS_STATUS_ALLOC_FAILED"
CAPTURE = "captur"  # in the messages of CUDA's stream capture errors: the graph is lost, not the device


class TorchDevice(Device):
    """Kernels from the same torch calls on every device; events, sensors and limits are the subclasses'."""

    info: DeviceInfo
    rotation_bytes: int
    place: device
    sensors: Sensors

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._flat: dict[tuple[str, str], Tensor] = {}
        self._out: dict[str, Tensor] = {}
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
        """Translate torch's exceptions into the benchmark's.

        An error that refuses one call or one capture is returned as it is: the device can still be used.
        """
        torch, text = self.torch, str(error)
        first = text.splitlines()[0] if text else ""
        if (
            isinstance(error, torch.OutOfMemoryError | MemoryError)
            or "can't allocate memory" in text
            or BLAS_OUT_OF_MEMORY in first
        ):
            return OutOfMemory(first or "out of memory")
        if CAPTURE in first or any(status in first for status in BLAS_REFUSALS):
            return error
        lost = getattr(torch, "AcceleratorError", None)
        if (lost is not None and isinstance(error, lost)) or "CUDA error" in text or "HIP error" in text:
            return DeviceLost(first)
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

    def _inputs(self, key: str, data: str, elements: int) -> Tensor:
        """Return at least `elements` random elements in one flat buffer, kept for the next shape."""
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

    def _fill(self, flat: Tensor, data: str) -> None:
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

    def _outputs(self, key: str, elements: int) -> Tensor:
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

    def _matmul_call(self, spec: MatmulSpec, sets: int) -> Callable[[int], None]:
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
        return torch_matmuls.call(self.torch, self.place, spec, a, b, c)

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
        # the two matmuls of the forward pass have four in the backward; that it recomputes the scores is not counted
        return Kernel(
            lambda i: torch.autograd.grad(out, leaves, gradient, retain_graph=True), 1, 2.0 * a.flops, "FLOP/s"
        )

    def _attention_kernels(self) -> AbstractContextManager[object]:
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
        """Return the peak allocated and reserved bytes since reset_peak, and all bytes in use; None where unknown."""
        return {"allocated": None, "reserved": None, "used": None}

    def attention_backends(self) -> tuple[Any, ...]:
        """Return the kernels that attention may use; () leaves the choice to torch."""
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

"""The CUDA device and NVML without either: stand-ins for the driver's calls, real torch tensors on the CPU.

What a stand-in cannot show (speeds, which kernel runs, what a driver reports) is what benchmarks/gpu_acceptance.py is
for; here it is that each call is made, in the right unit, and that what is missing stays missing.
"""

from __future__ import annotations

import contextlib
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from napkin.bench.device import DeviceLost, MatmulSpec, OutOfMemory, Unsupported
from napkin.bench.model_shapes import ModelAttention
from napkin.bench.telemetry import NvmlSensors, RocmSensors, Sensors, SensorThread, nvidia_sensors
from napkin.bench.timing import Timing, time_blocks

torch = pytest.importorskip("torch")

from napkin.bench import torch_device, torch_matmuls  # noqa: E402
from napkin.bench.cuda_device import CudaDevice  # noqa: E402
from napkin.bench.open_device import open_device  # noqa: E402


class FakeNvml:
    """nvidia-ml-py as far as it is used; a reading named in `missing` raises as an old driver's does."""

    class NVMLError(Exception):
        pass

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self.energy = 1_000_000
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        answers: dict[str, Any] = {
            "nvmlMemory_v2": 0x2000028,
            "nvmlInit": None,
            "nvmlDeviceGetHandleByPciBusId": "handle",
            "nvmlDeviceGetClockInfo": 1830,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetPowerUsage": 650_000,
            "nvmlDeviceGetTemperature": 66,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x20,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetEccMode": (1, 1),
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlSystemGetDriverVersion": b"580.82.07",
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=1), SimpleNamespace(pid=4711)],
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=40),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5 << 30),
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
        }

        if name == "nvmlMemory_v2":
            return answers[name]

        def call(*arguments: Any) -> Any:
            self.asked.append(name)
            if f"fails:{name}" in self.missing:
                raise self.NVMLError("not supported")
            if name == "nvmlDeviceGetTotalEnergyConsumption":
                self.energy += 7_000
                return self.energy
            if name == "nvmlDeviceGetFieldValues":
                number = arguments[1][0]
                value = {186: 688_000, 189: 700_000}[number]
                status = 1 if "fields" in self.missing else 0
                return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=value))]
            return answers[name]

        return call


def test_readings_are_converted_to_base_units() -> None:
    sensors = NvmlSensors(FakeNvml(), "00000000:81:00.0")
    sample = sensors.sample()
    assert (sample.sm_clock_mhz, sample.power_w, sample.temperature_c, sample.reasons) == (1830, 688.0, 66, 0x4)
    assert sensors.limits() == {
        "power_limit_w": 700.0,
        "power_default_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "ecc": True,
        "mig": False,
    }
    assert sensors.driver() == "580.82.07"
    assert sensors.pcie() == (5, 16)
    others = sensors.occupancy(own_bytes=1 << 30)
    assert (others.other_processes, others.utilization) == (1, 0.4)
    assert others.unexplained_bytes == (5 << 30) - (1 << 30) - (3 << 29)


def test_an_older_driver_is_queried_by_the_older_names() -> None:
    old = FakeNvml(missing=("nvmlDeviceGetCurrentClocksEventReasons", "fields"))
    sample = NvmlSensors(old, "x").sample()
    assert sample.reasons == 0x20
    assert sample.power_w == 650.0  # the average if the driver has no instant reading


def test_what_a_driver_refuses_is_null() -> None:
    names = (
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCurrPcieLinkWidth",
    )
    sensors = NvmlSensors(FakeNvml(missing=tuple(f"fails:{name}" for name in names)), "x")
    assert sensors.sample().temperature_c is None
    assert sensors.limits()["mig"] is None
    assert sensors.occupancy(0).unexplained_bytes is None
    assert sensors.pcie() is None


def test_sampling_stops_with_its_block_and_measures_energy() -> None:
    with SensorThread(NvmlSensors(FakeNvml(), "x"), 0.001) as watch:
        while len(watch.samples) < 3:
            time.sleep(0.001)
    count = len(watch.samples)
    assert watch.energy_j == 7.0  # the counter is in millijoules
    time.sleep(0.01)
    assert len(watch.samples) == count


def test_without_sensors_no_thread_runs() -> None:
    with SensorThread(Sensors(), 0.001) as watch:
        pass
    assert watch.samples == []
    assert watch.energy_j is None


def test_nvml_is_optional_and_found_by_pci_address(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x81, pci_device_id=0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert type(nvidia_sensors(properties)) is Sensors
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert isinstance(nvidia_sensors(properties), NvmlSensors)
    assert type(nvidia_sensors(SimpleNamespace())) is Sensors  # a torch that does not tell the address


def test_rocm_reads_what_torch_offers() -> None:
    cuda = SimpleNamespace(power_draw=lambda index: 748_000, clock_rate=lambda index: 1290)
    sample = RocmSensors(SimpleNamespace(cuda=cuda), 0).sample()
    assert (sample.power_w, sample.sm_clock_mhz, sample.temperature_c, sample.reasons) == (748.0, 1290.0, None, None)


# --- the device ----------------------------------------------------------------------------------------------------


class FakeCudaEvent:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: FakeCudaEvent) -> float:
        return (later.at - self.at) * 1e3  # torch's unit is the millisecond


class FakeStream:
    def __init__(self, *place: Any) -> None:
        self.waited = 0

    def wait_stream(self, other: Any) -> None:
        self.waited += 1


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """A CudaDevice whose driver calls are stand-ins and whose tensors live on the CPU."""
    properties = SimpleNamespace(
        name="NVIDIA H200", total_memory=150_110_011_392, multi_processor_count=132, L2_cache_size=1 << 16,
        major=9, minor=0, uuid="GPU-1234", pci_domain_id=0, pci_bus_id=0x81, pci_device_id=0,
    )  # fmt: skip
    cuda = torch.cuda
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 8,
        "set_device": lambda index: None,
        "get_device_properties": lambda index: properties,
        "mem_get_info": lambda place: (100 << 30, 140 << 30),
        "memory_reserved": lambda place=None: 3 << 20,
        "memory_allocated": lambda place=None: 1 << 20,
        "max_memory_allocated": lambda place: 12345,
        "max_memory_reserved": lambda place: 0,
        "reset_peak_memory_stats": lambda place: None,
        "synchronize": lambda place: None,
        "empty_cache": lambda: None,
        "Event": FakeCudaEvent,
        "Stream": FakeStream,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": lambda place: FakeStream(),
    }.items():
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    original = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, device=None, **k: original(*a, **k))
    opened = open_device("cuda:3")
    assert isinstance(opened, CudaDevice)
    assert str(opened.place) == "cuda:3"
    opened.place = torch.device("cpu")
    monkeypatch.setattr(torch_device, "ARENA_BYTES", 1 << 20)
    return opened


def test_the_device_says_what_it_is(device: CudaDevice) -> None:
    info = device.info
    assert (info.kind, info.name, info.sm_count, info.compute_capability) == ("cuda", "NVIDIA H200", 132, (9, 0))
    assert (info.power_limit_w, info.sm_clock_max_mhz, info.pcie_gen, info.count_visible) == (700.0, 1980, 5, 8)
    assert info.uuid_hash is not None
    assert len(info.uuid_hash) == 8
    assert "1234" not in info.uuid_hash  # the serial itself stays out of the profile
    assert device.rotation_bytes == 2 << 16
    assert device.free_bytes() == (100 << 30) + (2 << 20)
    assert device.software()["driver"] == "580.82.07"
    assert device.peak_bytes() == {"allocated": 12345, "reserved": None, "used": 5 << 30}  # 0 is absent


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32", "fp8_e4m3", "int8"])
def test_kernels_are_timed_between_events(device: CudaDevice, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "graph", lambda kernel, calls: None)  # a CPU's torch has no graphs
    timed = time_blocks(
        device, device.matmul(MatmulSpec(dtype, 32, 64, 48)), Timing(blocks=2, min_block=1e-5, warmup=1)
    )
    assert len(timed.seconds) == 2
    assert all(0 < seconds < 1 for seconds in timed.seconds)
    assert timed.watch.samples


def test_shapes_that_cudas_kernels_refuse_are_refused_here(device: CudaDevice) -> None:
    with pytest.raises(Unsupported, match="k to be a multiple of 16"):
        device.matmul(MatmulSpec("fp8_e4m3", 32, 40, 48))
    with pytest.raises(Unsupported, match="compute capability"):
        device.matmul(MatmulSpec("nvfp4", 32, 64, 48))


def test_block_scaled_operands_have_the_shapes_that_torch_asks_for(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked by torch's own meta kernel (which has no form with `out=`), as it stands for the CUDA kernel's checks."""
    original = torch._scaled_mm_v2
    monkeypatch.setattr(torch, "_scaled_mm_v2", lambda *arguments, out: original(*arguments))
    device.place = torch.device("meta")
    for dtype, bits in (("mxfp8", 8), ("nvfp4", 4), ("mxfp4", 4)):
        columns = 128 * bits // 8
        kind = torch.float8_e4m3fn if bits == 8 else torch.uint8
        a = [torch.empty(64, columns, dtype=kind, device="meta")]
        b = [torch.empty(96, columns, dtype=kind, device="meta").t()]
        c = [torch.empty(64, 96, dtype=torch.bfloat16, device="meta")]
        torch_matmuls.block_scaled(torch, device.place, MatmulSpec(dtype, 64, 128, 96), a, b, c)(0)


def test_transfers_go_both_ways(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: original(*a, **k))
    for direction, work in (("h2d", 4096), ("d2h", 4096), ("both", 8192)):
        kernel = device.transfer(direction, True, 4096)
        kernel.call(0)
        assert kernel.work == work
    with pytest.raises(Unsupported):
        device.transfer("both", False, 4096)


def test_attention_runs_forward_and_backward(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "attention_backends", tuple)
    shape = ModelAttention("attention", 2, 16, 4, 2, 8, 8, True, 1)
    for backward, work in ((False, shape.flops), (True, 2 * shape.flops)):
        kernel = device.attention("bf16", shape, backward)
        kernel.call(0)
        kernel.call(0)
        assert kernel.work == work


def test_fast_attention_kernels_alone_are_allowed(device: CudaDevice) -> None:
    names = [str(kernel) for kernel in device.attention_backends()]
    assert not any("MATH" in name for name in names)


def test_torchs_errors_are_distinguished(device: CudaDevice) -> None:
    assert isinstance(device.explain(torch.OutOfMemoryError("CUDA out of memory.\nmore")), OutOfMemory)
    assert isinstance(device.explain(RuntimeError("CUDA error: an illegal memory access was encountered")), DeviceLost)
    assert isinstance(device.explain(torch.AcceleratorError("CUDA error: unspecified")), DeviceLost)
    other = RuntimeError("shapes differ")
    assert device.explain(other) is other


def blas(status: str) -> RuntimeError:
    """As torch's TORCH_CUDABLAS_CHECK words it (aten/src/ATen/cuda/Exceptions.h)."""
    return RuntimeError(f"CUDA error: {status} when calling `cublasLtMatmulAlgoGetHeuristic( ltHandle, …)`")


def test_a_refused_call_does_not_lose_the_device(device: CudaDevice) -> None:
    for status in ("CUBLAS_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS_INVALID_VALUE", "HIPBLAS_STATUS_NOT_SUPPORTED"):
        refused = blas(status)
        assert device.explain(refused) is refused
    assert isinstance(device.explain(blas("CUBLAS_STATUS_ALLOC_FAILED")), OutOfMemory)
    # an earlier kernel's error that surfaces in cuBLAS
    assert isinstance(device.explain(blas("CUBLAS_STATUS_EXECUTION_FAILED")), DeviceLost)


def test_a_matmul_that_cublas_refuses_is_unsupported(device: CudaDevice, monkeypatch: Any) -> None:
    """Row-wise fp8 scales on compute capability 12.0, for one (pytorch issue 192707): the run goes on."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise blas("CUBLAS_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    with pytest.raises(Unsupported, match="CUBLAS_STATUS_NOT_SUPPORTED"):
        device.matmul(MatmulSpec("fp8_e4m3", 32, 64, 48, scaling="rowwise"))


@pytest.mark.parametrize(
    "message",
    ["operation not permitted when stream is capturing", "operation failed due to a previous error during capture"],
)
def test_a_capture_that_fails_leaves_the_case_launch_bound(device: CudaDevice, monkeypatch: Any, message: str) -> None:
    class Graph:
        def replay(self) -> None:
            raise torch.AcceleratorError(f"CUDA error: {message}\nCUDA kernel errors might be reported later")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    assert device.graph(device.matmul(MatmulSpec("bf16", 32, 64, 48)), 3) is None


def test_a_device_that_is_not_there_is_named(device: CudaDevice) -> None:
    from napkin.errors import NapkinError

    for name in ("cuda:8", "cuda:x"):
        with pytest.raises(NapkinError, match="no device"):
            open_device(name)


def test_each_rank_of_a_node_takes_its_own_device(device: CudaDevice, monkeypatch: Any) -> None:
    monkeypatch.setenv("LOCAL_RANK", "5")
    assert str(open_device(None).place) == "cuda:5"

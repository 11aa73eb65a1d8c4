"""The sensors of a GPU: NVML through nvidia-ml-py if it is installed, torch's own readings on ROCm, else nothing.

NVML numbers devices by PCI address; CUDA_VISIBLE_DEVICES renumbers CUDA's, so a handle is looked up by address.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

from napkin.bench.device import Occupancy, Sample, Watch

NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0
NVML_FIELD_POWER_INSTANT = 186  # the ordinary reading is a one-second average on newer parts: useless for bursts
NVML_FIELD_POWER_DEFAULT_LIMIT = 189
# Memory in use beyond torch's own that a CUDA context (0.3 to 1.3 GB) and rounding explain.
EXPLAINED_BYTES = 3 << 29


class Sensors:
    """The sensors of a device; this base class reads none."""

    def sample(self) -> Sample:
        return Sample(time.perf_counter())

    def energy_j(self) -> float | None:
        return None

    def limits(self) -> dict[str, Any]:
        """Return the fields of DeviceInfo that only the driver reports."""
        return {}

    def driver(self) -> str | None:
        return None

    def occupancy(self, own_bytes: int) -> Occupancy:
        return Occupancy(None, None, None)

    def used_bytes(self) -> int | None:
        return None

    def pcie(self) -> tuple[int, int] | None:
        """Return the current generation and width; links drop to generation 1 when idle, so ask under load."""
        return None


class NvmlSensors(Sensors):
    """One NVIDIA GPU. Every reading that the driver refuses is None, never a guess."""

    def __init__(self, nvml: Any, bus_id: str) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
        self._reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )

    def _read(self, call: Callable[..., Any] | None, *arguments: Any) -> Any:
        if call is None:
            return None
        try:
            return call(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._read(getattr(self._nvml, name, None), *arguments)

    def _field(self, number: int) -> float | None:
        answer = self._ask("nvmlDeviceGetFieldValues", [number])
        if not answer or answer[0].nvmlReturn != 0:
            return None
        return float(answer[0].value.uiVal)

    def sample(self) -> Sample:
        milliwatts = self._field(NVML_FIELD_POWER_INSTANT)
        if milliwatts is None:
            milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return Sample(
            at=time.perf_counter(),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", NVML_CLOCK_SM),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            temperature_c=self._ask("nvmlDeviceGetTemperature", NVML_TEMPERATURE_GPU),
            reasons=self._read(self._reasons),
        )

    def energy_j(self) -> float | None:
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    def limits(self) -> dict[str, Any]:
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        default = self._field(NVML_FIELD_POWER_DEFAULT_LIMIT) or self._ask("nvmlDeviceGetPowerManagementDefaultLimit")
        ecc = self._ask("nvmlDeviceGetEccMode")
        mig = self._ask("nvmlDeviceGetMigMode")
        return {
            "power_limit_w": None if limit is None else limit / 1e3,
            "power_default_w": None if default is None else default / 1e3,
            "sm_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", NVML_CLOCK_SM),
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
        }

    def driver(self) -> str | None:
        try:
            version = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError:
            return None
        return version.decode() if isinstance(version, bytes) else str(version)

    def occupancy(self, own_bytes: int) -> Occupancy:
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        used = self.used_bytes()
        return Occupancy(
            # one of them is this process, whatever its number is outside the container
            other_processes=None if processes is None else max(0, len(processes) - 1),
            utilization=None if rates is None else rates.gpu / 100,
            unexplained_bytes=None if used is None else max(0, used - own_bytes - EXPLAINED_BYTES),
        )

    def used_bytes(self) -> int | None:
        """Return the bytes in use, without the driver's own if the binding can tell them apart."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        memory = None if version is None else self._ask("nvmlDeviceGetMemoryInfo", version)
        if memory is None:
            memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def pcie(self) -> tuple[int, int] | None:
        generation = self._ask("nvmlDeviceGetCurrPcieLinkGeneration")
        width = self._ask("nvmlDeviceGetCurrPcieLinkWidth")
        return None if generation is None or width is None else (generation, width)


class RocmSensors(Sensors):
    """An AMD GPU through torch's readings, which need amdsmi; what is missing is None."""

    def __init__(self, torch: Any, index: int) -> None:
        self._cuda = torch.cuda
        self._index = index

    def _ask(self, name: str) -> float | None:
        try:
            return float(getattr(self._cuda, name)(self._index))
        except (RuntimeError, ImportError, AttributeError):
            return None

    def sample(self) -> Sample:
        milliwatts = self._ask("power_draw")
        return Sample(
            at=time.perf_counter(),
            sm_clock_mhz=self._ask("clock_rate"),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            temperature_c=self._ask("temperature"),
        )


def nvidia_sensors(properties: Any) -> Sensors:
    """Return a CUDA device's sensors by NVML, or ones that read nothing without nvidia-ml-py or a driver."""
    address = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    try:
        pynvml = importlib.import_module("pynvml")  # nvidia-ml-py, which not every machine has
    except ImportError:
        return Sensors()
    if any(part is None for part in address):
        return Sensors()
    domain, bus, device = address
    try:
        pynvml.nvmlInit()
        return NvmlSensors(pynvml, f"{domain:08X}:{bus:02X}:{device:02X}.0")
    except pynvml.NVMLError:
        return Sensors()


class SensorThread:
    """Samples in the background while a block of code runs, and measures its energy."""

    def __init__(self, sensors: Sensors, interval: float) -> None:
        self._sensors = sensors
        self._interval = interval
        self._watch = Watch()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._energy: float | None = None

    def __enter__(self) -> Watch:
        if type(self._sensors) is Sensors:
            return self._watch  # nothing to read: no thread that would take time from the launches
        self._energy = self._sensors.energy_j()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self._watch

    def _run(self) -> None:
        while not self._stop.is_set():
            self._watch.samples.append(self._sensors.sample())
            self._stop.wait(self._interval)

    def __exit__(self, *details: object) -> None:
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        after = self._sensors.energy_j()
        if after is not None and self._energy is not None:
            self._watch.energy_j = after - self._energy

"""The device that is measured, by its name."""

from __future__ import annotations

from typing import Any

from napkin.bench.cuda_device import CudaDevice
from napkin.bench.host_devices import CpuDevice, MpsDevice
from napkin.bench.team import from_launcher
from napkin.bench.torch_device import TorchDevice
from napkin.errors import ABSENT, USAGE, NapkinError
from napkin.units import plain


def import_torch() -> Any:
    """Import torch, or raise an error that says how to get it."""
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
    """Return the device to measure: a CUDA device unless another one is named."""
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
        return from_launcher("LOCAL_RANK", 0) % count
    index = plain(text)
    if index is None or not 0 <= index < count:
        raise NapkinError(f"--device: no device {name!r}", f"{count} visible: cuda:0 to cuda:{count - 1}", USAGE)
    return index

"""The number formats that a matmul can be timed in, and which device and which shape may have them. No torch here.

The rules are those of torch's CUDA kernels (`_scaled_mm`, `_int_mm`). torch's CPU and meta kernels do not enforce them
all, so they are stated here and not left to an exception.
"""

from __future__ import annotations

from dataclasses import dataclass

from napkin.bench.device import MatmulSpec
from napkin.inputs.profile_cases import DeviceInfo
from napkin.units import number_format


@dataclass(frozen=True, slots=True)
class MatmulFormat:
    """A number format that a matmul can be timed in, and what its kernels ask of a shape."""

    key: str
    bits: int  # of one input element
    out: str  # the output's type in the headline figure
    capability: tuple[int, int]  # first CUDA compute capability that has it
    m_above: int = 0
    k_multiple: int = 1
    n_multiple: int = 1
    peak: str = ""  # the datasheet's word for the peak that applies, if it is not the key


FORMATS = {
    f.key: f
    for f in (
        MatmulFormat("fp64", 64, "fp64", (0, 0)),
        MatmulFormat("fp32", 32, "fp32", (0, 0)),
        MatmulFormat("tf32", 32, "fp32", (8, 0)),
        MatmulFormat("fp16", 16, "fp16", (5, 3)),
        MatmulFormat("bf16", 16, "bf16", (8, 0)),
        MatmulFormat("fp8_e4m3", 8, "bf16", (8, 9), k_multiple=16, n_multiple=16, peak="fp8"),
        MatmulFormat("int8", 8, "int32", (7, 5), m_above=16, k_multiple=8, n_multiple=8),
        MatmulFormat("mxfp8", 8, "bf16", (10, 0), k_multiple=32, n_multiple=16, peak="fp8"),
        MatmulFormat("mxfp4", 4, "bf16", (10, 0), k_multiple=32, n_multiple=16, peak="fp4"),
        MatmulFormat("nvfp4", 4, "bf16", (10, 0), k_multiple=32, n_multiple=16, peak="fp4"),
    )
}
OUT_BYTES = {"fp64": 8, "fp32": 4, "int32": 4, "fp16": 2, "bf16": 2, "fp8_e4m3": 1}

_CPU = frozenset({"fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "int8"})
_MPS = frozenset({"fp32", "fp16", "bf16"})
_BLOCK_SCALED = frozenset({"mxfp8", "mxfp4", "nvfp4"})
_ROCM_FP8 = ("gfx942", "gfx950", "gfx12")  # MI300 and later, RDNA 4


def named(text: str) -> str:
    """Return the key of a format given in any spelling; fp8 is measured in the format of weights and activations."""
    word = number_format(text)
    return {"fp8": "fp8_e4m3"}.get(word, word)


def unsupported(key: str, info: DeviceInfo) -> str | None:
    """Return why this device has no matmul in this format; None if it has one."""
    if info.kind == "cpu":
        return None if key in _CPU else f"no {key} matmul on a CPU"
    if info.kind == "mps":
        return None if key in _MPS else f"torch has no {key} matmul on Apple GPUs"
    if info.kind == "rocm":
        return _unsupported_rocm(key, info.arch or "")
    needed = FORMATS[key].capability
    if info.compute_capability is not None and info.compute_capability < needed:
        have = ".".join(map(str, info.compute_capability))
        return f"{key} needs compute capability {needed[0]}.{needed[1]}, this device has {have}"
    return None


def _unsupported_rocm(key: str, arch: str) -> str | None:
    if key == "tf32":
        return "AMD GPUs have no TF32 behind torch's float32 precision switch"
    if key in _BLOCK_SCALED:
        return f"{key} is measured on NVIDIA GPUs only: its scales are laid out for their tensor cores"
    if key == "fp8_e4m3" and not arch.startswith(_ROCM_FP8):
        return f"fp8 needs an MI300 or later, this is {arch or 'an unknown architecture'}"
    return None


def illegal(spec: MatmulSpec) -> str | None:
    """Return why the format's kernels refuse this shape; None if they accept it."""
    form = FORMATS[spec.dtype]
    if spec.m <= form.m_above:
        return f"{spec.dtype} needs m above {form.m_above}, not {spec.m}"
    for name, size, multiple in (("k", spec.k, form.k_multiple), ("n", spec.n, form.n_multiple)):
        if size % multiple:
            return f"{spec.dtype} needs {name} to be a multiple of {multiple}, not {size}"
    return None


def spec_bytes(spec: MatmulSpec) -> int:
    """Return the bytes of A, B and C of one operand set."""
    form = FORMATS[spec.dtype]
    inputs = (spec.m * spec.k + spec.k * spec.n) * form.bits // 8
    return inputs + spec.m * spec.n * OUT_BYTES[spec.out or form.out]

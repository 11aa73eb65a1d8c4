"""Peak rates: their names, the number formats that compute at each, and generations of accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from napkin.errors import NapkinError, did_you_mean
from napkin.units import number_format

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import Any

    Fields = Mapping[str, Any]


PEAKS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "fp32_matrix",
    "tf32",
    "bf16",
    "fp16",
    "fp16_fp16acc",
    "fp8",
    "fp8_fp16acc",
    "int8",
    "fp6",
    "fp4",
)
"""Every kind of peak, widest first. `fp32` is the vector rate: fp32 matmuls on tensor cores are `tf32`."""

TRAINING = ("bf16", "fp16", "fp32")
"""What training computes in unless stated: the first of these that the accelerator has."""

GENERATIONS = (
    *("maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"),
    *("cdna", "rdna", "gaudi", "xe", "tpu", "trainium", "inferentia", "apple"),
    "other",
)
"""What `generation` of an accelerator may be; `other` if none of these describes it."""
SINCE_HOPPER = ("hopper", "blackwell")
"""NVIDIA's generations with asynchronous matrix units, for which cuDNN 9 and FlashAttention 3 have kernels of their own
(Shah et al. 2024, arXiv:2407.08608, figures 5 and 6: as fast as each other); on others they are as fast as
FlashAttention-2."""

_PEAK_OF = {
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "mxfp8": "fp8",
    "mxfp6": "fp6",
    "fp4_e2m1": "fp4",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
}
"""Formats of one width compute at one rate, which makers print once."""
SPARSE = ("tf32", "bf16", "fp16", "fp16_fp16acc", "fp8", "fp8_fp16acc", "int8", "fp6", "fp4")
"""The matrix-unit rates that structured sparsity multiplies; vector and fp64 rates have no sparse form."""


def peak_name(dtype: str) -> str:
    """Return the peak that a dtype computes at: bfloat16 → bf16, nvfp4 → fp4. An unknown name is refused (2)."""
    name = number_format(dtype)
    name = _PEAK_OF.get(name, name)
    if name not in PEAKS:
        raise unknown("dtype", dtype, PEAKS, f"one of {', '.join(PEAKS)}")
    return name


def unknown(what: str, name: str, known: Iterable[str], hint: str) -> NapkinError:
    """Return the error of a name that nothing has."""
    from napkin.inputs.load import printable

    return NapkinError(f"unknown {what} {printable(name)!r}", did_you_mean(name, known) or hint)

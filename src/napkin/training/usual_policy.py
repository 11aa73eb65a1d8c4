"""The usual precision policy of a number format, by name. The policies themselves are not loaded for it."""

from __future__ import annotations

from napkin.units import number_format

MIXED = {
    "fp16": "fp16-mixed",
    "bf16": "bf16-mixed",
    "fp8": "fp8-mixed",
    "mxfp8": "mxfp8-mixed",
    "nvfp4": "nvfp4-mixed",
    "fp4": "nvfp4-mixed",
}
"""Number format of the matmuls → the policy that trains in it; fp32 in others."""


def usual_policy(form: str) -> str:
    """Return the name of the usual policy with matmuls in a number format."""
    return MIXED.get(number_format(form), "fp32")

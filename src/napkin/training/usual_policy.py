"""The usual precision policy of a number format, by name. The policies themselves are not loaded for it."""

from __future__ import annotations

from napkin.units import number_format

POLICIES = {
    "fp32": "fp32",
    "tf32": "fp32",
    "fp16": "fp16-mixed",
    "bf16": "bf16-mixed",
    "fp8": "fp8-mixed",
    "mxfp8": "mxfp8-mixed",
    "nvfp4": "nvfp4-mixed",
    "fp4": "nvfp4-mixed",
}
"""Number format of the matmuls → the policy that trains in it. In others, such as int8, no policy computes."""


def usual_policy(form: str) -> str:
    """Return the name of the usual policy with matmuls in a number format; "" if no policy has them."""
    return POLICIES.get(number_format(form), "")

"""Precision policies of full training and of adapters, and frameworks' names of dtypes."""

from __future__ import annotations

from napkin.inputs.launch.names import AUTOCAST, MASTER, PURE
from napkin.inputs.launch.stated import ASSUMED
from napkin.inputs.launch.values import flag, word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.inputs.launch.reading import Reading


def adapters(frozen: str, kept: str, compute: str = "bf16") -> str:
    """Return the policy of adapters that are kept in one format, next to frozen weights in another. frozen: a number
    format or a value of --quantized, of which nf4-dq differs from nf4 in its scales alone."""
    return f"frozen={frozen.removesuffix('-dq')},param={kept},grad={kept},compute={compute},state={kept}"


def full_policy(loaded: str | None, autocast: str | None, widens: bool, master: bool) -> str:
    """Return the policy of training all weights.

    loaded    the format of the weights as they are loaded, None for fp32      autocast  the format of autocast
    widens    the framework casts what it trains to fp32 (accelerate's FSDP under mixed precision)
    master    the framework keeps 16-bit weights and an fp32 copy (DeepSpeed)
    """
    narrow = autocast or (loaded if loaded in ("bf16", "fp16") else None)
    if narrow is None:
        return "fp32"
    if master:
        return MASTER if narrow == "bf16" else f"{narrow}-mixed"
    if autocast and (widens or loaded in (None, "fp32")):
        return AUTOCAST if narrow == "bf16" else f"param=fp32,grad=fp32,compute={narrow},state=fp32"
    if narrow == "bf16":
        return PURE
    return f"param={narrow},grad={narrow},compute={narrow},state={narrow}"


IN_8_BITS = {
    AUTOCAST: "param=fp32,grad=fp32,compute=fp8,state=fp32",
    PURE: "param=bf16,grad=bf16,compute=fp8,state=bf16",
    MASTER: "fp8-mixed",
}
"""A policy → the same with its linears in fp8."""


def take_fp8(reading: Reading, key: str) -> None:
    """Read a switch that runs the linears in fp8, over the formats of training all weights; next to adapters, and over
    other formats, napkin has no policy for it."""
    if not reading.read(key, flag):
        return
    before = reading.inputs.get("precision")
    if before is not None and str(before.value) in IN_8_BITS:
        state = reading.assume if before.origin == ASSUMED else reading.derive
        state("precision", IN_8_BITS[str(before.value)], key, *before.where.split(", "))
    else:
        reading.omit(key, "the linears of adapters and of these formats are not modeled in 8 bits")


DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp32": "fp32",
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float32": "fp32",
    "16": "fp16",
    "32": "fp32",
    "auto": "auto",
}


dtype = word(DTYPES)


fixed_dtype = word({name: kind for name, kind in DTYPES.items() if kind != "auto"})
"""Of libraries in which `auto` names no format."""

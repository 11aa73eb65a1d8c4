"""Precision policies of full training and of adapters, and the dtype names of frameworks."""

from __future__ import annotations

from napkin.inputs.launch.names import AUTOCAST, MASTER, MEGATRON, PURE
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED
from napkin.inputs.launch.values import flag, word


def adapters(frozen: str, kept: str, compute: str = "bf16", master: bool = False) -> str:
    """Return the precision policy of adapters over frozen weights.

    frozen  a number format or a value of --quantized; nf4-dq differs from nf4 only in its scales
    kept    the format that adapters are created in
    master  the framework casts every unquantized weight to the compute format and keeps an fp32 copy of what it trains
            (DeepSpeed: runtime/engine.py, _configure_distributed_model)
    """
    frozen = frozen.removesuffix("-dq")
    if master and compute in ("bf16", "fp16"):
        frozen = compute if frozen in ("bf16", "fp16", "fp32") else frozen
        return f"frozen={frozen},param={compute},grad={compute},compute={compute},state=fp32,master=fp32"
    return f"frozen={frozen},param={kept},grad={kept},compute={compute},state={kept}"


def full_policy(loaded: str | None, autocast: str | None, widens: bool, master: bool) -> str:
    """Return the precision policy of training all weights.

    loaded    the format that weights are loaded in, None for fp32     autocast  the autocast format
    widens    the framework upcasts trained weights to fp32 (accelerate's FSDP under mixed precision)
    master    the framework keeps 16-bit weights and an fp32 copy (DeepSpeed)
    """
    narrow = autocast or (loaded if loaded in ("bf16", "fp16") else None)
    if narrow is None:
        return "fp32"
    if master:
        return MASTER if narrow == "bf16" else f"{narrow}-mixed"
    if autocast and (widens or loaded in (None, "fp32")):
        return AUTOCAST if narrow == "bf16" else f"param=fp32,grad=fp32,compute={narrow},state=fp32"
    kept = loaded if loaded in ("bf16", "fp16") else narrow  # autocast leaves the weights as they were loaded
    if kept == narrow == "bf16":
        return PURE
    return f"param={kept},grad={kept},compute={narrow},state={kept}"


IN_8_BITS = {
    AUTOCAST: "param=fp32,grad=fp32,compute=fp8,state=fp32",
    PURE: "param=bf16,grad=bf16,compute=fp8,state=bf16",
    MASTER: "fp8-mixed",
}
"""Policy → the same policy with fp8 linear layers."""


def take_fp8(reading: Reading, key: str) -> None:
    """Read a switch for fp8 linear layers in full training. With adapters or other policies it is not modeled."""
    if not reading.read(key, flag):
        return
    before = reading.inputs.get("precision")
    if before is not None and str(before.value) in IN_8_BITS:
        state = reading.assume if before.origin == ASSUMED else reading.derive
        state("precision", IN_8_BITS[str(before.value)], key, *before.where.split(", "))
    else:
        reading.omit(key, "fp8 linear layers are not modeled with adapters or with this precision")


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
"""For libraries in which `auto` is not a dtype."""


ACCUMULATED = "data_types.grad_accum_dtype"
"""DeepSpeed's key of the format in which gradients are accumulated."""


def take_deepspeed_bf16(reading: Reading, *keys: str) -> None:
    """Set DeepSpeed's bf16, whose gradients are bf16 unless they are accumulated in fp32 (runtime/engine.py)."""
    wide = reading.read(ACCUMULATED, fixed_dtype) == "fp32"
    reading.derive("precision", MEGATRON, *keys, ACCUMULATED) if wide else reading.put("precision", MASTER, *keys)

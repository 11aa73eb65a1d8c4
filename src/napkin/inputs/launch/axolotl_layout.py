"""Read axolotl's parallel layout (degrees, DeepSpeed, FSDP), number formats and recomputation."""

from __future__ import annotations

from napkin.inputs.launch.names import AUTOCAST, MASTER, PURE
from napkin.inputs.launch.precisions import adapters, take_fp8
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import SHARDING, take_deepspeed_file, take_fsdp
from napkin.inputs.launch.values import degree, flag, names, product, whole, word

DEGREES = (
    ("tensor_parallel_size", "tp"),
    ("context_parallel_size", "cp"),
    ("sequence_parallel_degree", "cp"),
    ("expert_parallel_size", "ep"),
)
HALF = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "full": "full", "auto": "auto"}
"""Values of bf16 (src/axolotl/utils/schemas/config.py)."""


def take_layout(reading: Reading) -> None:
    """Read the degrees and the GPU count.

    FSDP shards over the ranks that the other degrees leave. With dp_shard_size, the product of all sizes is the
    GPU count.
    """
    found = {}
    for key, option in DEGREES:
        size = reading.take(option, key, whole if option == "ep" else degree)
        if size:
            found[key] = size
    shard, copies = reading.read("dp_shard_size", degree), reading.read("dp_replicate_size", degree)
    if shard:
        reading.put("dp-shard", shard, "dp_shard_size")
        keys = ("dp_shard_size", "dp_replicate_size", *found, *(key for key, _ in DEGREES if reading.open_among(key)))
        dense = [size for key, size in found.items() if not key.startswith("expert")]
        reading.derive("gpus", product([shard, copies or 1, *dense]), *[k for k in keys if k in reading.source])
    if take_deepspeed_file(reading):
        return
    words = " ".join(names(reading.source.plain("fsdp") or [])).lower().split()
    if words or reading.source.states("fsdp_config"):
        reading.derive("framework", "fsdp", *[k for k in ("fsdp", "fsdp_config") if reading.source.states(k)])
        take_fsdp(reading, "fsdp_config", "fsdp_version" if "fsdp_version" in reading.source else "")
        stage = next((SHARDING[one] for one in words if one in SHARDING), None)
        if stage is not None and reading.inputs["zero"].origin == "default":
            reading.put("zero", stage, "fsdp")
        if "offload" in words:
            reading.put("offload", "optimizer,parameters", "fsdp")
    elif shard or (copies and copies > 1):
        reading.default("zero", 3 if shard else 0, "fsdp_config")


def _precision(reading: Reading) -> None:
    """Read the precision: weights are loaded in bf16, with autocast on top.

    FSDP under mixed precision upcasts trained weights to fp32; DeepSpeed keeps an fp32 copy. bf16: auto is true on
    Ampere and later.
    """
    keys = [
        key
        for key in ("bf16", "fp16", "bfloat16", "float16", "adapter", "fsdp_config", "deepspeed")
        if key in reading.source and reading.source.plain(key) not in (None, False)
    ]
    half, narrow = reading.read("bf16", word(HALF)), "bf16"
    brain, short = reading.read("bfloat16", flag), reading.read("float16", flag)
    pure = brain or short
    if half in (None, False) and not brain:
        if short or reading.read("fp16", flag):
            narrow = "fp16"
        elif "bf16" in reading.source or "fp16" in reading.source:
            reading.derive("precision", "fp32", *[k for k in ("bf16", "fp16") if k in reading.source])
            return
        elif not reading.value_of("adapter"):
            usual = {"fsdp": AUTOCAST, "deepspeed": MASTER}.get(str(reading.value_of("framework")), PURE)
            reading.default("precision", usual, "bf16")
            return
    if str(half).lower() == "full":
        pure = True
    state = reading.assume if str(half).lower() == "auto" else reading.derive  # true on Ampere and later
    framework = reading.value_of("framework")
    keys = keys or ["bf16"]
    if reading.value_of("adapter"):
        frozen = reading.value_of("quantized") or narrow
        state("precision", adapters(frozen, "fp32", narrow, framework == "deepspeed"), *keys)
    elif framework == "deepspeed":
        state("precision", MASTER if narrow == "bf16" else "fp16-mixed", *keys)
    elif framework == "fsdp" and not pure:
        policy = AUTOCAST if narrow == "bf16" else "param=fp32,grad=fp32,compute=fp16,state=fp32"
        state("precision", policy, *keys)
    else:
        policy = PURE if narrow == "bf16" else "param=fp16,grad=fp16,compute=fp16,state=fp16"
        state("precision", policy, *keys)


def take_formats(reading: Reading) -> None:
    """Read the precision, and fp8's part of it."""
    _precision(reading)
    take_fp8(reading, "fp8")


def take_checkpointing(reading: Reading) -> None:
    """Read recomputation, and whether saved activations go to the host."""
    value = reading.find("gradient_checkpointing")
    if value is None:
        if reading.value_of("recompute") is None:
            reading.default("recompute", "none", "gradient_checkpointing")
        return
    kind = str(value.value).lower()
    if kind.startswith("offload"):
        reading.put("recompute", "full", "gradient_checkpointing")
        _add_offload(reading, "gradient_checkpointing")
    else:
        reading.put("recompute", "full" if reading.parsed(value, flag) else "none", "gradient_checkpointing")
    away = str(reading.source.plain("activation_offloading") or "").lower()
    if away not in ("", "false"):
        _add_offload(reading, "activation_offloading")


def _add_offload(reading: Reading, key: str) -> None:
    """Add activations to the offloaded states; if those are open, leave the option open."""
    before = reading.inputs.get("offload")
    if before is None or before.value is not None:
        held = [one for one in str(before.value if before else "").split(",") if one and one != "activations"]
        reading.put("offload", ",".join([*held, "activations"]), key)

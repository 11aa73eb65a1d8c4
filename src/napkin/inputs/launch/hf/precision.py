"""Read the precision of programs with Hugging Face's TrainingArguments."""

from __future__ import annotations

from napkin.inputs.launch.hf.trl import has_trl_defaults, is_trl
from napkin.inputs.launch.precisions import adapters, dtype, full_policy
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.stated import ASSUMED
from napkin.inputs.launch.values import flag, word

AUTOCASTS = word({"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "no": None, "false": None})
"""Values of accelerate's mixed_precision."""


def is_from_scratch(source: LaunchFile) -> bool:
    """Return whether a line names the config.json of a model, and no weights (transformers' run_clm.py)."""
    return "config_name" in source and "model_name_or_path" not in source


def precision(reading: Reading) -> None:
    """Read the precision: the dtype that weights are loaded in, with autocast on top."""
    adapted = reading.inputs.get("adapter")
    if adapted is not None and adapted.value is None:
        reading.ask("precision", adapted.where)
        return
    loaded = reading.read("torch_dtype|dtype", dtype)
    autocast = "bf16" if reading.read("bf16", flag) else "fp16" if reading.read("fp16", flag) else None
    if autocast == "bf16" and reading.read("fp16", flag):  # transformers 5.23, training_args.py, __post_init__
        reading.contradict("fp16", "bf16 is set too, and Trainer starts with one of them only", "precision")
    autocast = autocast or reading.read("mixed_precision", AUTOCASTS)
    if autocast == "fp8":
        reading.ask("precision", "mixed_precision")
        return
    keys = [key for key in ("torch_dtype", "dtype", "bf16", "fp16", "mixed_precision") if key in reading.source]
    unseen = reading.value_of("framework") == "deepspeed" and reading.value_of("zero") is None
    if not keys and unseen:  # the DeepSpeed file, which is not here, sets it
        reading.ask("precision", *reading.written("deepspeed_config", "deepspeed"))
        return
    if not keys and not has_trl_defaults(reading) and not reading.value_of("adapter"):
        reading.default("precision", "fp32", "bf16", "torch_dtype")
        return
    default = not keys
    if not reading.source.has_any("bf16", "fp16", "mixed_precision") and has_trl_defaults(reading):
        autocast, default = "bf16", True
    keys = keys or ["bf16", "torch_dtype"]
    master = reading.value_of("framework") == "deepspeed"
    assumed = "bf16" if loaded == "auto" else loaded
    if reading.value_of("adapter"):
        quantized = reading.value_of("quantized")
        held = assumed if assumed in ("bf16", "fp16") else "fp32"
        narrow = autocast or held
        kept = "bf16" if quantized and is_trl(reading) and narrow == "bf16" else "fp32"
        policy = adapters(quantized or held, kept, narrow, master)
    else:
        policy = full_policy(assumed, autocast, reading.value_of("framework") == "fsdp", master)
    guessed = reading.inputs.get("framework")
    unsure = guessed is not None and guessed.origin == ASSUMED
    asked = [reading.inputs[one].where for one in ("gpus", "zero") if one in reading.inputs]
    launched = unsure or any(where.endswith("config_file") for where in asked)
    if default and loaded != "auto":
        reading.default("precision", policy, *keys)
    elif loaded == "auto" or launched or is_from_scratch(reading.source):
        # the launcher's file, which is not here, may start DeepSpeed; from_config takes the config's dtype, or none
        reading.assume("precision", policy, *keys)
    else:
        reading.derive("precision", policy, *keys)

"""Read ms-swift's GPUs, parallel layout (DeepSpeed, FSDP or Megatron) and batch."""

from __future__ import annotations

from itertools import pairwise

from napkin.inputs.launch.checks import check_batch, check_gpus, take_environment, take_heads_exchanged, take_machine
from napkin.inputs.launch.hf.accelerate_line import ask_sharding, take_accelerate
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_deepspeed_file
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import degree, whole

TASKS = {"pt": "pretrain", "sft": "sft", "rlhf": "dpo"}
"""Subcommand → task; rlhf is DPO by default."""


STAGES = {
    "zero0": (0, ""),
    "zero1": (1, ""),
    "zero2": (2, ""),
    "zero2_offload": (2, "optimizer"),
    "zero3": (3, ""),
    "zero3_offload": (3, "optimizer,parameters"),
}
"""ms-swift's own DeepSpeed files (swift/config) → (ZeRO stage, offload)."""


MICRO, STEPS, ANSWER = "per_device_train_batch_size", "gradient_accumulation_steps", "max_completion_length"


def command_of(source: LaunchFile) -> tuple[str, str]:
    """Return the program (swift or megatron) and subcommand (sft, pt or rlhf) of a launch line."""
    words = [one.replace("swift/cli/", "swift ").removesuffix(".py") for one in source.command]
    flat = " ".join(words).split()
    for program, kind in pairwise(flat):
        if program in ("swift", "megatron") and kind in TASKS:
            return program, kind
    return "", ""


def is_megatron(source: LaunchFile) -> bool:
    """Return whether the run trains in Megatron."""
    return command_of(source)[0] == "megatron" or source.has_any("tensor_model_parallel_size", "micro_batch_size")


def take_gpus(reading: Reading) -> None:
    """Read the GPU count, NPROC_PER_NODE × NNODES.

    Without NPROC_PER_NODE one process runs, so a single visible GPU determines the count.
    """
    take_machine(reading)
    if reading.value_of("gpus") is None and "gpus" not in reading.inputs:
        take_environment(reading)
    seen = reading.source.environment.get("CUDA_VISIBLE_DEVICES", "")
    if "gpus" not in reading.inputs and seen.isdecimal():
        reading.derive("gpus", 1, "CUDA_VISIBLE_DEVICES")
    elif "gpus" not in reading.inputs and len(seen.split(",")) > 1:
        reading.ask("gpus", "CUDA_VISIBLE_DEVICES")
        reading.omit("CUDA_VISIBLE_DEVICES", "without NPROC_PER_NODE, one process spreads the layers over these GPUs")
    reading.told("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES")


def take_layout(reading: Reading) -> None:
    """Read the layout: DeepSpeed by name or file, FSDP2 or Ulysses; or Megatron's degrees."""
    if is_megatron(reading.source):
        reading.derive("framework", "megatron-core", "megatron")
        if reading.find("recompute_granularity") is None:
            reading.default("recompute", "selective", "recompute_granularity")
        core.take_division(reading, zero=1)
        core.take_overlap(reading, omitted=False)
        core.take_tensor_overlap(reading, omitted=False)
        reading.derive("implementation", "megatron", "megatron")
        check_gpus(reading)
        check_batch(reading, "global_batch_size")
        return
    name = str(reading.source.plain("deepspeed") or "").removeprefix("default-")
    if name.lower() in STAGES:
        stage, away = STAGES[name.lower()]
        reading.derive("framework", "deepspeed", "deepspeed")
        reading.put("zero", stage, "deepspeed")
        if away:
            reading.derive("offload", away, "deepspeed")
    elif take_deepspeed_file(reading):
        pass
    elif str(reading.source.plain("fsdp") or "").lower() == "fsdp2":
        reading.derive("framework", "fsdp", "fsdp")
        reading.derive("fsdp-version", "2", "fsdp")
        reading.derive("zero", 3, "fsdp")
        reading.derive("recompute", "full", "fsdp")
    elif reading.find("fsdp") is not None:
        reading.ask("zero", "fsdp")
    elif not take_accelerate(reading):
        ask_sharding(reading)
    take_heads_exchanged(reading, "sequence_parallel_size")
    tp = reading.read("deepspeed_autotp_size", degree)
    if tp:
        reading.put("tp", tp, "deepspeed_autotp_size")


def take_batch(reading: Reading) -> None:
    """Read the batch; accumulation defaults to a global batch of 16 (swift/trainers/arguments.py)."""
    if is_megatron(reading.source):
        for key, option, usual in (("micro_batch_size", "micro-batch", 1), ("global_batch_size", "global-batch", 16)):
            reading.take(option, key, whole)
            reading.default(option, usual, key)
        return
    micro = reading.take("micro-batch", f"{MICRO}|batch_size", whole)
    reading.default("micro-batch", 1, MICRO)
    gpus = reading.value_of("gpus")
    if reading.take("grad-accum", STEPS, whole):
        pass
    elif reading.find(STEPS) is None and gpus and reading.value_of("micro-batch"):
        reading.default("grad-accum", max(1, -(-16 // ((micro or 1) * gpus))), STEPS)
    else:
        reading.ask("grad-accum", STEPS)

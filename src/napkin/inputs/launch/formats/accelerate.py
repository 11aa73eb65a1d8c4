"""accelerate's configuration file."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_heads_exchanged
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import ATTENTION, AUTOCAST, MASTER
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import IDLE_FSDP, NAMED_FSDP, WHY_FSDP, take_deepspeed_block, take_fsdp, take_linked
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import natural, whole

P = "parallelism_config.parallelism_config_"


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is accelerate's configuration."""
    return source.has_any("distributed_type", "compute_environment") and "model_name_or_path" not in source


def _processes(value: object) -> int | None:
    """Return the number of processes; None for `gpu`, torchrun's word for as many as the node has GPUs."""
    return None if value in ("gpu", "cpu") else whole(value)


def _kind(reading: Reading) -> None:
    """Read the backend that distributes the model: FSDP, DeepSpeed, Megatron-LM or DDP."""
    kind = str(reading.source.plain("distributed_type") or "").upper()
    if kind == "FSDP" or (not kind and reading.source.states("fsdp_config")):
        reading.derive("framework", "fsdp", "distributed_type", "fsdp_config")
        take_fsdp(reading, "fsdp_config")
        reading.default("fsdp-version", "1", "fsdp_config.fsdp_version")  # utils/dataclasses.py, FSDP_VERSION
    elif kind == "DEEPSPEED":
        reading.derive("framework", "deepspeed", "distributed_type")
        _deepspeed(reading)
    elif kind == "MEGATRON_LM":
        reading.derive("framework", "megatron-core", "distributed_type")
        _megatron(reading)
    elif kind in ("NO", "FALSE"):
        # commands/launch.py, launch_command: the file's number of processes is that of its distributed_type
        reading.told("distributed_type")
        if reading.value_of("gpus") not in (None, 1):
            reading.derive("gpus", 1, "distributed_type")
            reading.disable("num_processes", "has no effect: distributed_type NO starts one process", "gpus")
        reading.default("gpus", 1, "num_processes")
    elif kind.startswith("MULTI_"):  # MULTI_GPU, MULTI_NPU, …: DDP
        reading.put("zero", 0, "distributed_type")
    elif kind:
        reading.refuse("distributed_type", f"napkin does not know {kind[:40]!r}", "framework")


def _deepspeed(reading: Reading) -> None:
    from napkin.inputs.launch.read import merge_into

    block = "deepspeed_config"
    named = f"{block}.deepspeed_config_file"
    if reading.find(named) is not None:
        linked = take_linked(reading, named)
        if linked is not None:
            merge_into(reading, linked, named)
        else:
            reading.ask("zero", named)
            reading.ask("offload", named)
            reading.omit(named, "the file was not found; its ZeRO stage and offload are unknown")
        return
    stage = reading.read(f"{block}.zero_stage", natural)
    if stage is not None:
        reading.put("zero", stage, f"{block}.zero_stage")
    else:
        reading.default("zero", 2, f"{block}.zero_stage")
    take_deepspeed_block(reading, block, f"{block}.offload_optimizer", f"{block}.offload_param")
    reading.take("grad-accum", f"{block}.gradient_accumulation_steps", whole)


def _megatron(reading: Reading) -> None:
    block = "megatron_lm_config.megatron_lm_"
    for key, option in (("tp_degree", "tp"), ("pp_degree", "pp")):
        reading.take(option, f"{block}{key}", whole)
    reading.switch("zero", 1, f"{block}use_distributed_optimizer")
    reading.switch("recompute", "selective", f"{block}recompute_activations")
    reading.switch("sp", True, f"{block}sequence_parallelism")


def _sizes(reading: Reading) -> None:
    """Read the degrees of parallelism_config; Ulysses is read as context parallelism."""
    for key, option in (("tp_size", "tp"), ("cp_size", "cp"), ("sp_size", "cp")):
        found = reading.read(f"{P}{key}", whole)
        if found and (found > 1 or reading.value_of(option) is None):
            reading.put(option, found, f"{P}{key}")
            if key == "sp_size" and found > 1:
                take_heads_exchanged(reading, f"{P}{key}")
                reading.omit(f"{P}sp_backend", "Ulysses shards heads within attention; read as context parallelism")
    replicas, shards = reading.read(f"{P}dp_replicate_size", whole), reading.read(f"{P}dp_shard_size", whole)
    if replicas or shards:
        keys = tuple(f"{P}{one}" for one in ("dp_replicate_size", "dp_shard_size") if f"{P}{one}" in reading.source)
        reading.derive("dp", (replicas or 1) * (shards or 1), *keys)
    if shards and (shards > 1 or (replicas or 1) > 1):
        reading.put("dp-shard", shards, f"{P}dp_shard_size")
    kernel = reading.source.plain(f"{P}sp_attn_implementation")
    if kernel is not None and ATTENTION.get(str(kernel).lower()):
        reading.put("attention", ATTENTION[str(kernel).lower()], f"{P}sp_attn_implementation")


def _precision(reading: Reading) -> None:
    """Read the precision.

    Under mixed precision FSDP upcasts trained weights to fp32 and DeepSpeed keeps an fp32 copy. Without either, the
    trainer's file decides; `no` sets nothing.
    """
    value = reading.find("mixed_precision")
    if value is None:
        return
    kind = "no" if value.value is False else str(value.value).lower()
    framework = reading.value_of("framework")
    if kind == "no":
        reading.told("mixed_precision")
        reading.ignore("mixed_precision")
    elif kind not in ("bf16", "fp16", "fp8"):
        raise reading.source.error("mixed_precision", f"{kind[:40]!r} is not one of no, fp16, bf16, fp8")
    elif kind == "fp8":
        reading.ask("precision", "mixed_precision", "fp8_config")
        reading.omit("fp8_config", "fp8 layers over parameters in the loaded dtype: give --precision")
    elif framework == "deepspeed":
        reading.derive("precision", MASTER if kind == "bf16" else "fp16-mixed", "mixed_precision", "distributed_type")
    elif framework == "fsdp":
        policy = AUTOCAST if kind == "bf16" else f"param=fp32,grad=fp32,compute={kind},state=fp32"
        reading.derive("precision", policy, "mixed_precision", "distributed_type")
    elif framework == "megatron-core":
        reading.derive("precision", MASTER if kind == "bf16" else "fp16-mixed", "mixed_precision", "distributed_type")
    else:
        reading.ask("precision", "mixed_precision")


IDLE_BACKENDS = ("no", "false", "none", "eager")
"""Backends that generate no code: `eager` runs the extracted graph with PyTorch's own operations."""


def _compile(reading: Reading) -> None:
    for key in ("dynamo_config.dynamo_backend", "dynamo_backend"):
        value = reading.source.plain(key)
        if value is not None and str(value).lower() not in IDLE_BACKENDS:
            reading.put("compile", True, key)


FORMAT = LaunchFormat(
    "accelerate",
    "accelerate's configuration",
    "huggingface/accelerate src/accelerate/{accelerator.py,utils/dataclasses.py,utils/fsdp_utils.py}",
    is_this,
    keys=(
        Key("num_processes", "gpus", _processes),
        Key("gradient_accumulation_steps", "grad-accum", whole),
        Key("num_machines", "nodes", whole),
    ),
    rules=(
        KeyRule(
            "distributed_type fsdp_config deepspeed_config megatron_lm_config",
            "framework zero offload recompute tp pp",
            "FSDP: FULL_SHARD 3, SHARD_GRAD_OP 2, version 2 by reshard_after_forward; DeepSpeed: zero_stage",
            _kind,
        ),
        KeyRule(
            "parallelism_config",
            "tp cp dp dp-shard attention",
            "degrees of parallelism_config; sp_size is Ulysses, read as cp",
            _sizes,
        ),
        KeyRule(
            "mixed_precision", "precision", "FSDP upcasts trained weights: amp-bf16; DeepSpeed: bf16-mixed", _precision
        ),
        KeyRule(
            "dynamo_config.dynamo_backend dynamo_backend", "compile", "a backend other than NO and EAGER", _compile
        ),
    ),
    ignored=f"""downcast_bf16 deepspeed_config.zero3_save_16bit_model deepspeed_config.deepspeed_multinode_launcher
        deepspeed_config.zero3_init_flag deepspeed_config.deepspeed_hostfile gpu_ids enable_cpu_affinity
        deepspeed_config.gradient_clipping mpirun_config ipex_config commands command_file rdzv_conf
        dynamo_config {IDLE_FSDP}""",
    not_modelled={
        NAMED_FSDP: WHY_FSDP,
        "parallelism_config.*sp_backend parallelism_config.*sp_seq*": "Ulysses is read as context parallelism",
        "parallelism_config.*comm_strategy": "exchange of keys and values in context parallelism",
        "deepspeed_config.seq_parallel_communication_data_type": "Ulysses' communication dtype",
        "deepspeed_config.deepspeed_moe_layer_cls_names": "names of expert modules",
        "fp8_config": "fp8 layers",
    },
)

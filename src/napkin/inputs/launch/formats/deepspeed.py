"""DeepSpeed's JSON."""

from __future__ import annotations

from napkin.inputs.launch.checks import BATCH, take_heads_exchanged
from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.names import take_optimizer
from napkin.inputs.launch.precisions import ACCUMULATED, take_deepspeed_bf16
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_deepspeed_block
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import Open, degree, flag, is_open, natural, whole
from napkin.units import Unreadable

Z = "zero_optimization"
MICRO, GLOBAL, STEPS = "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps"


MARKS = (
    "fp16.enabled",
    "bf16.enabled",
    "optimizer.type",
    "steps_per_print",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
)
"""Keys of DeepSpeed next to which a train_batch_size is one, and not that of a project of its own."""

STAGE_3 = ("max_live_parameters", "max_reuse_distance", "prefetch_bucket_size", "param_persistence_threshold")
SIZES = (
    "reduce_bucket_size",
    "allgather_bucket_size",
    "sub_group_size",
    *STAGE_3,
    *(f"stage3_{key}" for key in STAGE_3),
)
"""Keys of numbers of elements."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is DeepSpeed's JSON, or the same in YAML."""
    if source.syntax in ("shell", "python") or source.has_any("num_layers", "model_name_or_path", "base_model"):
        return False
    return source.has_any(Z, MICRO) or (GLOBAL in source and (source.syntax == "json" or source.has_any(*MARKS)))


def _batch(reading: Reading) -> None:
    """Read the batch: global = micro × accumulation × ranks.

    Two of the four do not determine the others; "auto" is left to the trainer.
    """
    for key, option in ((MICRO, "micro-batch"), (GLOBAL, "global-batch"), (STEPS, "grad-accum")):
        value = reading.find(key)
        if value is None:
            continue
        found = None if isinstance(value.value, Open) else reading.read(key, whole)
        if found:
            reading.put(option, found, key)
        else:
            reading.ask(option, key)
    micro, total, steps = (reading.value_of(one) for one in ("micro-batch", "global-batch", "grad-accum"))
    if micro and total and steps:
        if total % (micro * steps):
            reading.contradict(GLOBAL, f"{total} is not a multiple of {MICRO} {micro} × {STEPS} {steps}", *BATCH)
        else:
            reading.derive("dp", total // (micro * steps), GLOBAL, MICRO, STEPS)
    elif micro and total and total < micro:
        reading.contradict(GLOBAL, f"{total} is smaller than {MICRO} {micro}", *BATCH)


def _check_sizes(reading: Reading) -> None:
    """Report sizes of buffers and limits of stage 3 that DeepSpeed does not accept: negative ones
    (deepspeed/runtime/zero/config.py)."""
    for key in SIZES:
        reading.read(f"{Z}.{key}", _size)


def _size(value: object) -> int | None:
    if value == -1:
        raise Unreadable("-1 is not a whole number")
    return None if isinstance(value, bool) else natural(value)


def _zero(reading: Reading) -> None:
    _check_sizes(reading)
    reading.derive("framework", "deepspeed", Z if Z in reading.source else MICRO)
    stage = reading.find(f"{Z}.stage")
    if stage is None:
        reading.default("zero", 0, f"{Z}.stage")
    elif is_open(stage.value):
        reading.ask("zero", f"{Z}.stage")
    else:
        reading.put("zero", reading.read(f"{Z}.stage", natural), f"{Z}.stage")
    take_deepspeed_block(reading, Z, f"{Z}.offload_optimizer", f"{Z}.offload_param")
    reading.switch("offload", "optimizer", f"{Z}.cpu_offload")


def _precision(reading: Reading) -> None:
    """Read the precision: fp32 without a 16-bit block; "auto" is left to the trainer."""
    found = {name: reading.find(f"{name}.enabled") for name in ("bf16", "bfloat16", "fp16")}
    stated = [name for name, value in found.items() if value is not None and not is_open(value.value)]
    enabled = [name for name in stated if reading.read(f"{name}.enabled", flag)]
    if enabled:
        key = f"{enabled[0]}.enabled"
        reading.put("precision", "fp16-mixed", key) if enabled[0] == "fp16" else take_deepspeed_bf16(reading, key)
        if enabled[0] != "fp16" and "fp16" in enabled:
            why = f"{enabled[0]} is enabled too, and DeepSpeed starts with one of them only"
            reading.contradict("fp16.enabled", why, "precision")
        return
    open_ones = [f"{name}.enabled" for name, value in found.items() if value is not None and is_open(value.value)]
    if open_ones:
        reading.ask("precision", *open_ones)
    else:
        reading.default("precision", "fp32", "bf16.enabled", "fp16.enabled")
    if "amp.enabled" in reading.source and reading.read("amp.enabled", flag):
        reading.ask("precision", "amp.enabled")
        reading.omit("amp", "apex's mixed precision")


def _optimizer(reading: Reading) -> None:
    if "optimizer.type" in reading.source:
        take_optimizer(reading, "optimizer.type")


CHANGING = {
    "elasticity": "batch sizes that follow the number of GPUs",
    "curriculum_learning": "the sequence grows during the run",
}
"""Blocks that change sizes while they are enabled → how."""


def _others(reading: Reading) -> None:
    reading.take("tp", "tensor_parallel.autotp_size", degree)
    take_heads_exchanged(reading, "sequence_parallel_size")
    for block, why in CHANGING.items():
        if reading.read(f"{block}.enabled", flag):
            reading.omit(block, why)
        else:
            reading.ignore(block)
    if reading.read("compile.enabled|compile", lambda value: None if isinstance(value, dict) else flag(value)):
        reading.put("compile", True, *reading.written("compile.enabled", "compile"))


FORMAT = LaunchFormat(
    "deepspeed",
    "DeepSpeed's JSON",
    "deepspeedai/DeepSpeed deepspeed/runtime/{config,zero/config}.py, docs/_pages/config-json.md",
    is_this,
    rules=(
        KeyRule(
            f"{MICRO} {GLOBAL} {STEPS}",
            "micro-batch global-batch grad-accum dp",
            "global = micro × accumulation × ranks; auto leaves a value to the trainer",
            _batch,
        ),
        KeyRule(
            f"{Z}.stage {Z}.offload_optimizer {Z}.offload_param {Z}.cpu_offload",
            "framework zero offload",
            "stage, default 0; optimizer offload from stage 1, parameter offload in stage 3",
            _zero,
        ),
        KeyRule(
            f"bf16.enabled bfloat16.enabled fp16.enabled {ACCUMULATED}",
            "precision",
            "16-bit weights with an fp32 copy",
            _precision,
        ),
        KeyRule("optimizer.type", "optimizer", "Adam is FusedAdam, with decoupled weight decay", _optimizer),
        KeyRule("tensor_parallel.autotp_size sequence_parallel_size compile", "tp cp compile", "degrees", _others),
    ),
    ignored=f"""optimizer.params fp16 bf16 scheduler gradient_predivide_factor prescale_gradients dump_state
        {Z}.offload_optimizer.pin_memory {Z}.offload_param.pin_memory {Z}.offload_optimizer.device
        {Z}.offload_param.device {Z}.*save* {Z}.*gather_16bit* {Z}.elastic_checkpoint {Z}.load_from_fp32_weights
        zero_allow_untested_optimizer zero_force_ds_cpu_optimizer flops_profiler tensorboard csv_monitor wandb
        comms_logger autotuning memory_breakdown checkpoint aio
        data_types.none monitor_config seed train_steps""",
    not_modelled={
        f"{Z}.*bucket* {Z}.*prefetch*": "a buffer size, for which napkin uses the default",
        f"{Z}.*max_live_parameters {Z}.*max_reuse_distance": "limit on gathered parameters",
        f"{Z}.*persistence_threshold {Z}.*sub_group_size": "persistent parameters and sub-groups of the step",
        f"{Z}.overlap_comm {Z}.contiguous_gradients {Z}.reduce_scatter {Z}.allgather_partitions "
        f"{Z}.round_robin*": "gradient reduction",
        f"{Z}.zero_hpz_partition_size {Z}.zero_quantized* {Z}.mics*": "ZeRO++ and MiCS",
        f"{Z}.offload_optimizer {Z}.offload_param": "host memory settings",
        "communication_data_type data_types": "gradient accumulation dtype",
        "activation_checkpointing": "storage of activation checkpoints",
        "sparse_attention sparse_gradients compression_training": "another computation",
        "pipeline hybrid_engine data_efficiency": "another computation",
    },
)

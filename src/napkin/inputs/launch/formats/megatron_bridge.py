"""Megatron-Bridge's overrides of a Python recipe; omitted settings are the recipe's."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.megatron.graphs import take_graphs
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, whole

BLOCKS = """train model optimizer scheduler dataset logger tokenizer checkpoint dist ddp ft straggler nvrx_straggler rng
    rerun_state_machine mixed_precision comm_overlap peft profiling validation inprocess_restart tensor_inspect
    optimizer_config_override_provider"""
"""Blocks of ConfigContainer (training/config.py)."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Megatron-Bridge's overrides; one with a block of another name is a program's own."""
    return (
        "train" in source
        and all(key.partition(".")[0] in BLOCKS.split() or "." not in key for key in source.values)
        and source.has_any("train.train_iters", "train.global_batch_size", "train.micro_batch_size")
        and (source.has_any("model", "optimizer", "ddp", "dist", "checkpoint"))
        and "parallelism" not in source
        and not (source.has_any("model_name", "checkpoint_dir", "lora_r", "train.max_tokens", "devices"))
    )


def _recipe(reading: Reading) -> None:
    """Leave the model open, because the recipe sets it; a teacher means distillation."""
    reading.ask("model", "model" if "model" in reading.source else "recipe")
    if "model.teacher" in reading.source:
        reading.derive("task", "distill", "model.teacher")
        reading.omit("model.teacher", "a second, frozen model on the same ranks")
        if "model.kd_config" in reading.source:
            reading.omit("model.kd_config", "distilled outputs")
    elif "peft" in reading.source:
        reading.ask("adapter", "peft")
    elif reading.read("checkpoint.finetune", flag):
        reading.assume("task", "sft", "checkpoint.finetune")
    if reading.find("checkpoint.pretrained_checkpoint") is not None:
        reading.omit("checkpoint.pretrained_checkpoint", "its content decides; a quantized model trains differently")
    tp = reading.value_of("tp")
    on = reading.read("model.sequence_parallel", flag)
    if on is not None and tp:
        reading.derive("sp", bool(on and tp > 1), "model.sequence_parallel", "model.tensor_model_parallel_size")
    for key, stage in (
        ("dist.use_torch_fsdp2", 3),
        ("dist.use_megatron_fsdp", 3),
        ("ddp.use_distributed_optimizer", 1),
    ):
        if reading.read(key, flag):
            reading.put("zero", stage, key)
            break
    core.take_async(reading, "comm_overlap.overlap_moe_expert_parallel_comm")
    core.take_dispatcher(reading, "model.")
    take_graphs(reading, "model.")
    if reading.source.plain("model.recompute_granularity") is not None:
        core.take_recompute(reading, *(f"model.recompute_{name}" for name in core.RECOMPUTE))
    mixed = reading.source.plain("mixed_precision")
    if isinstance(mixed, str):
        reading.ask("precision", "mixed_precision")


FORMAT = LaunchFormat(
    "megatron-bridge",
    "Megatron-Bridge's overrides",
    "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/config.py",
    is_this,
    fixed={"framework": "megatron-core"},
    keys=(
        Key("model.tensor_model_parallel_size", "tp", whole),
        Key("model.pipeline_model_parallel_size", "pp", whole),
        Key("model.context_parallel_size", "cp", whole),
        Key("model.expert_model_parallel_size", "ep", whole),
        Key("model.expert_tensor_parallel_size", "etp", whole),
        Key("model.virtual_pipeline_model_parallel_size", "vp", whole, silent=True),
        Key("model.seq_length|dataset.seq_length", "seq", whole),
        Key("train.micro_batch_size", "micro-batch", whole),
        Key("train.global_batch_size", "global-batch", whole),
        Key("train.train_iters", "steps", whole),
    ),
    rules=(
        KeyRule(
            "model.teacher checkpoint.finetune peft model.sequence_parallel dist.use_torch_fsdp2 "
            "dist.use_megatron_fsdp "
            "ddp.use_distributed_optimizer model.recompute_granularity model.recompute_method "
            "model.recompute_num_layers model.recompute_modules comm_overlap.overlap_moe_expert_parallel_comm "
            "model.moe_token_dispatcher_type model.moe_flex_dispatcher_backend "
            "model.cuda_graph_impl model.cuda_graph_scope model.cuda_graph_modules",
            "model task sp zero recompute async-ep dispatcher graphs",
            "omitted settings are the recipe's",
            _recipe,
        ),
    ),
    ignored="""optimizer scheduler logger rng dataset checkpoint tokenizer validation train.eval_iters
        train.eval_interval train.exit_* train.manual_gc* profiling dist.use_megatron_fsdp dist.use_torch_fsdp2 ft
        nvrx_straggler straggler dist.distributed_timeout_minutes""",
    not_modelled={
        "ddp": "gradient reduction",
        "comm_overlap": "overlap of communication and computation",
        "model": "model settings",
        "peft": "adapters of the recipe",
        "mixed_precision": "the recipe's precision",
        "train.*": "run settings",
    },
)

"""Megatron-Bridge's overrides of a Python recipe; omitted settings are the recipe's."""

from __future__ import annotations

import re

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.formats.nemo import take_core_targets
from napkin.inputs.launch.formats.nemo_recipe import SIZES
from napkin.inputs.launch.megatron import core
from napkin.inputs.launch.megatron.graphs import take_graphs
from napkin.inputs.launch.names import MEGATRON
from napkin.inputs.launch.python.recipe_names import preset_of_recipe
from napkin.inputs.launch.python.recipes import ARGS, RECIPE, TARGET
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, whole

BLOCKS = """train model optimizer scheduler dataset logger tokenizer checkpoint dist ddp ft straggler nvrx_straggler rng
    rerun_state_machine mixed_precision comm_overlap peft profiling validation inprocess_restart tensor_inspect
    optimizer_config_override_provider"""
"""Blocks of ConfigContainer (training/config.py)."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is Megatron-Bridge's overrides, or a recipe in Python; one with a block of another name is
    a program's own."""
    if source.syntax == "python" and RECIPE in source:
        return True
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
    if reading.source.syntax == "python":
        _take_python(reading)
    else:
        reading.ask("model", "model" if "model" in reading.source else "recipe")
    if "model.teacher" in reading.source:
        reading.derive("task", "distill", "model.teacher")
        reading.omit("model.teacher", "a second, frozen model on the same ranks")
        if "model.kd_config" in reading.source:
            reading.omit("model.kd_config", "distilled outputs")
    elif "peft" in reading.source:
        _take_adapter(reading)
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
    core.take_overlap(reading, "ddp.")
    core.take_async(reading, "comm_overlap.overlap_moe_expert_parallel_comm")
    core.take_dispatcher(reading, "model.")
    core.take_predictions(reading, "model.mtp_num_layers")
    take_graphs(reading, "model.")
    if reading.source.plain("model.recompute_granularity") is not None:
        core.take_recompute(reading, *(f"model.recompute_{name}" for name in core.RECOMPUTE))
    mixed = reading.source.plain("mixed_precision")
    if mixed == "bf16_mixed":
        reading.put("precision", MEGATRON, "mixed_precision")
    elif (
        isinstance(mixed, str)
        or "mixed_precision" in reading.source
        or (reading.source.syntax == "python" and reading.source.unread)
    ):
        reading.ask("precision", "mixed_precision")
    elif reading.source.syntax == "python" and not re.search("fp8|fp4|mx", str(reading.source.plain(RECIPE))):
        reading.default("precision", MEGATRON, "mixed_precision")


def _take_python(reading: Reading) -> None:
    """Read what a recipe in Python states: the model, and the task by what it begins with or by its name."""
    target, args = str(reading.source.plain(f"model.{TARGET}") or ""), reading.source.plain(f"model.{ARGS}")
    word = str(reading.source.plain(RECIPE) or "")
    own = next((one for one in (f"model.{ARGS}", f"model.{TARGET}", "model") if one in reading.source.values), None)
    key = own or RECIPE
    text = str(args[0]) if isinstance(args, list) and args else target if own else word
    name = preset_of_recipe(text)
    reading.put("model", name, key) if name else reading.ask("model", key, given=text)
    for size in SIZES:
        if reading.source.plain(f"model.{size}") is not None:
            reading.refuse(f"model.{size}", "sizes the model, which is no longer the recipe's", "model")
    task = next((one for part, one in NAMED.items() if f"_{part}" in word), None)
    reading.derive("task", task, RECIPE) if task else reading.ask("task", RECIPE)
    reading.ask("gpus", "nproc_per_node")
    for degree in ("tp", "pp", "cp"):
        if degree not in reading.inputs:
            reading.ask(degree, RECIPE)
    for option, names in (("micro-batch", "train.micro_batch_size"), ("global-batch", "train.global_batch_size"),
                          ("seq", "model.seq_length"), ("steps", "train.train_iters")):  # fmt: skip
        if option not in reading.inputs:
            reading.ask(option, names)
    if ("_peft" in word or "_lora" in word) and "peft" not in reading.source:
        reading.default("adapter", "lora", "peft")
        reading.ask("lora-rank", "peft.dim")
    reading.default("optimizer", "adamw", "optimizer.optimizer")
    if reading.source.plain("ddp.use_distributed_optimizer") is None:
        reading.default("zero", 1, "ddp.use_distributed_optimizer")
    reading.told(RECIPE, f"model.{TARGET}", f"model.{ARGS}")


NAMED = {"pretrain": "pretrain", "sft": "sft", "peft": "sft", "lora": "sft", "finetune": "sft", "dpo": "dpo"}
"""Parts of the names of recipes → the task."""


def _take_adapter(reading: Reading) -> None:
    """Read LoRA or DoRA from the scheme that a recipe in Python chooses; other adapters are open."""
    args = reading.source.plain(f"peft.{ARGS}")
    scheme = str(args[0] if isinstance(args, list) and args else reading.source.plain(f"peft.{TARGET}") or "").lower()
    kind = next((one for one in ("dora", "lora") if one in scheme), None)
    if kind is None:
        reading.ask("adapter", "peft")
        return
    reading.put("adapter", kind, f"peft.{ARGS if args else TARGET}")
    if reading.take("lora-rank", "peft.dim", whole) is None:
        reading.default("lora-rank", 32, "peft.dim")
    if "peft.target_modules" in reading.source:
        take_core_targets(reading, "peft.target_modules")
    else:
        reading.default("lora-targets", "q,k,v,o,gate,up,down", "peft.target_modules")


FORMAT = LaunchFormat(
    "megatron-bridge",
    "Megatron-Bridge's overrides, and its recipes in Python",
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
            "ddp.overlap_grad_reduce ddp.overlap_param_gather "
            "model.mtp_num_layers model.moe_token_dispatcher_type model.moe_flex_dispatcher_backend "
            f"{RECIPE} model.{TARGET} model.{ARGS} peft.{ARGS} peft.{TARGET} peft.dim peft.target_modules "
            "mixed_precision "
            "model.cuda_graph_impl model.cuda_graph_scope model.cuda_graph_modules",
            "model task sp zero recompute async-dp async-ep dispatcher graphs mtp",
            "omitted settings are the recipe's",
            _recipe,
        ),
    ),
    ignored="""optimizer scheduler logger rng dataset checkpoint tokenizer validation train.eval_iters
        train.eval_interval train.exit_* train.manual_gc* profiling dist.use_megatron_fsdp dist.use_torch_fsdp2 ft
        nvrx_straggler straggler dist.distributed_timeout_minutes model.mtp_loss_scaling_factor""",
    not_modelled={
        "ddp": "gradient reduction",
        "comm_overlap": "overlap of communication and computation",
        "model": "model settings",
        "peft": "adapters of the recipe",
        "mixed_precision": "the recipe's precision",
        "train.*": "run settings",
    },
)

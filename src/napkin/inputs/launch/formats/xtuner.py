"""xtuner's configurations of a run: Python assignments for mmengine, and `xtuner train CONFIG --deepspeed NAME`."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_heads_exchanged, take_launcher
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora, take_saved
from napkin.inputs.launch.names import MASTER, PURE, take_attention, take_model, take_optimizer
from napkin.inputs.launch.precisions import adapters, dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_deepspeed_file
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, whole

LLM = "model.llm"
TASKS = {"SupervisedFinetune": "sft", "DPO": "dpo", "ORPO": "orpo", "RewardModel": "rm"}
"""Classes of xtuner.model → task."""
STAGES = {
    "deepspeed_zero1": (1, ""),
    "deepspeed_zero2": (2, ""),
    "deepspeed_zero2_offload": (2, "optimizer"),
    "deepspeed_zero3": (3, ""),
    "deepspeed_zero3_offload": (3, "optimizer,parameters"),
}
"""Names of the DeepSpeed files that xtuner ships (xtuner/configs/deepspeed) → ZeRO stage and offload."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is xtuner's configuration of a run."""
    return source.has_any(f"{LLM}.type", "model.type") and source.has_any(
        "train_dataloader.batch_size", "optim_wrapper"
    )


def _model(reading: Reading) -> None:
    for one in list(reading.source.values):
        if one.endswith(".type") and "dataset" in str(reading.source.values[one].value).lower():
            reading.ignore(one.removesuffix(".type"))
    reading.told(*[one for one in reading.source.unread if one.startswith(("import ", "from "))])
    kind = str(reading.source.plain("model.type") or "SupervisedFinetune").rsplit(".", 1)[-1]
    if kind not in TASKS:
        reading.refuse("model.type", f"napkin does not know xtuner's model class {kind[:40]!r}", "task")
    else:
        state = reading.assume if kind == "SupervisedFinetune" else reading.derive  # pretraining uses it too
        state("task", TASKS[kind], "model.type")
        take_model(reading, f"{LLM}.pretrained_model_name_or_path", "pretrained_model_name_or_path")
    if "model" not in reading.inputs:
        reading.ask("model", f"{LLM}.pretrained_model_name_or_path")


def _length(reading: Reading) -> None:
    """Read sequence length, packing, and sequence parallelism, over which accumulation is spread."""
    reading.take("seq", "max_length", whole)
    if reading.read("pack_to_max_length", flag) is not None:
        reading.put("packing", reading.read("pack_to_max_length", flag), "pack_to_max_length")
    degree = reading.read("sequence_parallel_size", whole)
    if degree and degree > 1:
        take_heads_exchanged(reading, "sequence_parallel_size")


def _amount(reading: Reading) -> None:
    steps = reading.read("train_cfg.max_iters|max_iters", whole)
    if steps:
        reading.put("steps", steps, reading.named("train_cfg.max_iters", "max_iters"))
    else:
        reading.take("epochs", "train_cfg.max_epochs|max_epochs", whole)


def _layout(reading: Reading) -> None:
    """Read the launch line's GPUs and DeepSpeed file. The configuration has neither."""
    take_launcher(reading)
    name = str(reading.source.plain("deepspeed") or "")
    if name in STAGES:
        stage, away = STAGES[name]
        reading.derive("framework", "deepspeed", "deepspeed")
        reading.put("zero", stage, "deepspeed")
        if away:
            reading.put("offload", away, "deepspeed")
    elif not take_deepspeed_file(reading) and not reading.source.parts:
        reading.omit("xtuner train --deepspeed", "the launch line sets the ZeRO stage and the GPU count")


def _adapter(reading: Reading) -> None:
    """Read LoRA, by default of rank 8 on every linear layer but the head (find_all_linear_names)."""
    if "model.lora" not in reading.source:
        return
    kind = str(reading.source.plain("model.lora.type") or "LoraConfig")
    if kind != "LoraConfig":
        reading.refuse("model.lora.type", f"napkin does not support adapter {kind[:40]!r}", "adapter")
        return
    take_lora(reading, "model.lora.r", "model.lora.target_modules", 8, "all")
    take_adapter_dropout(reading, "model.lora.lora_dropout")
    take_saved(reading, "model.lora.modules_to_save")
    reading.switch("adapter", "dora", "model.lora.use_dora")
    block = f"{LLM}.quantization_config"
    if reading.read(f"{block}.load_in_4bit", flag):
        kind = str(reading.source.plain(f"{block}.bnb_4bit_quant_type") or "fp4")
        double = reading.read(f"{block}.bnb_4bit_use_double_quant", flag)
        reading.put("quantized", ("nf4-dq" if double else "nf4") if kind == "nf4" else "int4", f"{block}.load_in_4bit")
        reading.told(f"{block}.bnb_4bit_quant_type", f"{block}.bnb_4bit_use_double_quant")
    elif reading.read(f"{block}.load_in_8bit|{LLM}.load_in_8bit", flag):
        reading.put("quantized", "int8", reading.named(f"{block}.load_in_8bit", f"{LLM}.load_in_8bit"))


def _precision(reading: Reading) -> None:
    """Read the precision: bf16 on GPUs that support it (_prepare_for_flash_attn, auto_dtype_of_deepspeed_config).

    Without DeepSpeed peft widens every frozen weight that is not quantized (prepare_model_for_kbit_training).
    """
    deep = reading.value_of("framework") == "deepspeed"
    loaded = reading.read(f"{LLM}.torch_dtype", dtype)
    keys = [one for one in (f"{LLM}.torch_dtype", "optim_wrapper.dtype") if one in reading.source] or ["optim_wrapper"]
    autocast = reading.read("optim_wrapper.dtype", dtype) or "fp16"
    if reading.value_of("adapter"):
        narrow = "bf16" if deep else autocast
        policy = adapters(reading.value_of("quantized") or "fp32", "fp32", narrow, deep)
    elif deep:
        policy = MASTER
    elif loaded == "fp32":
        policy = f"param=fp32,grad=fp32,compute={autocast},state=fp32"
    else:
        policy = PURE
    reading.assume("precision", policy, *keys)


def _others(reading: Reading) -> None:
    take_optimizer(reading, *[one for one in ("optim_wrapper.optimizer.type", "optim_type") if one in reading.source])
    reading.default("optimizer", "adamw", "optim_wrapper.optimizer.type")
    again = reading.read("model.use_activation_checkpointing", flag)
    key = "model.use_activation_checkpointing"
    if again is None:
        reading.default("recompute", "full", key)
    else:
        reading.put("recompute", "full" if again else "none", key)
    take_attention(reading, f"{LLM}.attn_implementation")
    reading.default("attention", "flash", f"{LLM}.attn_implementation")


FORMAT = LaunchFormat(
    "xtuner",
    "xtuner's configuration",
    "InternLM/xtuner xtuner/model/{sft,utils}.py, xtuner/tools/train.py, xtuner/configs/deepspeed",
    is_this,
    keys=(
        Key("train_dataloader.batch_size|batch_size", "micro-batch", whole, 1),
        Key("optim_wrapper.accumulative_counts|accumulative_counts", "grad-accum", whole, 1),
    ),
    rules=(
        KeyRule(f"model.type {LLM}.pretrained_model_name_or_path", "model task", "the model's class", _model),
        KeyRule("max_length pack_to_max_length sequence_parallel_size", "seq packing cp", "of one sample", _length),
        KeyRule("train_cfg.max_epochs train_cfg.max_iters", "epochs steps", "as they are", _amount),
        KeyRule("deepspeed", "framework zero offload gpus", "from the launch line: a shipped name or a file", _layout),
        KeyRule(
            f"model.lora.r model.lora.target_modules model.lora.lora_dropout model.lora.modules_to_save "
            f"{LLM}.quantization_config.load_in_4bit {LLM}.quantization_config.load_in_8bit {LLM}.load_in_8bit",
            "adapter lora-rank lora-targets lora-dropout modules-to-save quantized",
            "LoRA on every linear layer but the head",
            _adapter,
        ),
        KeyRule(f"{LLM}.torch_dtype optim_wrapper.dtype", "precision", "bf16 where the GPU has it", _precision),
        KeyRule(
            "optim_wrapper.optimizer.type model.use_activation_checkpointing",
            "optimizer recompute attention",
            "recomputes by default",
            _others,
        ),
    ),
    ignored="""work_dir optim_wrapper param_scheduler train_cfg custom_hooks default_hooks env_cfg visualizer
        log_processor randomness tokenizer train_dataset train_dataloader sampler dataloader_num_workers
        max_norm betas prompt_template save_total_limit evaluation_freq evaluation_inputs SYSTEM
        data_files data_path optim_type max_epochs warmup_ratio warm_up_ratio launcher model.lora.bias
        model.lora.task_type model.lora.lora_alpha model.lora.type model.llm.type
        model.llm.trust_remote_code *_path pretrained_model_name_or_path m""",
    not_modelled={
        "use_varlen_attn model.use_varlen_attn": "attention within samples of a pack",
        f"{LLM}.quantization_config": "quantization settings",
        f"{LLM}": "loading of the model",
        "model": "model settings",
    },
)

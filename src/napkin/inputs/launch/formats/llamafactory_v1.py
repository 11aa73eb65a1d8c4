"""LLaMA-Factory's v1 configuration: FSDP2 or DeepSpeed by plugins (`llamafactory-cli sft config.yaml`)."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora, take_saved
from napkin.inputs.launch.names import AUTOCAST, MASTER, take_attention, take_model
from napkin.inputs.launch.precisions import adapters
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_amount, take_deepspeed_file
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, natural, whole

P, Q, D = "peft_config", "quant_config", "dist_config"


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is a configuration of LLaMA-Factory's v1."""
    named = source.has_any("model_class", "kernel_config", D) and "model" in source
    return source.is_mapping and named and source.has_any("train_dataset", "micro_batch_size", "output_dir")


def _task(reading: Reading) -> None:
    """Assume supervised fine-tuning: the command tells the task (launcher.py: sft, dpo, rm), and so does pref_loss."""
    if "pref_loss" in reading.source or str(reading.source.plain("model_class")) == "cls":
        reading.ask("task", *[key for key in ("pref_loss", "model_class") if key in reading.source])
    else:
        reading.assume("task", "sft", "train_dataset")


def _layout(reading: Reading) -> None:
    """Read the backend: FSDP2, DeepSpeed's file, or plain data parallelism (core/base_trainer.py, _shard_model)."""
    name = str(reading.source.plain(f"{D}.name") or "").lower()
    if name == "fsdp2":
        reading.derive("framework", "fsdp", f"{D}.name")
        again = reading.read(f"{D}.reshard_after_forward", flag)
        reading.put("zero", 2 if again is False else 3, f"{D}.name", f"{D}.reshard_after_forward", origin="derived")
        reading.switch("offload", "optimizer,parameters", f"{D}.offload_params")
    elif name == "deepspeed":
        if not take_deepspeed_file(reading, f"{D}.config_file"):
            reading.ask("zero", f"{D}.config_file")
        reading.told(f"{D}.name")
    elif name:
        reading.ask("zero", f"{D}.name")
        reading.refuse(f"{D}.name", f"napkin does not know the backend {name[:40]!r}", "zero")
    else:
        reading.default("zero", 0, f"{D}.name")
    reading.take("cp", "cp_size", whole)
    reading.take("dp-shard", "mp_shard_size", whole)


def _batch(reading: Reading) -> None:
    """Read the batch; the global batch defaults to one micro-batch of each rank (core/utils/batching.py)."""
    if reading.find("global_batch_size") is not None:
        reading.take("global-batch", "global_batch_size", whole)
    else:
        reading.default("grad-accum", 1, "global_batch_size")
    strategy = str(reading.source.plain("batching_strategy") or "normal").lower()
    if strategy.startswith("dynamic"):  # as many samples as fill the tokens of a micro-batch
        reading.ask("micro-batch", "batching_strategy", "micro_batch_size")
    elif strategy != "normal":
        reading.omit("batching_strategy", "padding-free batches")


def _adapter(reading: Reading) -> None:
    """Read the adapter and the frozen weights (plugins/model_plugins/{peft,quantization}.py)."""
    kind = str(reading.source.plain(f"{P}.name") or "").lower()
    if kind == "lora":
        take_lora(reading, f"{P}.r", f"{P}.target_modules", 8, "all")
        take_adapter_dropout(reading, f"{P}.lora_dropout", 0.05)
        take_saved(reading, f"{P}.modules_to_save")
        reading.switch("adapter", "dora", f"{P}.use_dora")
        reading.told(f"{P}.name")
    elif kind:
        reading.refuse(f"{P}.name", f"napkin does not support {kind[:40]!r}", "freeze-layers")
    if not reading.source.states(Q):
        return
    bits = reading.read(f"{Q}.quantization_bit", natural)
    double = reading.read(f"{Q}.double_quantization", flag) is not False
    if str(reading.source.plain(f"{Q}.quantization_type") or "nf4").lower() != "nf4":
        reading.ask("quantized", f"{Q}.quantization_type")
    elif bits in (None, 4, 8):
        reading.derive("quantized", "int8" if bits == 8 else "nf4-dq" if double else "nf4", f"{Q}.quantization_bit")
    else:
        reading.refuse(f"{Q}.quantization_bit", f"napkin does not support {bits} bits", "quantized")


def _precision(reading: Reading) -> None:
    """Read the precision: full training widens weights to fp32 (core/model_engine.py), FSDP2 computes in bf16."""
    wide = reading.read("bf16", flag) is False
    deepspeed = reading.value_of("framework") == "deepspeed"
    state = reading.derive if "bf16" in reading.source else reading.default
    if deepspeed and "precision" in reading.inputs:
        return
    if reading.value_of("adapter"):
        held = reading.value_of("quantized") or "bf16"
        reading.assume("precision", adapters(held, "fp32", "fp32" if wide else "bf16", deepspeed), "bf16", P)
    elif wide:
        reading.put("precision", "fp32", "bf16")
    elif deepspeed:
        reading.assume("precision", MASTER, f"{D}.config_file")
    else:
        state("precision", AUTOCAST, "bf16")


def _others(reading: Reading) -> None:
    """Read recomputation, attention, optimizer and kernels; the loss is torch's (core/base_trainer.py)."""
    reading.take("recompute", "enable_activation_checkpointing", either("full", "none"), default="full")
    take_attention(reading, "flash_attn")
    reading.default("attention", "flash", "flash_attn")
    optimizer = str(reading.source.plain("optim_config.name") or "").lower()
    if optimizer == "muon":
        reading.put("optimizer", "muon", "optim_config.name")
    elif optimizer:
        reading.ask("optimizer", "optim_config.name")
    reading.default("optimizer", "adamw", "optim_config.name")
    if str(reading.source.plain("kernel_config.name") or "").lower() == "liger_kernel":
        reading.put("kernels", "liger", "kernel_config.name")
    elif "kernel_config.name" in reading.source:
        reading.omit("kernel_config.name", "choice of kernels")
    reading.default("loss", "torch", "kernel_config")


FORMAT = LaunchFormat(
    "llama-factory-v1",
    "LLaMA-Factory's v1 configuration",
    "hiyouga/LLaMA-Factory src/llamafactory/v1/{config,core,plugins}",
    is_this,
    fixed={"trainer": "llama-factory"},
    keys=(Key("micro_batch_size", "micro-batch", whole, 1), Key("cutoff_len", "seq", whole, 2048)),
    rules=(
        KeyRule("model", "model", "a preset's name; for a fine-tune, give MODEL", lambda one: take_model(one, "model")),
        KeyRule("model_class pref_loss train_dataset", "task", "the command tells it; sft is assumed", _task),
        KeyRule(
            "max_steps num_train_epochs",
            "steps epochs",
            "max_steps wins; 3 epochs",
            lambda one: take_amount(one, "num_train_epochs", 3),
        ),
        KeyRule(
            f"{D}.name {D}.reshard_after_forward {D}.offload_params {D}.config_file cp_size mp_shard_size",
            "framework zero offload cp dp-shard",
            "FSDP2 with full sharding, or DeepSpeed's file",
            _layout,
        ),
        KeyRule(
            "global_batch_size batching_strategy",
            "global-batch grad-accum micro-batch",
            "a global batch of one micro-batch on each rank; dynamic strategies leave the micro-batch open",
            _batch,
        ),
        KeyRule(
            f"{P}.name {P}.r {P}.target_modules {P}.lora_dropout {P}.modules_to_save {P}.use_dora {Q}.quantization_bit "
            f"{Q}.double_quantization {Q}.quantization_type",
            "adapter lora-rank lora-targets lora-dropout modules-to-save quantized",
            "LoRA of rank 8 on all linear layers; 4-bit is nf4 with double quantization",
            _adapter,
        ),
        KeyRule("bf16", "precision", "fp32 weights and bf16 compute; adapters over weights as stored", _precision),
        KeyRule(
            "enable_activation_checkpointing flash_attn optim_config.name kernel_config.name",
            "recompute attention optimizer kernels loss",
            "full recomputation, sdpa, AdamW",
            _others,
        ),
    ),
    ignored=f"""custom_chat_template trust_remote_code init_config {P}.lora_alpha {P}.use_rslora {P}.export_*
        {P}.infer_dtype {Q}.name {Q}.compute_dtype {D}.dcp_path {D}.pin_memory dist_timeout lr_scheduler_config
        optim_config sample_backend max_new_tokens batching_workers save_ckpt_as_hf""",
    not_modelled={
        D: "settings of the distributed backend",
        "kernel_config": "choice of kernels",
        "cp_mode mp_replicate_size dp_size": "arrangement of ranks",
        "pref_*": "post-training settings",
    },
)

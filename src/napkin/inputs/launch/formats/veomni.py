"""VeOmni's YAML, with its settings in blocks, or flat as in 2025."""

from __future__ import annotations

from napkin.inputs.launch.checks import take_heads_exchanged
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.lora import take_adapter_dropout, take_lora, take_ranks
from napkin.inputs.launch.names import AUTOCAST, FP32, PURE, take_attention, take_model, take_optimizer
from napkin.inputs.launch.precisions import adapters, fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, product, whole, word

A, D = "train.accelerator", "train.accelerator.fsdp_config"
MODE = f"{D}.fsdp_mode|train.data_parallel_mode"
SHARDS = f"{A}.dp_shard_size|train.data_parallel_shard_size"
COPIES = f"{A}.dp_replicate_size|train.data_parallel_replicate_size"
ULYSSES = f"{A}.ulysses_size|train.ulysses_parallel_size"
EXPERTS = f"{A}.ep_size|train.expert_parallel_size"
OTHERS = (
    *(f"{A}.{one}_size" for one in ("tp", "pp", "cp")),
    *(f"train.{one}_parallel_size" for one in ("tensor", "pipeline", "context")),
)
"""Degrees other than 1 are an error in VeOmni (arguments_types.py, _validate_accelerator)."""
AGAIN = "train.gradient_checkpointing.enable|train.enable_gradient_checkpointing"
MIXED = f"{D}.mixed_precision.enable|train.enable_mixed_precision"
RESHARD = f"{D}.reshard_after_forward|train.enable_full_shard"
HOST = f"{D}.offload|train.enable_fsdp_offload"
SAVED = f"{A}.offload_config.enable_activation|{A}.offload.enable_activation|train.enable_activation_offload"
OPTIMIZER = "train.optimizer.type|train.optimizer"
COMPILE = "train.torch_compile.enable|train.enable_compile"
KERNEL = "model.ops_implementation.attn_implementation|model.attn_implementation"
LOSS = "model.ops_implementation.cross_entropy_loss_implementation"
NARROW = f"{D}.mixed_precision.param_dtype"
LORA = "model.lora_config"
TASKS = {"plaintext": "pretrain", "conversation": "sft", "dpo": "dpo"}
FLAT = (
    "train.data_parallel_mode", "train.ulysses_parallel_size", "train.enable_mixed_precision",
    "train.enable_full_shard",
)  # fmt: skip
"""Keys until the end of 2025, when the default was DDP."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is VeOmni's configuration of training."""
    return source.has_all("model", "data", "train") and source.has_any(A, *FLAT, "data.dyn_bsz_buffer_size")


def _task(reading: Reading) -> None:
    take_model(reading, "model.model_path", "model.config_path")
    key = "data.data_type"
    kind = reading.read(key, word(TASKS, lambda _: None))
    if kind:
        reading.put("task", kind, key)
    elif reading.find(key) is not None:
        reading.ask("task", key)
        reading.refuse(key, f"napkin does not model training on {str(reading.source.plain(key))[:40]!r}", "task")
    reading.default("task", "sft", key)
    if reading.value_of("task") == "dpo":
        free = "dpo_config.reference_free"
        if reading.read(free, flag):
            reading.put("reference", "none", free)
        else:
            reading.default("reference", "same", free)


def _layout(reading: Reading) -> None:
    """Read the degrees; a shard size of -1 is what the others leave, and data-parallel ranks hold Ulysses' apart."""
    for key in OTHERS:
        if (reading.read(key, whole) or 1) > 1:
            reading.refuse(key, "VeOmni accepts 1 only")
        elif key in reading.source:
            reading.told(key)
    take_heads_exchanged(reading, ULYSSES)
    reading.take("ep", EXPERTS, whole)
    shards, copies = (reading.read(keys, whole) for keys in (SHARDS, COPIES))
    stated = [reading.named(*keys.split("|")) for keys in (SHARDS, COPIES, ULYSSES)]
    present = [key for key in stated if key in reading.source]
    if shards and copies:
        reading.derive("gpus", product([shards, copies, reading.value_of("cp") or 1]), *present)
    else:
        reading.ask("gpus", *(present or stated[:1]))
    if copies and copies > 1:
        reading.put("dp-shard", shards, stated[0]) if shards else reading.ask("dp-shard", stated[1])
    _sharding(reading)


def _sharding(reading: Reading) -> None:
    """Read FSDP's sharding and what is offloaded."""
    mode = reading.read(MODE, word({one: one for one in ("ddp", "fsdp1", "fsdp2")}))
    usual = "ddp" if reading.source.has_any(*FLAT) else "fsdp2"
    key, again = reading.named(*MODE.split("|")), reading.named(*RESHARD.split("|"))
    if (mode or usual) == "ddp":
        reading.put("zero", 0, key) if mode else reading.default("zero", 0, key)
        return
    reading.derive("framework", "fsdp", key)
    kept = reading.read(RESHARD, flag) is False
    if again in reading.source:
        reading.put("zero", 2 if kept else 3, again)
    else:
        reading.default("zero", 3, again)
    away = {"optimizer,parameters": HOST, "activations": SAVED}
    moved = {what: keys for what, keys in away.items() if reading.read(keys, flag)}
    if moved:
        reading.put("offload", ",".join(moved), *(reading.named(*keys.split("|")) for keys in moved.values()))


def _batch(reading: Reading) -> None:
    """Read the batch: with dyn_bsz, the default, rows of max_seq_len tokens are filled with samples."""
    reading.take("global-batch", "train.global_batch_size", whole)
    if "global-batch" not in reading.inputs:
        reading.default("grad-accum", 1, "train.global_batch_size")
    dynamic = "train.dyn_bsz"
    found = reading.read(dynamic, flag)
    reading.put("packing", found, dynamic) if found is not None else reading.default("packing", True, dynamic)
    most, times = "train.max_steps", "train.num_train_epochs"
    steps, epochs = reading.read(most, whole), reading.read(times, whole)
    if steps:  # of each epoch
        reading.derive("steps", steps * (epochs or 1), *[key for key in (most, times) if key in reading.source])
    else:
        reading.take("epochs", times, whole, default=1)


def _precision(reading: Reading) -> None:
    """Read LoRA and the precision: under mixed precision weights are loaded in fp32, else in bf16 (trainer/base.py)."""
    mixed = reading.read(MIXED, flag) is not False
    narrow = (reading.read(NARROW, fixed_dtype) or "bf16") if mixed else "bf16"
    held = "fp32" if mixed else "bf16"
    policy = {("fp32", "bf16"): AUTOCAST, ("fp32", "fp32"): FP32, ("bf16", "bf16"): PURE}.get((held, narrow))
    if reading.source.states(LORA):
        take_lora(reading, f"{LORA}.rank|{LORA}.r", f"{LORA}.lora_modules|{LORA}.target_modules", 8, None)
        take_adapter_dropout(reading, f"{LORA}.lora_dropout")
        take_ranks(reading, f"{LORA}.rank_pattern")
        policy = adapters(held, held, narrow)
    key, kind = reading.named(*MIXED.split("|")), NARROW
    stated = [one for one in (key, kind) if one in reading.source]
    policy = policy or f"param={held},grad={held},compute={narrow},state={held}"
    reading.derive("precision", policy, *stated) if stated else reading.default("precision", policy, key)


def _others(reading: Reading) -> None:
    reading.take("recompute", AGAIN, either("full", "none"), default="full")
    take_attention(reading, *KERNEL.split("|"))
    reading.default("attention", "flash", KERNEL.partition("|")[0])
    optimizer = reading.named(*OPTIMIZER.split("|"))
    if optimizer == "train.optimizer" and "train.optimizer.lr" in reading.source:
        optimizer = "train.optimizer.type"
    take_optimizer(reading, optimizer)
    reading.default("optimizer", "adamw", optimizer)
    reading.take("compile", COMPILE, flag)
    kind = reading.read(LOSS, word({"eager": "", "liger_kernel": "fused"}, lambda _: None))
    if kind:
        reading.put("loss", kind, LOSS)
    elif LOSS not in reading.source and not reading.source.has_any(*FLAT) and reading.value_of("task") != "dpo":
        reading.default("loss", "fused", LOSS)


def _keys(*spellings: str) -> str:
    return " ".join(one for names in spellings for one in names.split("|"))


FORMAT = LaunchFormat(
    "veomni",
    "VeOmni's YAML",
    "ByteDance-Seed/VeOmni veomni/arguments/arguments_types.py, veomni/trainer/base.py, veomni/lora/config.py",
    is_this,
    keys=(
        Key("train.micro_batch_size", "micro-batch", whole, 1),
        Key("data.max_seq_len", "seq", whole, 2048),
    ),
    rules=(
        KeyRule(
            "model.model_path model.config_path data.data_type dpo_config.reference_free",
            "model task reference",
            "plaintext is pre-training, conversation fine-tuning",
            _task,
        ),
        KeyRule(
            _keys(SHARDS, COPIES, ULYSSES, EXPERTS, MODE, RESHARD, HOST, SAVED),
            "gpus dp-shard cp ulysses ep framework zero offload",
            "FSDP2; a shard size of -1 is what the others leave",
            _layout,
        ),
        KeyRule(
            "train.global_batch_size train.dyn_bsz train.max_steps train.num_train_epochs",
            "global-batch grad-accum packing steps epochs",
            "rows of max_seq_len tokens are filled; max_steps counts those of an epoch",
            _batch,
        ),
        KeyRule(
            f"{_keys(MIXED)} {NARROW} {LORA}.rank {LORA}.r {LORA}.lora_modules {LORA}.target_modules "
            f"{LORA}.lora_dropout {LORA}.rank_pattern",
            "precision adapter lora-rank lora-targets lora-dropout",
            "fp32 shards, bf16 compute",
            _precision,
        ),
        KeyRule(
            f"{_keys(AGAIN, KERNEL, OPTIMIZER, COMPILE)} {LOSS}",
            "recompute attention optimizer compile loss",
            "recomputes by default, with Liger's loss",
            _others,
        ),
    ),
    ignored=f"""model.tokenizer_path model.processor_path data.train_path data.eval_path data.train_size data.text_keys
        data.dataloader data.dataloader_type data.datasets_type data.chat_template data.dyn_bsz_buffer_size
        data.source_name data.num_workers data.drop_last data.enable_multisource
        data.multisource_datasets_type data.prefetch_factor data.pin_memory data.train_sample data.shuffle
        data.data_tag train.optimizer train.checkpoint train.wandb train.profile train.channel_loss
        train.lr* train.weight_decay train.max_grad_norm train.output_dir train.use_wandb train.wandb_*
        train.ckpt_manager train.save_* train.load_* train.init_device train.seed
        train.enable_full_determinism train.empty_cache_steps train.gc_steps train.bsz_warmup_*
        train.dyn_bsz_* train.enable_profiling train.profile_* train.beta* train.no_decay_*
        train.broadcast_model_weights_from_rank0 train.hf_save_* train.eval_*
        train.gradient_checkpointing.enable_reentrant train.gradient_checkpointing.debug
        train.enable_reentrant train.moe_load_balance_monitor_interval train.chunk_mbs_config.chunk_mbs
        {LORA}.alpha {LORA}.use_rslora {LORA}.is_trainable {LORA}.lora_adapter dpo_config.beta
        dpo_config.label_smoothing dpo_config.loss_type""",
    not_modelled={
        "model.ops_implementation model.moe_implementation": "choice of kernels",
        f"{LORA}": "adapter settings",
        "data.mm_configs train.freeze_* train.vit_lr": "settings of other towers",
        f"{D}": "FSDP wrapping and reduction",
        f"{A}": "placement and overlap of ranks",
        "train.pad_to_length train.rmpad train.rmpad_with_pos_ids": "padding of rows",
        "train.enable_forward_prefetch train.activation_gpu_limit": "FSDP wrapping and reduction",
        "train.torch_compile": "compilation settings",
        "dpo_config": "execution of the reference",
        "model.encoders model.decoders model.foundation": "settings of other towers",
    },
    refused={
        "model.condition_model_path": "a diffusion model",
        f"{LORA}.share_expert_lora": "one adapter serves all experts of a layer",
        "train.chunk_mbs_config.enable": "each layer runs a few samples of a row at a time",
        f"{A}.extra_parallel_sizes": "parallel degrees of a project's own",
    },
)

"""LLM Foundry's YAML."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat, apply, open_reading
from napkin.inputs.launch.lora import take_adapter_dropout
from napkin.inputs.launch.names import take_model, take_optimizer, take_targets
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.remaining import finish
from napkin.inputs.launch.shared import SHARDING, take_duration
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, number, whole, word

F = "fsdp_config"
MPT = ("mpt_causal_lm", "mosaic_gpt")
"""model.name of the class that sizes describe; the second until April 2023."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is LLM Foundry's YAML."""
    inner = inner_of(source)
    return (
        inner.has_any("device_train_microbatch_size", "device_train_batch_size", "global_train_batch_size")
        and ("model.name" in inner or F in inner or "max_duration" in inner)
        and "model.d_model_olmo" not in inner
        and not ("model.d_model" in inner and "model.name" not in inner)
    )


def inner_of(source: LaunchFile) -> LaunchFile:
    """Return the training YAML; a job file holds it under `parameters`."""
    return source.under("parameters") if "parameters.model.name" in source else source


def _model(reading: Reading) -> None:
    """Read the model: one that is named, or MPT's own class with its dimensions."""
    named = next(
        (
            key
            for key in ("model.pretrained_model_name_or_path", "variables.model_name_or_path")
            if reading.find(key) is not None
        ),
        None,
    )
    if named:
        take_model(reading, named)
        overrides = list(reading.source.inside("model.config_overrides"))
        for key in overrides:
            if reading.source.plain(key) not in (None, {}):
                _override(reading, key)
        return
    kind = str(reading.source.plain("model.name") or MPT[0])
    block = next((key for key in reading.source.inside("model") if key != "model"), "")
    if block and "model.name" not in reading.source and "model.d_model" not in reading.source:
        reading.refuse(block, "the model has no name: napkin does not know its class", "model")
        return
    if kind not in MPT:
        reading.refuse("model.name", f"napkin does not know the model class {kind[:60]!r}", "model")
        return
    _dimensions(reading)


def _dimensions(reading: Reading) -> None:
    """Read the dimensions of MPT's class, as far as the file states them."""
    for name, key in (("layers", "n_layers"), ("hidden", "d_model"), ("heads", "n_heads"), ("vocab", "vocab_size")):
        reading.dimension(name, reading.read(f"model.{key}", whole), f"model.{key}")
    if "layers" not in reading.shape:
        if reading.unsized:
            reading.describe()
        return
    ratio = reading.read("model.expansion_ratio", number) or 4
    hidden = reading.shape.get("hidden")
    size = reading.read("model.ffn_config.ffn_hidden_size", whole)
    if hidden:
        reading.dimension(
            "ffn", size or int(ratio * hidden), "model.expansion_ratio", "model.ffn_config.ffn_hidden_size"
        )
    groups = reading.read("model.attn_config.kv_n_heads", whole)
    kind = str(reading.source.plain("model.attn_config.attn_type") or "")
    heads = reading.shape.get("heads")
    reading.dimension(
        "kv_heads", 1 if kind == "multiquery_attention" else groups or heads, "model.attn_config.kv_n_heads"
    )
    reading.dimension(
        "gated", "glu" in str(reading.source.plain("model.ffn_config.ffn_type") or ""), "model.ffn_config.ffn_type"
    )
    tied = reading.read("model.tie_word_embeddings", flag)
    reading.dimension("tied", tied is not False, "model.tie_word_embeddings")
    if not reading.read("model.attn_config.alibi", flag) and reading.read("model.learned_pos_emb", flag) is not False:
        reading.dimension("positions", reading.read("model.max_seq_len", whole), "model.max_seq_len")
    reading.describe("model.n_layers", "model.d_model", "model.n_heads", "model.vocab_size")
    from napkin.inputs.foreign import translated

    data = reading.source.document.data
    job = data.get("parameters") if isinstance(data, dict) else None
    reading.build(lambda: (translated(job or data, reading.source.name) or (None, ""))[0])


def _override(reading: Reading, key: str) -> None:
    """Read an override of the named model's config: attention kernel or sequence length; refuse any other."""
    part = key.removeprefix("model.config_overrides.")
    kernel = str(reading.source.plain(key))
    if part == "attn_config.attn_impl":
        reading.put("attention", "eager" if kernel == "torch" else "flash", key)
    elif part.startswith("attn_config.") or part in ("max_seq_len", "max_position_embeddings", "n_positions"):
        reading.omit(key, "sequence length limit, or attention variant")
    else:
        reading.refuse(key, "changes the named model", "model")


def _batch(reading: Reading) -> None:
    for key, option in (("device_train_microbatch_size", "micro-batch"), ("global_train_batch_size", "global-batch")):
        if key not in reading.source:
            continue
        found = reading.read(key, whole)
        reading.put(option, found, key) if found else reading.ask(option, key)
    for key in ("max_seq_len", "model.max_seq_len", "train_loader.dataset.max_seq_len"):
        if reading.take("seq", key, whole):
            break


def _amount(reading: Reading) -> None:
    """Read max_duration, in batches (ba), tokens (tok) or epochs (ep, bare: composer/trainer/trainer.py)."""
    units = {"ba": "steps", "iter": "steps", "ep": "epochs", "": "epochs", "tok": "tokens", "sp": "samples"}
    take_duration(reading, "max_duration", units)


def _sharding(reading: Reading) -> None:
    if F not in reading.source:
        return
    reading.derive("framework", "fsdp", F)
    reading.take("zero", f"{F}.sharding_strategy", word(SHARDING), default=3)
    reading.take("recompute", f"{F}.activation_checkpointing", either("full", "none"), default="none")
    reading.switch("offload", "activations", f"{F}.activation_cpu_offload")


def _precision(reading: Reading) -> None:
    """Read the precision: fp32 shards.

    mixed_precision sets the dtype in which FSDP gathers and reduces (Composer, mosaic_fsdp_utils.py).
    """
    known = ("fp32", "fp16", "bf16", "amp", "amp_fp16", "amp_bf16", "amp_fp8")
    kind = reading.read("precision", word({one: one for one in known})) or "amp_bf16"
    keys = [key for key in ("precision", f"{F}.mixed_precision") if key in reading.source]
    narrow = "bf16" if "bf16" in kind or "fp8" in kind else "fp16" if "fp16" in kind else None
    if narrow is None:
        policy = "fp32"
    elif reading.value_of("adapter"):
        policy = f"frozen=fp32,param=fp32,grad=fp32,compute={narrow},state=fp32"
    else:
        compute = "fp8" if "fp8" in kind else narrow
        policy = "amp-bf16" if compute == "bf16" else f"param=fp32,grad=fp32,compute={compute},state=fp32"
    reading.derive("precision", policy, *keys) if keys else reading.default("precision", policy, "precision")


def _adapter(reading: Reading) -> None:
    block = "model.peft_config"
    if block not in reading.source or reading.source.plain(block) == {}:
        return
    if reading.open_among(f"{block}.peft_type"):
        reading.ask("adapter", f"{block}.peft_type")
        return
    kind = str(reading.source.plain(f"{block}.peft_type") or "LORA").upper()
    if kind != "LORA":
        reading.refuse(f"{block}.peft_type", f"napkin does not support adapter {kind[:40]!r}", "adapter")
        return
    reading.put("adapter", "lora", f"{block}.peft_type")
    reading.take("lora-rank", f"{block}.r", whole, default=8)
    take_adapter_dropout(reading, f"{block}.lora_dropout")
    targets = reading.find(f"{block}.target_modules")
    if targets is not None:
        take_targets(reading, f"{block}.target_modules", targets.value)
    else:
        reading.ask("lora-targets", f"{block}.target_modules")


def _others(reading: Reading) -> None:
    take_optimizer(reading, "optimizer.name")
    kernel = str(reading.source.plain("model.attn_config.attn_impl") or "").lower()
    if kernel in ("flash", "torch"):
        reading.put("attention", "flash" if kernel == "flash" else "eager", "model.attn_config.attn_impl")
    elif kernel == "triton":
        reading.assume("attention", "flash", "model.attn_config.attn_impl")
    elif reading.read("model.use_flash_attention_2", flag):
        reading.put("attention", "flash", "model.use_flash_attention_2")
    loader = str(reading.source.plain("train_loader.name") or "")
    if loader == "finetuning":
        reading.derive("task", "sft", "train_loader.name")
    elif loader == "text":
        reading.derive("task", "pretrain", "train_loader.name")
    ratio = "train_loader.dataset.packing_ratio"
    if reading.find(ratio) is not None:
        reading.omit(ratio, "samples packed per row")
    if "compile_config" in reading.source:
        reading.put("compile", True, "compile_config")


def _job(reading: Reading) -> None:
    """Read a job file: its training YAML and its GPU count."""
    if inner_of(reading.source) is reading.source:
        return
    inner = open_reading(OF_TRAINING, inner_of(reading.source))
    apply(OF_TRAINING, inner)
    reading.adopt(finish(inner), "parameters")
    reading.take("gpus", "compute.gpus", whole)


OF_TRAINING = LaunchFormat(
    "llm-foundry",
    "LLM Foundry's YAML",
    "",
    is_this,
    rules=(
        KeyRule(
            "model.pretrained_model_name_or_path model.n_layers model.d_model model.n_heads model.vocab_size "
            "model.expansion_ratio",
            "model",
            "a name, or MPT's sizes: tied, learned positions unless ALiBi",
            _model,
        ),
        KeyRule(
            "device_train_microbatch_size global_train_batch_size max_seq_len",
            "micro-batch global-batch seq",
            "per device; over all ranks",
            _batch,
        ),
        KeyRule("max_duration", "steps epochs tokens", "4800ba batches, 2ep epochs, 1e12tok tokens", _amount),
        KeyRule(
            f"{F}.sharding_strategy {F}.activation_checkpointing {F}.activation_cpu_offload",
            "framework zero recompute offload",
            "FULL_SHARD 3, SHARD_GRAD_OP 2",
            _sharding,
        ),
        KeyRule("model.peft_config", "adapter lora-rank lora-dropout lora-targets", "LoRA", _adapter),
        KeyRule(f"precision {F}.mixed_precision", "precision", "fp32 shards with autocast", _precision),
        KeyRule(
            "optimizer.name model.attn_config.attn_impl model.use_flash_attention_2 train_loader.name",
            "optimizer attention task",
            "names",
            _others,
        ),
    ),
    ignored=f"""variables optimizer scheduler callbacks loggers algorithms.gradient_clipping
        tokenizer train_loader eval_loader icl_tasks
        icl_seq_len eval_gauntlet data_remote data_local global_seed
        {F}.state_dict_type {F}.limit_all_gathers {F}.mixed_precision {F}.verbose
        {F}.load_planner {F}.sync_module_states model.name model.pretrained model.use_auth_token
           python_log_level
        model.peft_config.task_type model.peft_config.lora_alpha compute name image command integrations
        device_eval_batch_size autoresume  model.config_overrides code_paths""",
    not_modelled={
        f"{F}.activation_checkpointing_reentrant": "activation checkpointing settings",
        f"{F}.*": "FSDP gathering",
        "model.attn_config": "attention variant or kernel",
        "expandable_segments max_split_size_mb": "the allocator's settings",
        "model.loss_fn": "the loss kernel",
        "model": "model settings",
        "algorithms": "Composer's changes of the model, the batch or the step",
        "train_loader.dataset.allow_pad_trimming": "padding of rows",
        "compile_config": "compilation settings",
        "tp_config": "tensor parallelism",
    },
)
FORMAT = LaunchFormat(
    "llm-foundry",
    OF_TRAINING.says,
    "mosaicml/llm-foundry llmfoundry/models/mpt/configuration_mpt.py, scripts/train/train.py; mosaicml/composer",
    is_this,
    rules=(
        *OF_TRAINING.rules,
        KeyRule("parameters compute.gpus", "gpus", "a job file holds the training YAML in `parameters`", _job),
    ),
    ignored=OF_TRAINING.ignored,
    not_modelled=OF_TRAINING.not_modelled,
)

"""OLMo's YAML."""

from __future__ import annotations

from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import take_optimizer
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import SHARDING, take_duration
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, number, whole, word

CHECKPOINTS = {
    "whole_layer": "full",
    "one_in_two": "every:2",
    "one_in_three": "every:3",
    "one_in_four": "every:4",
    "fine_grained": "selective",
}


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is OLMo's YAML."""
    return (
        "model.d_model" in source
        and source.has_any("device_train_microbatch_size", "global_train_batch_size", "max_duration")
        and "model.name" not in source
    )


def _model(reading: Reading) -> None:
    """Read the sizes: mlp_hidden_size and mlp_ratio count both halves of SwiGLU; embedding_size is the vocabulary."""
    for name, key in (("layers", "n_layers"), ("hidden", "d_model"), ("heads", "n_heads")):
        reading.dimension(name, reading.read(f"model.{key}", whole), f"model.{key}")
    hidden = reading.shape.get("hidden") or 0
    gated = str(reading.source.plain("model.activation_type") or "swiglu") == "swiglu"
    size = reading.read("model.mlp_hidden_size", whole) or int((reading.read("model.mlp_ratio", number) or 4) * hidden)
    reading.dimension("ffn", size // 2 if gated else size, "model.mlp_hidden_size", "model.mlp_ratio")
    experts = reading.read("model.moe_num_experts", whole)
    if experts:  # OLMoE: each expert is as wide as the MLP
        reading.dimension("experts", experts, "model.moe_num_experts")
        reading.dimension("top_k", reading.read("model.moe_top_k", whole), "model.moe_top_k")
        reading.dimension("expert_ffn", reading.shape["ffn"])
    groups = reading.read("model.n_kv_heads", whole)
    one = reading.read("model.multi_query_attention", flag)
    reading.dimension(
        "kv_heads",
        1 if one else groups or reading.shape.get("heads"),
        "model.n_kv_heads",
        "model.multi_query_attention",
    )
    rows = reading.read("model.embedding_size", whole) or reading.read("model.vocab_size", whole)
    reading.dimension("vocab", rows, "model.embedding_size", "model.vocab_size")
    reading.dimension("gated", gated, "model.activation_type")
    reading.dimension("tied", reading.read("model.weight_tying", flag) is not False, "model.weight_tying")
    positions = ("model.rope", "model.alibi")
    used = [key for key in positions if reading.read(key, flag)]
    reading.ignore(*[key for key in positions if key in reading.source and key not in used])
    sizes = ("model.n_layers", "model.d_model", "model.n_heads", "model.mlp_ratio", "model.mlp_hidden_size")
    reading.describe(*sizes, *used)
    from napkin.inputs.foreign import translated

    data = reading.source.document.data
    reading.build(lambda: (translated(data, reading.source.name) or (None, ""))[0])


def _amount(reading: Reading) -> None:
    """Read the length of the run.

    max_duration counts steps, tokens (2e12T) or epochs (1ep). stop_at and stop_after count steps and win.
    """
    if reading.take("steps", "stop_at", whole):
        reading.told("max_duration")
        return
    take_duration(reading, "max_duration", {"": "steps", "ep": "epochs", "t": "tokens"})


def _sharding(reading: Reading) -> None:
    kind = reading.read("distributed_strategy", word({one: one for one in ("fsdp", "ddp", "single")}))
    if kind in ("ddp", "single"):
        reading.put("zero", 0, "distributed_strategy")
        return
    keys = [key for key in ("distributed_strategy", "fsdp") if key in reading.source]
    reading.put("framework", "fsdp", *(keys or ["fsdp"]), origin="derived" if keys else "default")
    stage = reading.read("fsdp.sharding_strategy", word(SHARDING))
    key = "fsdp.sharding_strategy"
    reading.put("zero", stage, key) if stage is not None else reading.default("zero", 3, key, "distributed_strategy")
    if stage is not None and "hybrid" in str(reading.source.plain(key)).lower():
        replicas = "fsdp.hybrid_sharding_num_model_replicas"
        reading.ask("dp-shard", replicas if replicas in reading.source else key)


def _precision(reading: Reading) -> None:
    kind = str(reading.source.plain("precision") or "fp32").lower()
    sharded = str(reading.source.plain("fsdp.precision") or "mixed").lower()
    policies = {"amp_bf16": "amp-bf16", "amp_fp16": "param=fp32,grad=fp32,compute=fp16,state=fp32", "fp32": "fp32"}
    if kind not in policies:
        reading.ask("precision", "precision")
        return
    keys = [key for key in ("precision", "fsdp.precision") if key in reading.source]
    if sharded not in ("mixed", "pure"):
        reading.omit("fsdp.precision", "shard dtype")
    reading.derive("precision", policies[kind], *keys) if keys else reading.default("precision", "fp32", "precision")


def _others(reading: Reading) -> None:
    again = reading.source.plain("activation_checkpointing")
    if again is None or again is False:
        reading.default("recompute", "none", "activation_checkpointing")
    else:
        found = reading.read("activation_checkpointing", word({"true": "full", **CHECKPOINTS}, lambda _: None))
        if found:
            reading.put("recompute", found, "activation_checkpointing")
        else:
            reading.ask("recompute", "activation_checkpointing")
            reading.refuse(
                "activation_checkpointing", f"napkin does not support recomputation {again!s:.40}", "recompute"
            )
    inside = list(reading.source.inside("compile")) if "compile" in reading.source else []
    on = any(reading.source.plain(key) is not None for key in inside)
    reading.put("compile", on, "compile") if inside else reading.default("compile", False, "compile")
    take_optimizer(reading, "optimizer.name")
    reading.switch("loss", "fused", "fused_loss")
    flash = reading.read("model.flash_attention", flag)
    if flash is not None:
        reading.put("attention", "flash", "model.flash_attention", origin="from file" if flash else "assumed")
    reading.default("task", "pretrain", "task")
    drops = [
        key
        for key in ("attention_dropout", "residual_dropout", "embedding_dropout")
        if f"model.{key}" in reading.source
    ]
    if drops:
        most = max(reading.read(f"model.{key}", number) or 0 for key in drops)
        reading.put("dropout", most, *(f"model.{key}" for key in drops))


FORMAT = LaunchFormat(
    "olmo",
    "OLMo's YAML",
    "allenai/OLMo olmo/config.py",
    is_this,
    keys=(
        Key("device_train_microbatch_size", "micro-batch", whole, 1),
        Key("global_train_batch_size", "global-batch", whole, 512),
        Key("model.max_sequence_length", "seq", whole, 1024),
    ),
    rules=(
        KeyRule(
            "model.n_layers model.d_model model.n_heads model.mlp_ratio model.mlp_hidden_size model.embedding_size "
            "model.vocab_size model.weight_tying model.rope model.alibi",
            "model",
            "sizes; the MLP's width counts both halves of SwiGLU",
            _model,
        ),
        KeyRule("stop_at max_duration", "steps tokens epochs", "stop_at wins; 2e12T tokens, 1ep epochs", _amount),
        KeyRule(
            "distributed_strategy fsdp.sharding_strategy",
            "framework zero dp-shard",
            "FULL_SHARD by default, or DDP",
            _sharding,
        ),
        KeyRule("precision fsdp.precision", "precision", "fp32 shards with autocast", _precision),
        KeyRule(
            "activation_checkpointing compile optimizer.name fused_loss model.flash_attention",
            "recompute compile optimizer loss attention",
            "a compile mapping enables compilation",
            _others,
        ),
    ),
    ignored="""optimizer scheduler tokenizer evaluators data speed_monitor wandb model.rope_theta
        model.eos_token_id model.pad_token_id model.init_* model.layer_norm_eps model.norm_after model.clip_qkv
        model.attention_layer_norm model.include_bias model.bias_for_layer_norm model.block_type model.layer_norm_type
        model.layer_norm_with_affine model.attention_layer_norm_with_affine model.rope_full_precision model.scale_logits
        device_eval_batch_size eval_interval softmax_auxiliary_loss gen1_gc_interval hf_datasets_cache_dir epoch
        sharded_checkpointer new_style_checkpoints canceled_check_interval save_dataloader* no_pre_train_checkpoint
        try_load_latest_save reset_* restore_* force_save* time_limit extra_steps_after_cancel python_profiling
        torch_profiling """,
    not_modelled={
        "fsdp": "FSDP wrapping and gathering",
        "ddp": "gradient reduction",
        "auxiliary_loss_multiplier": "an auxiliary loss",
        "model": "model settings",
        "compile": "compilation settings",
    },
)

"""nanotron's YAML."""

from __future__ import annotations

import re

from napkin.inputs.launch.checks import check_batch
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import MEGATRON, take_optimizer
from napkin.inputs.launch.precisions import fixed_dtype
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import either, flag, natural, product, whole, word

M, P, T, S = "model.model_config", "parallelism", "tokens", "optimizer"
DIMENSIONS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}


KINDS = ("is_llama_config", "is_qwen2_config", "is_starcoder2_config")
"""Marks of nanotron's own models (config/models_config.py); a fork's has one of its own."""
_KIND = re.compile(r".*\.is_\w+_config")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is nanotron's YAML."""
    return source.has_all(P, T) and source.has_any(f"{T}.micro_batch_size", f"{T}.sequence_length")


def _model(reading: Reading) -> None:
    if M not in reading.source:
        return
    for name, key in DIMENSIONS.items():
        reading.dimension(name, reading.read(f"{M}.{key}", whole), f"{M}.{key}")
    if "heads" in reading.shape and "kv_heads" not in reading.shape:
        reading.dimension("kv_heads", reading.shape["heads"], f"{M}.num_key_value_heads")
    reading.dimension("gated", str(reading.source.plain(f"{M}.hidden_act") or "silu") != "gelu", f"{M}.hidden_act")
    reading.dimension("tied", bool(reading.read(f"{M}.tie_word_embeddings", flag)), f"{M}.tie_word_embeddings")
    for name, key in (
        ("experts", "num_experts"),
        ("experts", "moe_num_experts"),
        ("experts", "num_local_experts"),
        ("top_k", "top_k"),
        ("top_k", "num_experts_per_tok"),
        ("top_k", "num_experts_per_token"),
        ("expert_ffn", "moe_intermediate_size"),
    ):
        for block in (f"{M}.moe_config", M):
            found = reading.read(f"{block}.{key}", natural)
            if found:
                reading.dimension(name, found, f"{block}.{key}")
    own = [key for key in reading.source.inside(M) if _KIND.fullmatch(key) and key.rpartition(".")[2] not in KINDS]
    if own:
        reading.shape.clear()
        reading.ask("model", *own)
        reading.refuse(own[0], "builds blocks of its own, whose sizes mean what only its program knows", "model")
        return
    reading.describe(*(f"{M}.{key}" for key in DIMENSIONS.values()))
    from napkin.inputs.foreign import translated

    data = reading.source.document.data
    reading.build(lambda: (translated(data, reading.source.name) or (None, ""))[0])


def _layout(reading: Reading) -> None:
    """Read the layout: gpus = dp · tp · pp · cp; global batch = micro × accumulation × dp."""
    sizes = []
    for key, option in (("dp", "dp"), ("tp", "tp"), ("pp", "pp"), ("context_parallel_size", "cp")):
        size = reading.read(f"{P}.{key}", whole)
        if size:
            reading.put(option, size, f"{P}.{key}")
        elif f"{P}.{key}" in reading.source:
            reading.ask(option, f"{P}.{key}")
        sizes.append((f"{P}.{key}", size if size else (1 if f"{P}.{key}" not in reading.source else None)))
    reading.take("ep", f"{P}.expert_parallel_size", whole)
    keys = [key for key, _ in sizes if key in reading.source]
    if all(size is not None for _, size in sizes) and keys:
        gpus, experts = product([size or 1 for _, size in sizes]), reading.value_of("ep") or 1
        if experts > 1 and f"{P}.context_parallel_size" not in reading.source:  # separate ranks until 2025
            reading.assume("gpus", gpus * experts, *keys, f"{P}.expert_parallel_size")
        else:
            reading.derive("gpus", gpus, *keys)
    mode = reading.read(f"{P}.tp_mode", word({"reduce_scatter": True, "all_reduce": False}))
    if mode is not None:
        reading.derive("sp", mode and (reading.value_of("tp") or 1) > 1, f"{P}.tp_mode", f"{P}.tp")
    micro, steps, ranks = (
        reading.read(f"{T}.micro_batch_size", whole),
        reading.read(f"{T}.batch_accumulation_per_replica", whole) or 1,
        reading.value_of("dp"),
    )
    if micro and ranks:
        reading.derive(
            "global-batch",
            micro * steps * ranks,
            f"{T}.micro_batch_size",
            f"{T}.batch_accumulation_per_replica",
            f"{P}.dp",
        )
    reading.take("recompute", f"{P}.recompute_layer", either("full", "none"), default="none")
    engine = reading.read(f"{P}.pp_engine", word({"1f1b": "1f1b", "afab": "gpipe"}))
    if engine and (reading.value_of("pp") or 1) > 1:
        reading.put("schedule", engine, f"{P}.pp_engine")
    check_batch(reading, f"{T}.micro_batch_size")


def _optimizer(reading: Reading) -> None:
    key = f"{S}.optimizer_factory.name"
    if key in reading.source:
        take_optimizer(reading, key)
    else:
        reading.default("optimizer", "adamw", key)
    for one in (f"{S}.optimizer_factory.torch_adam_is_fused", f"{S}.torch_adam_is_fused"):
        reading.switch("optimizer-form", "fused", one)


def _precision(reading: Reading) -> None:
    """Read the precision: bf16 weights, with an fp32 copy and fp32 gradients if accumulated in fp32."""
    kind = reading.read("model.dtype", fixed_dtype) or "bf16"
    wide = reading.read(f"{S}.accumulate_grad_in_fp32", flag)
    keys = [key for key in ("model.dtype", f"{S}.accumulate_grad_in_fp32") if key in reading.source]
    if kind == "fp32":
        reading.derive("precision", "fp32", "model.dtype")
    elif wide is False:
        reading.derive("precision", f"{kind}-pure" if kind == "bf16" else "param=fp16,grad=fp16,state=fp16", *keys)
    else:
        reading.derive("precision", MEGATRON.replace("bf16", kind), *(keys or ["model.dtype"]))


def _attention(reading: Reading) -> None:
    kernel = reading.source.plain(f"{M}._attn_implementation")
    known = {"flash_attention_2": "flash", "sdpa": "flash", "eager": "eager", "flex_attention": None}
    if known.get(kernel):
        reading.put("attention", known[kernel], f"{M}._attn_implementation")
    else:
        reading.default("attention", "flash", f"{M}._attn_implementation")


FORMAT = LaunchFormat(
    "nanotron",
    "nanotron's YAML",
    "huggingface/nanotron src/nanotron/config/{config,parallelism_config,models_config}.py",
    is_this,
    fixed={"framework": "nanotron", "implementation": "nanotron"},
    keys=(
        Key(f"{T}.micro_batch_size", "micro-batch", whole),
        Key(f"{T}.sequence_length", "seq", whole),
        Key(f"{T}.train_steps", "steps", whole, silent=True),
        Key(f"{T}.batch_accumulation_per_replica", "grad-accum", whole, 1),
        Key(f"{S}.zero_stage", "zero", natural, 0),
    ),
    rules=(
        KeyRule(" ".join(f"{M}.{key}" for key in DIMENSIONS.values()), "model", "the sizes of model_config", _model),
        KeyRule(
            f"{P}.dp {P}.tp {P}.pp {P}.context_parallel_size {P}.expert_parallel_size {P}.tp_mode {P}.recompute_layer "
            f"{P}.pp_engine",
            "dp tp pp cp ep sp gpus global-batch recompute schedule",
            "gpus = dp · tp · pp · cp; REDUCE_SCATTER is sequence parallelism",
            _layout,
        ),
        KeyRule(
            f"{S}.optimizer_factory.name {S}.torch_adam_is_fused {S}.optimizer_factory.torch_adam_is_fused",
            "optimizer optimizer-form",
            "AdamW",
            _optimizer,
        ),
        KeyRule(
            f"model.dtype {S}.accumulate_grad_in_fp32", "precision", "fp32 gradients and copy, or bf16-pure", _precision
        ),
        KeyRule(f"{M}._attn_implementation", "attention", "flash_attention_2", _attention),
    ),
    ignored=f"""checkpoints general logging lighteval profiler data_stages data doremi s3_upload
        metrics_logging tokenizer
        {M}.pretraining_tp {M}.use_cache {M}.rms_norm_eps {M}.rope_scaling {M}.rope_theta {M}.hidden_act
        {M}.is_llama_config
        {M}.is_qwen2_config {M}.attention_bias {M}.rope_interleaved {S}.clip_grad {S}.weight_decay {S}.adam_beta1
        {S}.learning_rate_scheduler {S}.optimizer_factory {S}.weight_decay_exclude_named_params model.init_method
        {T}.limit_val_batches {T}.limit_test_batches {T}.val_check_interval model.make_vocab_size_divisible_by
        {P}.pp_engine
        {M}.no_rope_layer {M}.z_loss_enabled {M}.z_loss_coefficient """,
    not_modelled={
        f"{M}.max_position_embeddings": "maximum positions",
        f"{M}.sliding_window_size": "sliding-window attention",
        f"{M}.moe_config": "experts",
        f"{P}.tp_linear_async_communication {P}.tp_recompute_allgather": "tensor-parallel communication",
        "model.ddp_bucket_cap_mb": "gradient bucket size",
        f"{M}._fused_* {M}._use_* {M}.flex_attention_mask {M}.log_attn_probs {M}.ring_attn_heads_k_stride": "kernels",
        f"{P}.moe_layer_recompute": "selection of recomputed layers",
        f"{S}.finetuning_*": "selection of trained parameters",
    },
)

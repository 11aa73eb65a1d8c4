"""GPT-NeoX's YAML."""

from __future__ import annotations

from napkin.errors import NapkinError
from napkin.inputs.launch.format import Key, KeyRule, LaunchFormat
from napkin.inputs.launch.names import take_optimizer
from napkin.inputs.launch.precisions import ACCUMULATED, take_deepspeed_bf16
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.shared import take_deepspeed_block
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import degree, flag, natural, number, whole, word

Z = "zero_optimization"
EIGHT = ("te_layernorm_mlp", "te_mha", "te_columnparallel", "te_rowparallel")
"""Layers of TransformerEngine, which compute in te_fp8_format (model/transformer_engine.py)."""
GATED = ("swiglu", "geglu", "reglu", "bilinear", "glu")


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is GPT-NeoX's YAML."""
    return (
        source.has_all("num_layers", "hidden_size")
        and source.has_any(
            "pipe_parallel_size",
            "model_parallel_size",
            "train_micro_batch_size_per_gpu",
            "pos_emb",
            "attention_config",
            "no_weight_tying",
        )
        and source.syntax != "shell"
        and "extends" not in source  # Primus' description of a model
    )


def _model(reading: Reading) -> None:
    """Read the sizes. Both halves of a gated MLP share intermediate_size (model/transformer.py)."""
    for name, key in (("layers", "num_layers"), ("hidden", "hidden_size"), ("heads", "num_attention_heads")):
        reading.dimension(name, reading.read(key, whole), key)
    hidden = reading.shape.get("hidden") or 0
    groups = reading.read("num_kv_heads", whole)
    reading.dimension("kv_heads", groups or reading.shape.get("heads"), "num_kv_heads")
    kind = str(reading.source.plain("activation") or "gelu").lower()
    older = str(reading.source.plain("mlp_type") or "").lower() in ("llama", "gated")
    gated = kind in GATED or older
    inner = reading.read("intermediate_size", whole)
    if older and kind not in GATED:  # LLaMAParallelMLP, until 2024
        multiple = reading.read("mlp_multiple_of", whole) or 256
        size = inner or -(-int(8 * hidden / 3) // multiple) * multiple
        reading.dimension("ffn", size, "mlp_type", "intermediate_size", "mlp_multiple_of")
    elif gated:
        multiple = reading.read("mlp_multiple_of", whole) or 1
        both = int((inner or 4 * hidden) * 2 / 3)
        size = -(-(both // 2) // multiple) * multiple if inner else -(-both // multiple) * multiple
        reading.dimension("ffn", size, "intermediate_size", "mlp_multiple_of")
    else:
        reading.dimension("ffn", inner or 4 * hidden, "intermediate_size")
    reading.dimension("gated", gated, "activation", "mlp_type")
    untied = reading.read("no_weight_tying", flag)
    reading.dimension("tied", not untied, "no_weight_tying")
    experts = reading.read("moe_num_experts|num_experts", natural)
    if experts and experts > 1:
        key = "moe_num_experts" if "moe_num_experts" in reading.source else "num_experts"
        reading.dimension("experts", experts, key)
        top = reading.read("moe_top_k", whole)
        if top:
            reading.dimension("top_k", top, "moe_top_k")
        else:
            reading.omit(key, "experts per token and their capacity are left to the library")
    if str(reading.source.plain("pos_emb") or "learned") == "learned":
        reading.dimension("positions", reading.read("max_position_embeddings", whole), "max_position_embeddings")
    reading.describe("num_layers", "hidden_size", "num_attention_heads", "moe_num_experts")
    reading.build(lambda: _config(reading))


def _config(reading: Reading) -> dict[str, object]:
    """Return the config.json of GPT-NeoX's or Llama's blocks. Raises NapkinError (2) if the vocabulary is unknown."""
    shape, source = reading.shape, reading.source
    rows = reading.read("padded_vocab_size|vocab_size", whole)
    if rows is None:
        raise NapkinError(
            f"{source.name}: the vocabulary size depends on the tokenizer file, which is not read",
            "name the model: napkin memory MODEL --from FILE",
        )
    if shape.get("experts"):
        raise NapkinError(f"{source.name}: napkin cannot build GPT-NeoX's experts", "name a MODEL with the same sizes")
    shared: dict[str, object] = {
        "hidden_size": shape["hidden"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "intermediate_size": shape["ffn"],
        "vocab_size": rows,
        "tie_word_embeddings": shape["tied"],
        "max_position_embeddings": reading.read("max_position_embeddings", whole),
    }
    norm = str(source.plain("norm") or "layernorm")
    if norm == "rmsnorm" and shape["gated"]:
        return {"model_type": "llama", **shared, "num_key_value_heads": shape["kv_heads"]}
    if norm == "layernorm" and not shape["gated"] and str(source.plain("pos_emb")) == "rotary":
        return {"model_type": "gpt_neox", **shared, "use_parallel_residual": bool(source.plain("gpt_j_residual"))}
    raise NapkinError(f"{source.name}: napkin cannot build these GPT-NeoX blocks", "name a MODEL with the same sizes")


def _layout(reading: Reading) -> None:
    stage = reading.read(f"{Z}.stage", natural)
    if stage is not None:
        reading.put("zero", stage, f"{Z}.stage")
    elif Z in reading.source or "train_micro_batch_size_per_gpu" in reading.source:
        reading.default("zero", 0, f"{Z}.stage")
    take_deepspeed_block(reading, Z, f"{Z}.offload_optimizer", f"{Z}.offload_param")
    on = reading.read("checkpoint_activations", flag)
    layers = reading.read("checkpoint_num_layers", natural)
    if on and layers and layers > 1:
        reading.derive("recompute", f"group:{layers}", "checkpoint_activations", "checkpoint_num_layers")
    elif on is not None:
        reading.put("recompute", "full" if on else "none", "checkpoint_activations")
        reading.told("checkpoint_num_layers")
    else:
        reading.default("recompute", "none", "checkpoint_activations")
    kinds = str(reading.source.plain("attention_config") or "")
    if "flash" in kinds:
        reading.put("attention", "flash", "attention_config")
        if any(word in kinds for word in ("sparse", "local", "bigbird", "mamba", "rwkv", "global")):
            reading.refuse("attention_config", "mixed layer types", "attention")
    elif kinds and "global" not in kinds:
        reading.refuse("attention_config", f"napkin does not support attention {kinds[:40]}", "attention")
    else:
        reading.default("attention", "eager", "attention_config")


def _precision(reading: Reading) -> None:
    kind = reading.read("precision", word({one: one for one in ("fp16", "bf16", "bfloat16", "fp32")})) or ""
    engines = [key for key in EIGHT if reading.read(key, flag)]
    if engines and reading.source.plain("te_fp8_format"):  # TransformerEngine's layers compute in fp8
        reading.ask("precision", "te_fp8_format", *engines)
        return
    if str(reading.source.plain("fp16.type") or "").lower() == "bfloat16":  # until 2023: {"fp16": {"type": "bfloat16"}}
        take_deepspeed_bf16(reading, "fp16.type")
        return
    for key in ("fp16", "bf16"):
        if reading.read(f"{key}.enabled", flag) or (key in kind) or (key == "bf16" and kind == "bfloat16"):
            keys = [k for k in (f"{key}.enabled", "precision") if k in reading.source]
            take_deepspeed_bf16(reading, *keys) if key == "bf16" else reading.derive("precision", "fp16-mixed", *keys)
            return
    if kind == "fp32" or reading.read("fp32.enabled", flag):
        reading.put("precision", "fp32", "precision")
    elif "train_micro_batch_size_per_gpu" in reading.source:
        reading.default(
            "precision", "fp32", "precision", "fp16.enabled", "bf16.enabled"
        )  # arguments.py, calculate_derived


def _task(reading: Reading) -> None:
    """Read the task from `train_impl`; REINFORCE is read as RLOO, which has no critic either."""
    kind = reading.read("train_impl", word({one: one for one in ("normal", "dpo", "rm", "kto", "reinforce")}))
    if kind == "reinforce":
        reading.assume("task", "rloo", "train_impl")
    elif kind not in (None, "normal"):
        reading.put("task", kind, "train_impl")


def _others(reading: Reading) -> None:
    _task(reading)
    if "optimizer.type" in reading.source:
        take_optimizer(reading, "optimizer.type")
        if reading.read("use_bnb_optimizer", flag) and reading.value_of("optimizer") == "adamw":
            reading.derive("optimizer", "adamw-8bit", "optimizer.type", "use_bnb_optimizer")  # training.py, Adam8bit
    drops = [key for key in ("hidden_dropout", "attention_dropout") if key in reading.source]
    if drops:
        reading.put("dropout", max(reading.read(key, number) or 0 for key in drops), *drops)
    reading.take("ep", "moe_expert_parallel_size", whole)
    reading.switch("sp", True, "sequence_parallel")


FORMAT = LaunchFormat(
    "gpt-neox",
    "GPT-NeoX's YAML",
    "EleutherAI/gpt-neox megatron/neox_arguments/*.py, megatron/model/transformer.py",
    is_this,
    fixed={"framework": "megatron-deepspeed"},
    keys=(
        Key("pipe_parallel_size", "pp", degree, 1),
        Key("model_parallel_size", "tp", whole, 1),
        Key("context_parallel_size", "cp", whole),
        Key("train_micro_batch_size_per_gpu", "micro-batch", whole),
        Key("train_batch_size", "global-batch", whole),
        Key("gradient_accumulation_steps|gas", "grad-accum", whole, 1),
        Key("seq_length", "seq", whole),
        Key("train_iters", "steps", whole, silent=True),
        Key("train_epochs", "epochs", number, silent=True),
    ),
    rules=(
        KeyRule(
            "num_layers hidden_size num_attention_heads num_kv_heads intermediate_size mlp_multiple_of activation "
            "mlp_type no_weight_tying moe_num_experts moe_top_k",
            "model",
            "sizes; a gated MLP has a third of its width in each projection",
            _model,
        ),
        KeyRule(
            f"{Z}.stage checkpoint_activations checkpoint_num_layers attention_config",
            "zero offload recompute attention",
            "checkpointed in groups of checkpoint_num_layers",
            _layout,
        ),
        KeyRule(
            f"precision fp16.enabled bf16.enabled {ACCUMULATED}",
            "precision",
            "DeepSpeed's 16-bit weights with an fp32 copy",
            _precision,
        ),
        KeyRule(
            "optimizer.type use_bnb_optimizer hidden_dropout attention_dropout moe_expert_parallel_size train_impl",
            "optimizer dropout ep task",
            "Adam is FusedAdam; train_impl names DPO, KTO and reward models",
            _others,
        ),
    ),
    ignored=f"""optimizer fp16 bf16 norm gpt_j_residual pos_emb rotary_pct rotary_ndims use_bias_in_norms
        output_layer_parallelism output_layer_init_method init_method min_lr lr_decay_style warmup
        max_position_embeddings rms_norm_epsilon layernorm_epsilon vocab_file merge_file data_path
        make_vocab_size_divisible_by
        {Z}.load_from_fp32_weights {Z}.elastic_checkpoint text_gen_type num_samples extra_save_iters comment
        use_bias_in_attn_linear mup* eod_mask_loss weight_by_num_documents weighted_sampler_alpha git_hash
        s3_path deepspeed_slurm deepspeed_mpi no_ssh_check force_multi user_script checkpoint_scale
        attention_softmax_in_fp32_none
         load_* *_data_paths *_data_weights data_path""",
    not_modelled={
        "partition_activations synchronize_each_layer contiguous_checkpointing checkpoint_in_cpu "
        "*checkpoint_in_cpu": "storage of activation checkpoints",
        "*_fusion scaled_*": "fused kernels",
        "rotary_emb_base": "the RoPE base",
        f"{Z}.*": "gradient reduction",
        "fp32_allreduce": "gradient reduction dtype",
        "moe_*": "token routing to experts",
        "apply_query_key_layer_scaling attention_softmax_in_fp32": "number formats within attention",
        "finetune": "selection of trained parameters",
    },
)

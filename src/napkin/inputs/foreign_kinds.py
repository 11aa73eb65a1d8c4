"""Other projects' model files as the fields of the config.json that they correspond to.

Each reader takes its fields from a ForeignBlock; its ValueError states why it cannot read a file.
"""

from __future__ import annotations

from napkin.inputs.foreign_block import Fields, ForeignBlock
from napkin.record import record


def meta(of: ForeignBlock) -> Fields:
    """Read Meta's params.json (meta-llama/llama-models, models/llama3/model.py): the MLP is 8/3 of the width, times
    ffn_dim_multiplier, rounded up to multiple_of; -1 tokens are the tokenizer's, 32,000 before Llama 3."""
    width, multiple = of.whole_number("dim"), of.whole_number("multiple_of")
    inner = int(2 * 4 * width / 3)
    if of.get("ffn_dim_multiplier") is not None:
        inner = int(of.number("ffn_dim_multiplier") * inner)
    rows = of.whole_number("vocab_size")
    if of.get("moe_args"):
        raise ValueError("mixtures of experts: give the config.json of the Hugging Face release")
    of.notes.append("its head is a matrix of its own, also where the Hugging Face release ties it to the embedding")
    return {
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": of["n_layers"],
        "num_attention_heads": of["n_heads"],
        "num_key_value_heads": of.get("n_kv_heads"),
        "intermediate_size": multiple * -(-inner // multiple),
        "vocab_size": 32_000 if rows == -1 else rows,
        "max_position_embeddings": of.get("max_seq_len"),
        "tie_word_embeddings": False,
    }


def mistral(of: ForeignBlock) -> Fields:
    """Read Mistral's params.json (mistralai/mistral-inference, args.py)."""
    fields = {
        "model_type": "mistral",
        "hidden_size": of["dim"],
        "num_hidden_layers": of["n_layers"],
        "num_attention_heads": of["n_heads"],
        "num_key_value_heads": of.get("n_kv_heads"),
        "head_dim": of.get("head_dim"),
        "intermediate_size": of["hidden_dim"],
        "vocab_size": of["vocab_size"],
        "max_position_embeddings": of.get("max_position_embeddings") or of.get("max_seq_len"),
        "sliding_window": of.get("sliding_window"),
        "tie_word_embeddings": bool(of.get("tied_embeddings", False)),
    }
    of.get("max_seq_len")
    of.must_be("use_biases", False, default=False)
    if of.get("q_lora_rank") or of.get("kv_lora_rank"):
        raise ValueError("latent attention")
    if of.get("vision_encoder") or of.get("multimodal"):
        of.notes.append("only the language model is counted, vision and other modalities are not")
    if "moe" in of and of.get("moe") is not None:
        moe = of.inner("moe")
        fields |= {
            "model_type": "mixtral",
            "num_local_experts": moe["num_experts"],
            "num_experts_per_tok": moe["num_experts_per_tok"],
        }
    return fields


def litgpt(of: ForeignBlock) -> Fields:
    """Read LitGPT's model_config.yaml (Lightning-AI/litgpt, litgpt/config.py): Llama's blocks or GPT-NeoX's."""
    width, bias = of.whole_number("n_embd"), bool(of.get("bias", True))
    shared = {
        "hidden_size": width,
        "num_hidden_layers": of["n_layer"],
        "num_attention_heads": of["n_head"],
        "intermediate_size": of.get("intermediate_size") or 4 * width,
        "vocab_size": of["padded_vocab_size"],
        "max_position_embeddings": of.get("block_size"),
        "tie_word_embeddings": False,
    }
    kinds = of.get("mlp_class_name", "GptNeoxMLP"), of.get("norm_class_name", "LayerNorm")
    groups, parallel, qkv_bias = of.get("n_query_groups"), of.get("parallel_residual", True), bool(of.get("attn_bias"))
    size = of.get("head_size")
    of.must_be("norm_1", True, default=True)
    of.must_be("norm_2", True, default=True)
    if kinds in (("LLaMAMLP", "RMSNorm"), ("LLaMAMoE", "RMSNorm")):
        if parallel:
            raise ValueError("parallel_residual with Llama's blocks")
        return {**shared, "num_key_value_heads": groups, "head_dim": size, **_blocks_of_llama(of, bias, qkv_bias)}
    if kinds == ("GptNeoxMLP", "LayerNorm") and groups in (None, of["n_head"]):
        if size not in (None, width // of.whole_number("n_head")):
            raise ValueError(f"head_size {size!r}")
        if qkv_bias != bias and qkv_bias:
            raise ValueError("attn_bias without bias")
        if not bias:
            raise ValueError("GPT-NeoX's blocks without bias")
        return {"model_type": "gpt_neox", **shared, "attention_bias": True, "use_parallel_residual": parallel,
                "rotary_pct": of.get("rotary_percentage", 0.25)}  # fmt: skip
    raise ValueError(f"{kinds[0]} with {kinds[1]}")


@record
class LlamaKind:
    """A model_type that LitGPT's Llama blocks can be.

    fields   its model_type, and what of the others follows from it
    stated   whether its config states the size of a head, which is else the width over the heads
    experts  its names for the number of experts and their width
    """

    fields: Fields
    stated: bool = True
    experts: tuple[str, str] = ("num_experts", "moe_intermediate_size")


def _blocks_of_llama(of: ForeignBlock, bias: bool, qkv_bias: bool) -> Fields:
    """Return the model_type whose blocks LitGPT's Llama blocks are, with biases, norms of queries and keys, experts or
    a sliding window, and the fields for them; those that napkin knows no model_type for raise ValueError."""
    has_experts, window = of.get("mlp_class_name") == "LLaMAMoE", of.get("sliding_window_size")
    normed = of.get("norm_qk") and of.get("norm_qk_type", "default")
    biased = LlamaKind({"model_type": "llama", "attention_bias": True, "mlp_bias": True})
    kinds: dict[tuple[object, ...], LlamaKind] = {
        (False, False, None, False, False): LlamaKind({"model_type": "llama"}),
        (True, True, None, False, False): biased,
        (True, False, None, False, False): biased,
        (False, True, None, False, False): LlamaKind({"model_type": "qwen2"}, stated=False),
        (False, False, "default", False, False): LlamaKind({"model_type": "qwen3"}),
        (False, False, None, True, False): LlamaKind(
            {"model_type": "mixtral"}, stated=False, experts=("num_local_experts", "intermediate_size")
        ),
        (False, False, "default", True, False): LlamaKind({"model_type": "qwen3_moe"}),
        (False, False, None, False, True): LlamaKind({"model_type": "mistral", "sliding_window": window}),
    }
    kind = kinds.get((bias, qkv_bias, normed or None, has_experts, window is not None))
    if kind is None:
        raise ValueError("such a combination of biases, norms, experts and sliding windows")
    indices = of.get("sliding_window_indices")
    if window is not None and indices is not None and not all(indices):
        raise ValueError("a sliding window in some layers")
    size, heads = of.get("head_size"), of.whole_number("n_head")
    if not kind.stated and size not in (None, of.whole_number("n_embd") // heads):
        raise ValueError(f"head_size {size!r} with attn_bias or experts")
    if not has_experts:
        return kind.fields
    inner = of.get("moe_intermediate_size") or of["intermediate_size"]
    experts, width = kind.experts
    return {**kind.fields, experts: of["n_expert"], "num_experts_per_tok": of["n_expert_per_token"], width: inner}


def mosaic(of: ForeignBlock) -> Fields:
    """Read the model block of MosaicML's YAML (mosaicml/llm-foundry, models/mpt/configuration_mpt.py): MPT as
    transformers has it, with ALiBi and without biases."""
    attention = of.inner("attn_config")
    attention.must_be("attn_type", "multihead_attention", default="multihead_attention")
    feed = of.inner("ffn_config")
    feed.must_be("ffn_type", "mptmlp", default="mptmlp")
    if not attention.get("alibi"):
        return _learned_mosaic(of, attention)
    if not of.get("no_bias"):
        raise ValueError("biases, which MPT in transformers does not have (no_bias is not true)")
    of.must_be("learned_pos_emb", True, False, default=False)  # ALiBi switches them off
    of.must_be("tie_word_embeddings", True, default=True)
    of.must_be("norm_type", "low_precision_layernorm", "layernorm", default="layernorm")
    known = ("d_model", "n_heads", "n_layers", "expansion_ratio", "max_seq_len", "vocab_size")
    fields = {field: of.get(field) for field in known}
    inside = {"alibi": True, "clip_qkv": attention.get("clip_qkv"), "qk_ln": attention.get("qk_ln")}
    return {
        "model_type": "mpt",
        **fields,
        "no_bias": True,
        "attn_config": {field: value for field, value in inside.items() if value},
    }


def _learned_mosaic(of: ForeignBlock, attention: ForeignBlock) -> Fields:
    """Return MPT with learned positions and biases, its default, as a decoder that no class of transformers is."""
    of.must_be("learned_pos_emb", True, default=True)
    of.must_be("no_bias", False, default=False)
    of.must_be("tie_word_embeddings", True, False, default=True)
    of.must_be("norm_type", "low_precision_layernorm", "layernorm", default="low_precision_layernorm")
    attention.must_be("qk_ln", False, default=False)
    attention.must_be("rope", False, default=False)
    width, heads = of.whole_number("d_model"), of.whole_number("n_heads")
    return {
        "model_type": "megatron",
        "num_hidden_layers": of["n_layers"],
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": int((of.get("expansion_ratio") or 4) * width),
        "vocab_size": of["vocab_size"],
        "max_position_embeddings": of["max_seq_len"],
        "tie_word_embeddings": of.get("tie_word_embeddings") is not False,
        "normalization": "LayerNorm",
        "position_embedding_type": "learned_absolute",
        "hidden_act": "gelu",
        "gated": False,
        "attention_bias": True,
        "mlp_bias": True,
        "qk_layernorm": False,
    }


def olmo(of: ForeignBlock) -> Fields:
    """Read the model block of OLMo's YAML (allenai/OLMo, olmo/config.py): OLMo's blocks, OLMo 2's, or Llama's."""
    of.must_be("activation_type", "swiglu", default="swiglu")
    of.must_be("block_type", "sequential", default="sequential")
    of.must_be("rope", True, default=False)
    for field in ("alibi", "embedding_layer_norm", "scale_logits"):
        of.must_be(field, False, default=False)
    of.must_be("include_bias", False, default=True)
    of.must_be("bias_for_layer_norm", False, default=False)
    width, heads = of.whole_number("d_model"), of.whole_number("n_heads")
    norm, normed = of.get("layer_norm_type", "default"), bool(of.get("attention_layer_norm", False))
    norms = (
        norm,
        bool(of.get("layer_norm_with_affine", True)),
        bool(of.get("norm_after", False)),
        (normed, bool(of.get("attention_layer_norm_with_affine", True)) or not normed),
    )
    kind = {
        ("default", False, False, (False, True)): "olmo",
        ("rms", True, True, (True, True)): "olmo2",
        ("rms", True, False, (False, True)): "llama",
    }.get(norms)
    if kind is None:
        raise ValueError("norms in another place than in OLMo, OLMo 2 and Llama")
    rows, ratio = of.whole_number("vocab_size", 50_257), of.get("mlp_ratio", 4)
    if of.get("clip_qkv") is not None and norm != "default":
        raise ValueError("clip_qkv with RMSNorm")
    groups = 1 if of.get("multi_query_attention") else of.get("n_kv_heads")
    return {
        "model_type": kind,
        "hidden_size": width,
        "num_hidden_layers": of.whole_number("n_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": heads if groups is None else groups,
        "intermediate_size": of.whole_number("mlp_hidden_size", ratio * width) // 2,  # gate and up
        "vocab_size": of.whole_number("embedding_size", rows),
        "max_position_embeddings": of.get("max_sequence_length", 1024),
        "clip_qkv": of.get("clip_qkv"),
        "tie_word_embeddings": bool(of.get("weight_tying", True)),
    }


OF_NANOTRON = (
    "bos_token_id eos_token_id pad_token_id hidden_act initializer_range pretraining_tp rms_norm_eps rope_scaling "
    "rope_theta rope_interleaved rope_seq_len_interpolation_factor use_cache z_loss_enabled z_loss_coefficient "
    "no_rope_layer flex_attention_mask log_attn_probs ring_attn_heads_k_stride _attn_implementation _fused_rotary_emb "
    "_fused_rms_norm _use_qkv_packed _use_doc_masking"
)
"""Fields of nanotron's model_config that change no count."""


def nanotron(of: ForeignBlock) -> Fields:
    """Read the model_config of nanotron's YAML (huggingface/nanotron, config/models_config.py): Llama's blocks, or
    Qwen2's; the vocabulary is padded to a multiple of tensor parallelism."""
    is_qwen = bool(of.get("is_qwen2_config"))
    bias = is_qwen and bool(of.get("attention_bias", False))
    if not is_qwen and not of.get("is_llama_config"):
        raise ValueError("neither Llama's nor Qwen2's blocks")
    of.get("attention_bias")  # Llama's blocks have none
    if of.get("moe_config"):
        raise ValueError("moe_config")
    outer, layout = of.whole.get("model"), of.whole.get("parallelism")
    multiple = (outer.get("make_vocab_size_divisible_by") if isinstance(outer, dict) else None) or 1
    multiple *= (layout.get("tp") if isinstance(layout, dict) else None) or 1
    rows = of.whole_number("vocab_size")
    padded = -(-rows // multiple) * multiple
    if padded != rows:
        of.notes.append(f"{padded:,} tokens, the next multiple of {multiple:,}")
    known = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "max_position_embeddings",
    )  # fmt: skip
    return {
        "model_type": "qwen2" if bias else "llama" if not of.get("sliding_window_size") else "mistral",
        **{field: of.get(field) for field in known},
        "sliding_window": of.get("sliding_window_size"),
        "vocab_size": padded,
        "tie_word_embeddings": bool(of.get("tie_word_embeddings", False)),
    }


def nanogpt(of: ForeignBlock) -> Fields:
    """Read the model_args of nanoGPT (karpathy/nanoGPT, model.py): GPT-2's blocks, with or without biases."""
    return {
        "model_type": "gpt2" if of.get("bias", True) else "nanogpt",
        "n_layer": of["n_layer"],
        "n_head": of["n_head"],
        "n_embd": of["n_embd"],
        "n_positions": of["block_size"],
        "vocab_size": of.get("vocab_size", 50_304),
    }

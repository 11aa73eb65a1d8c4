"""Fields of recurrent layers, also next to attention."""

from __future__ import annotations

import random
from typing import Any

from special_configs.common import kinds_of_layers, known, special


@special("lara_mini")
def _three_mixers(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"linear_num_key_heads": 2, "linear_num_value_heads": rng.choice((2, 4))}
    own |= {
        "sliding_window": 16,
        "linear_key_head_dim": rng.choice((8, 16)),
        "linear_value_head_dim": rng.choice((8, 16)),
    }
    mixers = ("linear_attention", "sliding_attention", "full_attention")
    listed = [rng.choice(mixers) for _ in range(drawn["num_hidden_layers"])]
    own |= {"layer_types": rng.choice((None, ["sliding_attention", *listed[1:]]))}
    return own | {"head_dim": rng.choice((8, 16)), "shared_expert_intermediate_size": rng.choice((40, 56))}


def _mamba2(rng: random.Random, drawn: dict[str, Any], inner: int) -> dict[str, Any]:
    """Mamba-2's sizes under the names of those that have attention too."""
    size = 8
    own = {"mamba_n_heads": inner // size, "mamba_d_head": size, "mamba_d_state": rng.choice((8, 16))}
    return own | {"mamba_n_groups": rng.choice((1, 2)), "mamba_chunk_size": 16, "mamba_conv_bias": True}


@special("mamba", "falcon_mamba")
def _first_mamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    inner = 2 * drawn["hidden_size"]
    return {"state_size": rng.choice((8, 16)), "expand": 2, "intermediate_size": inner, "hidden_act": "silu"}


@special("mamba2")
def _second_mamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size, groups = 8, rng.choice((1, 2))
    heads = {"head_dim": size, "num_heads": 2 * drawn["hidden_size"] // size, "n_groups": groups}
    return heads | {"state_size": rng.choice((8, 16)), "expand": 2, "chunk_size": 16, "hidden_act": "silu"}


@special("jamba")
def _jamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    where = {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1}
    where |= {"expert_layer_period": 2, "expert_layer_offset": rng.choice((0, 1)), "num_experts": rng.choice((1, 6))}
    chosen = {"num_experts_per_tok": min(2, where["num_experts"]), "sliding_window": None, "hidden_act": "silu"}
    return where | chosen | {"mamba_d_state": rng.choice((8, 16)), "mamba_conv_bias": True}


@special("bamba")
def _bamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    expand = {"mamba_expand": 2, "attn_layer_indices": [1], "hidden_act": "silu"}
    return _mamba2(rng, drawn, 2 * drawn["hidden_size"]) | expand


@special("falcon_h1")
def _falcon_h1(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    inner = 2 * drawn["hidden_size"]
    return _mamba2(rng, drawn, inner) | {"mamba_d_ssm": inner, "mamba_use_mlp": True, "hidden_act": "silu"}


@special("granitemoehybrid")
def _granite(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, experts = drawn["num_hidden_layers"], rng.choice((0, 6))
    own = {"layer_types": kinds_of_layers(rng, layers, "mamba", "attention"), "num_local_experts": experts}
    own |= {"num_experts_per_tok": min(2, experts), "shared_intermediate_size": 56, "hidden_act": "silu"}
    return _mamba2(rng, drawn, 2 * drawn["hidden_size"]) | own | {"mamba_expand": 2, "init_method": "mup"}


@special("nemotron_h")
def _nemotron(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size = 8
    own = {"layers_block_type": kinds_of_layers(rng, 4, "mamba", "moe", "attention", "mlp"), "chunk_size": 16}
    own |= {"mamba_num_heads": 2 * drawn["hidden_size"] // size, "mamba_head_dim": size, "n_groups": 2}
    own |= {"ssm_state_size": 16, "moe_shared_expert_intermediate_size": 56, "n_group": 1, "topk_group": 1}
    own |= {"sliding_window": None, "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "moe_latent_size": None}
    return own | {"attention_bias": False, "mamba_proj_bias": False, "use_conv_bias": True, "num_hidden_layers": 4}


@special("zamba", "zamba2")
def _zamba(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    hidden, heads = drawn["hidden_size"], drawn["num_attention_heads"]
    own = {"num_hidden_layers": 6, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid"]}
    own |= {"mamba_d_state": 8, "num_key_value_heads": heads, "attention_head_dim": 2 * hidden // heads}
    own |= {"attention_hidden_size": 2 * hidden, "mamba_conv_bias": True, "use_conv_bias": True, "use_mem_rope": True}
    own |= {"n_mamba_heads": 2 if drawn["model_type"] == "zamba" else 2 * hidden // 8, "mamba_ngroups": 2}
    own |= {"mamba_headdim": 8, "chunk_size": 16, "num_mem_blocks": 2, "adapter_rank": 8, "add_bias_linear": False}
    own |= {"use_shared_attention_adapter": rng.random() < 0.5, "tie_word_embeddings": True, "hidden_act": "gelu"}
    drawn.pop("head_dim", None)
    return known(drawn, own | {"hidden_mamba_act": "silu", "mamba_expand": 2, "use_long_context": False})


@special("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")
def _delta_net(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, keys = drawn["num_hidden_layers"], rng.choice((1, 2))
    values = keys if drawn["model_type"] == "olmo_hybrid" else 2 * keys
    own: dict[str, Any] = {"linear_num_key_heads": keys, "linear_num_value_heads": values, "linear_key_head_dim": 16}
    own |= {"linear_value_head_dim": rng.choice((16, 24)), "hidden_act": "silu", "attn_output_gate": True}
    own |= {"layer_types": kinds_of_layers(rng, layers, "linear_attention", "full_attention"), "mlp_only_layers": []}
    return known(drawn, own | {"head_dim": 16})


@special("kimi_linear", "bailing_hybrid")
def _kimi_delta(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own: dict[str, Any] = {
        "linear_num_heads": rng.choice((1, 2, 3)),
        "linear_head_dim": rng.choice((8, 16)),
        "head_dim": 16,
    }
    own |= {"layer_types": kinds_of_layers(rng, layers, "linear_attention", "full_attention"), "hidden_act": "silu"}
    groups = rng.choice((1, 2))
    chosen = {"num_experts": 6, "num_experts_per_token": rng.choice((1, 2, 3)), "num_expert_group": groups}
    chosen |= {"topk_group": rng.randint(1, groups), "num_shared_experts": rng.choice((1, 2))}
    return known(drawn, own) | chosen | {"rope_parameters": None}


@special("lfm2", "lfm2_moe")
def _convolutions(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own = {"layer_types": kinds_of_layers(rng, layers, "conv", "full_attention"), "block_auto_adjust_ff_dim": False}
    return known(drawn, own | {"num_dense_layers": 1, "block_use_swiglu": True})


@special("lfm3")
def _windows_too(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {
        "layer_types": kinds_of_layers(rng, 4, "conv", "full_attention", "sliding_attention"),
        "num_hidden_layers": 4,
    }
    return own | {"conv_L_cache": rng.choice((3, 7)), "head_dim": rng.choice((8, 16)), "sliding_window": 16}


@special("xlstm")
def _matrix_memory(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((1, 2, 4))
    own = {"hidden_size": 16 * heads * rng.choice((1, 2)), "num_heads": heads, "mode": "train"}
    own |= {"qk_dim_factor": rng.choice((0.5, 1.0)), "v_dim_factor": rng.choice((0.5, 1.0, 2.0))}
    own |= {"weight_mode": rng.choice(("single", "fused")), "ffn_round_up_to_multiple_of": rng.choice((16, 64))}
    own |= {"embedding_dim": own["hidden_size"], "num_blocks": drawn["num_hidden_layers"], "return_last_states": True}
    return own | {"norm_reduction_force_float32": True, "add_out_norm": True, "chunk_size": 16}


@special("qwen4_exp_text")
def _gated_streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    listed = kinds_of_layers(rng, drawn["num_hidden_layers"], "linear_attention", "indexed_attention")
    keys = rng.choice((1, 2))
    own = {"layer_types": listed, "head_dim": 16, "hc_count": rng.choice((2, 4)), "hc_lowrank": rng.choice((12, 20))}
    own |= {"linear_num_key_heads": keys, "linear_num_value_heads": 2 * keys, "linear_key_head_dim": 16}
    own |= {"linear_value_head_dim": rng.choice((16, 24)), "hidden_act": "silu", "eos_token_id": 1}
    own |= {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16}
    own |= {"indexer_compress_ratio": rng.choice((4, 8)), "output_gate_type": rng.choice((None, "silu", "sigmoid"))}
    own |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    if rng.random() < 0.6:
        own |= {"ple_layer_ids": [listed.index("linear_attention") + 1], "ple_embed_dim": 4 * rng.choice((4, 6))}
        own |= {"ngram_size": rng.choice((2, 3)), "heads_per_ngram": 2, "ngram_vocab_size_base": rng.choice((50, 97))}
        own |= {"make_ngram_vocab_size_divisible_by": 8, "ple_conv_kernel_size": rng.choice((3, 4))}
    return own


@special("minimax")
def _lightning(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"layer_types": kinds_of_layers(rng, drawn["num_hidden_layers"], "linear_attention", "full_attention")}
    return own | {"block_size": rng.choice((16, 20)), "sliding_window": None, "head_dim": 16}


@special("recurrent_gemma")
def _griffin(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"block_types": ["recurrent", "attention"], "lru_width": drawn["hidden_size"]}
    return own | {"attention_window_size": 128, "intermediate_size": 144, "embeddings_scale_by_sqrt_dim": True}


@special("rwkv")
def _rwkv(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"context_length": 128, "attention_hidden_size": drawn["hidden_size"]}


@special("glm5_next_text")
def _pools_and_streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads, pool = drawn["num_hidden_layers"], drawn["num_attention_heads"], rng.choice((2, 4))
    own: dict[str, Any] = {"layer_types": kinds_of_layers(rng, layers, "linear_attention", "indexed_attention")}
    own |= {"linear_num_heads": rng.choice((1, 2)), "linear_head_dim": rng.choice((8, 16)), "hidden_act": "silu"}
    own |= {"num_key_value_heads": heads, "qk_rope_head_dim": 0, "head_dim": 0, "q_lora_rank": 28}
    own |= {"index_kpool": pool, "index_topk": 4 * pool, "index_head_dim": rng.choice((8, 12)), "hc_mult": 2}
    own |= {"hc_sinkhorn_iters": 3, "indexer_types": ["full"] * layers, "n_shared_experts": rng.choice((1, 2))}
    return own | {"output_router_logits": False, "linear_lower_bound": rng.choice((None, -5.0))}

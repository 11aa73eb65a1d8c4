"""Fields of mixtures of experts."""

from __future__ import annotations

import random
from typing import Any

from special_configs.common import by_attention, kinds_of_layers, special

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k")


@special("flint")
def _dense_first(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"mlp_only_layers": rng.choice((None, [], [1]))}


@special("mimo_v2_flash")
def _twice_in_windows(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((2, 4, 8))
    own = {"num_attention_heads": heads, "num_key_value_heads": rng.choice([n for n in (1, 2) if heads % (2 * n) == 0])}
    own |= {"v_head_dim": rng.choice((8, 16, 24)), "head_dim": rng.choice((16, 24, 32)), "sliding_window": 16}
    return own | {"rope_parameters": rng.choice((None, by_attention(rng)))}


@special("laguna")
def _heads_by_layer(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kv_heads = drawn["num_key_value_heads"]
    heads = [kv_heads * rng.choice((1, 2, 3)) for _ in range(drawn["num_hidden_layers"])]
    own: dict[str, Any] = {
        "num_attention_heads_per_layer": rng.choice((None, heads)),
        "head_dim": rng.choice((8, 16, 24)),
    }
    own |= {"gating": rng.choice((True, "per-head", "per-element")), "moe_apply_router_weight_on_input": False}
    own |= {"moe_router_logit_softcapping": rng.choice((0.0, 30.0)), "sliding_window": rng.choice((16, 4096))}
    return own | {"rope_parameters": rng.choice((None, by_attention(rng)))}


@special("afmoe")
def _first_dense(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_dense_layers": rng.choice((0, 1)), "sliding_window": rng.choice((16, 4096))}


@special("mistral4")
def _whole_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Its rotary part is a share of this."""
    return {"head_dim": drawn["qk_nope_head_dim"] + drawn["qk_rope_head_dim"]}


@special("llama4_text")
def _chunks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = [rng.choice(("full_attention", "chunked_attention")) for _ in range(drawn["num_hidden_layers"])]
    return {"layer_types": rng.choice((None, kinds))}


@special("dbrx")
def _blocks_of_fields(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    width, heads = drawn.pop("d_model"), drawn["n_heads"]
    drop = drawn.get("resid_pdrop", 0.0)
    kv_heads = rng.choice([n for n in (1, 2, heads) if heads % n == 0])
    return {
        "d_model": width,
        "tie_word_embeddings": False,
        "num_key_value_heads": kv_heads,
        "attn_config": {"kv_n_heads": kv_heads, "clip_qkv": 8.0, "attn_pdrop": drop, "rope_theta": 10000.0},
        "ffn_config": {
            "ffn_hidden_size": rng.choice((24, 40)),
            "hidden_size": width,
            "moe_num_experts": 3,
            "moe_top_k": rng.choice((2, 3)),
            "moe_jitter_eps": rng.choice((None, 0.01)),
        },
    }


@special("deepseek_v4")
def _streams_and_runs(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], drawn["num_attention_heads"]
    kinds = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
    own: dict[str, Any] = {"layer_types": rng.choice((None, [rng.choice(kinds) for _ in range(layers)]))}
    own |= {"mlp_layer_types": rng.choice((None, [rng.choice(("hash_moe", "moe")) for _ in range(layers)]))}
    own |= {"compress_rates": {kinds[1]: rng.choice((4, 6)), kinds[2]: rng.choice((16, 20))}}
    own |= {"head_dim": rng.choice((16, 24, 32)), "partial_rotary_factor": 0.25, "sliding_window": 16}
    own |= {"index_head_dim": rng.choice((8, 12)), "hc_mult": rng.choice((1, 2, 4)), "hc_sinkhorn_iters": 3}
    own |= {"o_groups": rng.choice((1, 2, heads)), "o_lora_rank": rng.choice((12, 20)), "norm_topk_prob": True}
    if own["mlp_layer_types"] is None or "moe" not in own["mlp_layer_types"]:
        own |= {"output_router_logits": False, "num_hash_layers": 1, "mlp_layer_types": None}
    return own


@special("minimax_m3_vl_text")
def _blocks_of_keys(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], drawn["num_attention_heads"]
    drawn.pop("partial_rotary_factor", None)
    own: dict[str, Any] = {"layer_types": [rng.choice(("full_attention", "minimax_m3_sparse")) for _ in range(layers)]}
    own |= {"index_n_heads": rng.choice((1, 2)) if heads % 2 == 0 else 1, "index_head_dim": rng.choice((24, 32))}
    own |= {"index_block_size": 8, "index_topk_blocks": rng.choice((2, 4)), "index_local_blocks": 1}
    own |= {"head_dim": rng.choice((16, 24)), "dense_intermediate_size": rng.choice((72, 104))}
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": rng.choice((0.5, 1.0))}
    return own | {"shared_intermediate_size": 56, "rope_parameters": rope}


@special("dots3_note_text")
def _sizes_by_kind(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], rng.choice((2, 3))
    kinds = [rng.choice(("full_attention", "sliding_attention", "indexed_attention")) for _ in range(layers)]
    plain, rotary = rng.choice((8, 16)), rng.choice((8, 16))
    near = {"num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": 20, "kv_lora_rank": 28}
    near |= {"head_dim": plain + rotary, "qk_nope_head_dim": plain, "qk_rope_head_dim": rotary}
    near |= {"v_head_dim": rng.choice((12, 24, plain + rotary))}
    own = {"sliding_window": rng.choice((16, 4096)), "shared_experts_intermediate_size": rng.choice((24, 56))}
    own |= {"q_lora_rank": rng.choice((24, 36)), "norm_topk_prob": rng.random() < 0.5}
    own |= {"head_dim": 2 * drawn["qk_rope_head_dim"]}
    own["index_head_dim"] = drawn["qk_rope_head_dim"] + rng.choice((0, 8))
    if rng.random() < 0.5:  # as published files say it
        swa = {f"swa_{name}": value for name, value in near.items()}
        listed = [kind if kind == "sliding_attention" else "full_attention" for kind in kinds]
        return own | swa | {"layer_types": rng.choice((None, listed)), "use_dsa": rng.random() < 0.6}
    by_layer = {str(i): near for i, kind in enumerate(kinds) if kind == "sliding_attention"}
    return own | {"layer_types": kinds, "per_layer_config": by_layer}


@special("inkling_text")
def _by_distance(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads = drawn["num_hidden_layers"], rng.choice((2, 4))
    own: dict[str, Any] = {
        "layer_types": rng.choice((None, [rng.choice(("hybrid", "hybrid_sliding")) for _ in range(layers)]))
    }
    own |= {
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": rng.choice((1, 2)),
        "d_rel": rng.choice((8, 12)),
    }
    own |= {
        "swa_head_dim": rng.choice((16, 24)),
        "head_dim": rng.choice((8, 16)),
        "conv_kernel_size": rng.choice((3, 4)),
    }
    own |= {"rel_extent": rng.choice((12, 64)), "sliding_window_size": rng.choice((16, 4096))}
    own |= {"log_scaling_n_floor": rng.choice((None, 8)), "local_layer_ids": rng.choice((None, [0], [1]))}
    return own | {"unpadded_vocab_size": rng.choice((None, 90)), "hidden_act": "silu", "tie_word_embeddings": False}


@special("longcat_flash")
def _all_with_weights(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """How many tokens reach experts without weights is not known before the step; its code takes no single choice."""
    return {"zero_expert_num": 0, "n_routed_experts": 3, "moe_topk": 2, "num_layers": 2}


def experts_and_ranks(rng: random.Random, own: dict[str, Any], layers: int, heads: int) -> dict[str, Any]:
    """Draw what mixtures of experts and latent attention have in addition to the other sizes."""
    experts, groups = rng.choice((4, 5, 6, 7)), 1
    chosen = rng.choice((1, 2, 3, experts))
    if "n_group" in own and rng.random() < 0.4:
        experts, groups, chosen = 6, 2, min(chosen, 3)
    rotary, plain = rng.choice((8, 16)), rng.choice((8, 16, 24))
    choices: dict[str, Any] = {
        **dict.fromkeys(EXPERTS, experts),
        **dict.fromkeys(CHOSEN, chosen),
        **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), rng.choice((24, 40, 56))),
        "n_group": groups,
        "topk_group": rng.randint(1, groups),
        "topk_method": rng.choice(("greedy", "group_limited_greedy")) if groups > 1 else "greedy",
        "shared_expert_intermediate_size": rng.choice((56, 88)),
        "shared_intermediate_size": rng.choice((0, 56)),
        **dict.fromkeys(("n_shared_experts", "num_shared_experts"), rng.choice((1, 2))),
        "moe_num_shared_experts": rng.choice((0, 1, 2)),
        "decoder_sparse_step": rng.choice((1, 2)),
        "mlp_only_layers": rng.choice(([], [0])),
        "mlp_layer_types": [rng.choice(("dense", "sparse")) for _ in range(layers - 1)] + ["sparse"],
        "first_k_dense_replace": rng.choice((0, 1)),
        "moe_layer_start_index": rng.choice((0, 1)),
        "interleave_moe_layer_step": rng.choice((1, 2)),
        "no_rope_layers": [rng.choice((0, 1)) for _ in range(layers)],
        "output_router_logits": rng.random() < 0.3,
        **{name: rng.choice((0.0, 0.01)) for name in own if "jitter" in name},
        "kv_lora_rank": rng.choice((20, 24, 32)),
        "q_lora_rank": rng.choice((28, 32) if "index_topk" in own or "moe_topk" in own else (None, 28, 32)),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": plain,
        "v_head_dim": rng.choice((16, 24, plain + rotary)),
        "index_n_heads": rng.choice((2, 3)),
        "index_head_dim": rotary + rng.choice((0, 8)),
        "index_topk": rng.choice((4, 16, 128)),
        "indexer_types": rng.choice((None, ["full"] + ["shared"] * (layers - 1))),
    }
    found = {name: value for name, value in choices.items() if name in own or name == "output_router_logits"}
    if "kv_lora_rank" in own:
        found |= {"num_key_value_heads": heads, "head_dim": rotary}
    return found


@special("zaya")
def _compressed(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = kinds_of_layers(rng, drawn["num_hidden_layers"], "hybrid", "hybrid_sliding")
    shares = {kind: rng.choice((0.25, 0.5, 1.0)) for kind in set(kinds)}
    ropes = {
        kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
        for kind, share in shares.items()
    }
    own = {"layer_types": kinds, "rope_parameters": ropes, "sliding_window": rng.choice((16, 4096))}
    own |= {"router_hidden_size": rng.choice((16, 24)), "num_experts_per_tok": 1, "head_dim": rng.choice((8, 16))}
    return own | {"cca_time0": rng.choice((2, 3)), "cca_time1": rng.choice((2, 3)), "output_router_logits": False}


@special("mistral_large4_text")
def _temperatures(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    drawn.pop("layer_types", None)
    rotary = [rng.choice((0, 1)) for _ in range(layers)]
    sources = [next((j for j in range(i) if rotary[j] == rotary[i] and i % 2), i) for i in range(layers)]
    own: dict[str, Any] = {"no_rope_layers": rng.choice((None, rotary)), "n_shared_experts": rng.choice((1, 2))}
    own |= {"kv_source_layers": sources if own["no_rope_layers"] is not None and rng.random() < 0.5 else None}
    return own | {"final_logit_softcapping": 30.0, "index_head_dim": drawn["qk_rope_head_dim"] + rng.choice((0, 8))}


@special("inkling2_text")
def _block_sums(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {k: v for k, v in _by_distance(rng, drawn).items() if k != "local_layer_ids"}
    own |= {"unpadded_vocab_size": rng.choice((drawn["vocab_size"], 90)), "log_scaling_n_floor": 8}
    own |= {"n_layers_per_attn_res_block": rng.choice((1, 2, 3, 6)), "final_logit_softcapping": 30.0}
    return own | {"scoring_func": "sigmoid", "log_scaling_alpha": 0.1}


@special("inkling2_loop_text")
def _looped_blocks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own, every = _block_sums(rng, drawn), rng.choice((1, 2))
    layers = 3 * every + rng.choice((0, 1))
    own |= {"n_layers_per_attn_res_block": every, "num_hidden_layers": layers, "loop_gate_rank": rng.choice((8, 12))}
    own |= {"layer_types": [rng.choice(("hybrid", "hybrid_sliding")) for _ in range(layers)]}
    own |= {"loop_layer_index_start": every, "loop_layer_index_end": every * rng.choice((2, 3))}
    return own | {"loop_num_passes": rng.choice((1, 2, 3))}


@special("hy_v4_vl_text")
def _sections(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Give the sections of the rotated elements, which the class checks."""
    half = drawn["qk_rope_head_dim"] // 2
    rotated = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [half - half // 3 * 2, half // 3, half // 3]}
    return {"rope_parameters": rotated}

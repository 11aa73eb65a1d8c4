"""Fields that a general draw of a config.json cannot make: what one model type or a few need (drawn_configs.py)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import transformers

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k")


SPECIAL: dict[str, Callable[[random.Random, dict[str, Any]], dict[str, Any]]] = {}
"""Fields that the general draw cannot make, by model type."""


def special(*model_types: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    def remember(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        SPECIAL.update(dict.fromkeys(model_types, function))
        return function

    return remember


@special("gptj")
def _rotary_dim(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"rotary_dim": rng.choice((4, 8))}


@special("codegen")
def _heads_in_fours(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((4, 8))
    return {"n_head": heads, "n_embd": heads * rng.choice((8, 16)), "rotary_dim": rng.choice((4, 8))}


@special("granite_swa", "granitemoe_swa")
def _rotary_bases(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    bases = [rng.choice((0, 1e4, 5e5)) for _ in range(drawn["num_hidden_layers"])]
    return {"layer_rope_theta": rng.choice((None, bases))}


@special("diffllama")
def _even_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_key_value_heads": rng.choice((2, drawn["num_attention_heads"]))}


@special("doge")
def _dynamic_mask(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"keep_window_size": rng.choice((16, 2048)), "is_moe": rng.random() < 0.5, "output_router_logits": False}
    return own | {"num_experts": rng.choice((16, 30)), "num_experts_per_tok": rng.choice((1, 2, 5))}


@special("gpt_neox_japanese")
def _times_as_wide(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    turned = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": rng.choice((0.5, 1.0))}
    return {"intermediate_multiple_size": rng.choice((2, 3, 4)), "rope_parameters": turned}


@special("flint")
def _dense_first(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"mlp_only_layers": rng.choice((None, [], [1]))}


@special("gpt_bigcode")
def _said_by_multi_query(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    del drawn["num_key_value_heads"]
    return {}


@special("openai-gpt")
def _its_own_functions(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"afn": rng.choice(("gelu", "relu", "silu"))}


@special("apertus")
def _only_function(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"hidden_act": "xielu"}


@special("helium", "hunyuan_v1_dense", "ministral")
def _stated_head(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Give the size that these classes do not derive."""
    return {"head_dim": drawn["hidden_size"] // drawn["num_attention_heads"]}


@special("internlm3")
def _one_flag(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"mlp_bias": drawn["attention_bias"]}


@special("opt")
def _narrow_table(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"word_embed_proj_dim": rng.choice((drawn["hidden_size"], 40))}


def _by_attention(rng: random.Random, none: bool = False) -> dict[str, Any]:
    """Rotary positions of each kind of attention."""
    shares = {kind: rng.choice((0.25, 0.5, 1.0)) for kind in ("full_attention", "sliding_attention")}
    parts = {k: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": v} for k, v in shares.items()}
    return parts | {"full_attention": None} if none and rng.random() < 0.7 else parts


@special("mimo_v2_flash")
def _twice_in_windows(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    heads = rng.choice((2, 4, 8))
    own = {"num_attention_heads": heads, "num_key_value_heads": rng.choice([n for n in (1, 2) if heads % (2 * n) == 0])}
    own |= {"v_head_dim": rng.choice((8, 16, 24)), "head_dim": rng.choice((16, 24, 32)), "sliding_window": 16}
    return own | {"rope_parameters": rng.choice((None, _by_attention(rng)))}


@special("pegasus_x")
def _pegasus_x(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw blocks that sequences fill or do not, and global tokens."""
    blocks = {"block_size": rng.choice((4, 16, 32)), "num_global_tokens": rng.choice((1, 2, 6))}
    return blocks | {"encoder_layers": rng.choice((1, 2, 3, 4)), "decoder_start_token_id": 0}


@special("mra")
def _mra(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw few or all blocks of 32 tokens, of heads that are padded to 32 elements or are not."""
    heads, size = rng.choice((2, 4)), rng.choice((8, 32, 40))
    blocks = {"block_per_row": rng.choice((1, 2, 4)), "max_position_embeddings": rng.choice((64, 96, 128))}
    chosen = {"initial_prior_first_n_blocks": rng.choice((0, 1)), "initial_prior_diagonal_n_blocks": rng.choice((0, 1))}
    width = {"num_attention_heads": heads, "hidden_size": heads * size}
    return blocks | chosen | width | {"approx_mode": rng.choice(("full", "sparse")), "add_cross_attention": False}


@special("convbert")
def _convbert(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw heads of which a part, or all but one, is a convolution's."""
    heads, size = rng.choice((4, 6)), rng.choice((8, 12))
    width = {"num_attention_heads": heads, "hidden_size": heads * size, "intermediate_size": rng.choice((72, 144))}
    embedded = {"embedding_size": rng.choice((heads * size, 24))}
    mixed = {"head_ratio": rng.choice((1, 2, 8)), "conv_kernel_size": rng.choice((3, 9))}
    return width | embedded | mixed | {"num_groups": rng.choice((1, 2)), "is_decoder": False}


@special("cpmant")
def _cpmant(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw a prompt, with few buckets and segments."""
    prompt = {"prompt_length": rng.choice((1, 7, 32)), "prompt_types": rng.choice((3, 4))}
    biases = {"segment_types": rng.choice((3, 4)), "position_bias_num_buckets": rng.choice((16, 32))}
    return prompt | biases | {"dim_head": rng.choice((8, 16, 20)), "dim_ff": rng.choice((72, 104))}


@special("big_bird", "bigbird_pegasus")
def _blocks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"block_size": rng.choice((2, 4, 64)), "num_random_blocks": rng.choice((1, 2))}


@special("prophetnet")
def _predicted(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {f"num_{side}_{what}": rng.choice((2, 3)) for side in ("encoder", "decoder") for what in ("layers",)}
    own |= {f"num_{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    own |= {"hidden_size": 4 * rng.choice((8, 12)), "encoder_ffn_dim": 72, "decoder_ffn_dim": 56}
    own |= {"max_position_embeddings": 128, "pad_token_id": 0}
    return own | {"ngram": rng.choice((1, 2, 3)), "num_buckets": rng.choice((8, 32)), "tie_word_embeddings": True}


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


@special("apertus1p5_text")
def _fewer_outputs(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    rows = None if drawn["tie_word_embeddings"] else rng.choice((None, 80))
    return {"hidden_act": "xielu", "output_vocab_size": rows}


@special("xmod")
def _languages(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"languages": rng.choice((["en_XX"], ["en_XX", "de_DE", "fr_XX"])), "default_language": "en_XX"}
    return own | {"pre_norm": False, "adapter_layer_norm": False}


@special("reformer")
def _chunks_and_hashes(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    drawn.pop("num_hidden_layers", None)
    size, local, hashed = rng.choice((8, 12)), rng.choice((8, 16, 64)), rng.choice((8, 16, 64))
    own = {"attn_layers": rng.sample(["local", "lsh", "local", "lsh"], 3), "is_decoder": False, "hidden_size": 32}
    own |= {"axial_pos_embds": False, "attention_head_size": size, "feed_forward_size": 48, "num_attention_heads": 2}
    own |= {"local_attn_chunk_length": local, "lsh_attn_chunk_length": hashed, "num_hashes": rng.choice((1, 2))}
    own |= {"num_buckets": rng.choice((None, 4, [2, 4])), "max_position_embeddings": 64}
    return own | {"local_num_chunks_after": 0, "lsh_num_chunks_after": 0, "tie_word_embeddings": False}


@special("hrm_text")
def _in_turns(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    drawn.pop("head_dim", None)
    heads = drawn["num_attention_heads"]
    own: dict[str, Any] = {"num_hidden_layers": rng.choice((1, 2))}
    own |= {"H_cycles": rng.choice((1, 2, 3)), "L_cycles": rng.choice((1, 3))}
    own |= {"head_dim": drawn["hidden_size"] // heads, "num_layers_per_stack": None}
    return own | {"L_bp_cycles": rng.choice((None, [1], [2, 1]))}


@special("xlnet")
def _one_stream(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"d_inner": rng.choice((72, 104)), "ff_activation": rng.choice(("gelu", "relu"))}
    return own | {"attn_type": rng.choice(("bi", "uni")), "bi_data": False, "use_mems_train": False}


@special("whisper")
def _sound(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    lengths = {"max_source_positions": rng.choice((32, 33, 40)), "max_target_positions": 64}
    return lengths | {"num_mel_bins": rng.choice((8, 12)), "apply_spec_augment": False}


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
    return own | {"rope_parameters": rng.choice((None, _by_attention(rng)))}


@special("afmoe")
def _first_dense(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_dense_layers": rng.choice((0, 1)), "sliding_window": rng.choice((16, 4096))}


@special("aria_text")
def _some_shared(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"moe_num_shared_experts": rng.choice((1, 2))}


@special("beam")
def _unrotated_in_full(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"rope_parameters": rng.choice((None, _by_attention(rng, True))), "sliding_window": rng.choice((16, 4096))}
    return own | {"head_dim": rng.choice((8, 16, 24))}


@special("cohere2_moe")
def _dense_prefix(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"expert_selection_fn": rng.choice(("softmax", "sigmoid")), "rms_norm_eps": rng.choice((None, 1e-6))}
    own |= {"shared_expert_combination_strategy": rng.choice(("average", "sum"))}
    own |= {"num_shared_experts": rng.choice((0, 2))}
    own |= {"prefix_dense_intermediate_size": rng.choice((None, 56)), "sliding_window": rng.choice((16, 4096))}
    own |= {"prefix_dense_sliding_window_pattern": rng.choice((1, 2)), "head_dim": rng.choice((8, 16, 24))}
    if rng.random() < 0.5:
        del drawn["mlp_layer_types"]
        own["first_k_dense_replace"] = rng.choice((0, 1, 2))
    return own


@special("cohere_compass_text")
def _three_axes(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    part = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    kinds = {"full_attention": rng.choice((None, part)), "sliding_attention": part}
    drawn.pop("head_dim", None)
    return {"rope_parameters": kinds, "sliding_window": rng.choice((16, 4096))}


@special("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm4v_moe_text")
def _parts_of_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Angles of a head in three parts: time, height and width."""
    drawn.pop("head_dim", None)
    heads, share = drawn["num_attention_heads"], 0.5 if drawn["model_type"].startswith("glm") else 1.0
    angles = int(drawn["hidden_size"] // heads * share) // 2
    part = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
    return {"rope_parameters": part | {"mrope_section": [angles - 2 * (angles // 3), angles // 3, angles // 3]}}


@special("qwen3_vl_moe_text")
def _no_window(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    del drawn["sliding_window"]
    return {}


@special("mistral4")
def _whole_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Its rotary part is a share of this."""
    return {"head_dim": drawn["qk_nope_head_dim"] + drawn["qk_rope_head_dim"]}


@special("phi4_multimodal")
def _little_senses(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = {**size, "image_size": 28, "patch_size": 14}
    audio = {**{k: v for k, v in size.items() if k != "num_hidden_layers"}, "num_blocks": 1, "nemo_conv_channels": 32}
    return {"vision_config": vision, "audio_config": audio, "num_key_value_heads": drawn["num_key_value_heads"]}


@special("gpt_neo")
def _kinds_of_attention(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"attention_types": [[["global", "local"], drawn["num_layers"] // 2]]}


@special("mpt")
def _attention_config(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"attn_config": {"clip_qkv": rng.choice((None, 8.0))}, "no_bias": True}


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


def _start(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Tokens that a decoder begins and ends with; facts that the class has in no other way."""
    own = {"decoder_start_token_id": 1, "forced_eos_token_id": None, "is_encoder_decoder": True}
    return own | _known(drawn, {"tie_word_embeddings": True, "use_prompt": False})


special("bart", "blenderbot", "blenderbot-small", "m2m_100", "mbart", "mvp", "pegasus", "plbart")(_start)


@special("marian")
def _one_table(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    alike = {"decoder_vocab_size": drawn["vocab_size"], "share_encoder_decoder_embeddings": True}
    return _start(rng, drawn) | alike | {"tie_word_embeddings": True}


@special("t5", "mt5", "umt5")
def _two_stacks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    feed = rng.choice(("relu", "gated-gelu", "gated-silu"))
    gated = {"feed_forward_proj": feed, "is_gated_act": feed.startswith("gated"), "tie_word_embeddings": True}
    sizes = {"d_kv": rng.choice((8, 16, 24)), "relative_attention_num_buckets": 32}
    return gated | sizes | {"decoder_start_token_id": 0, "is_encoder_decoder": True, "scalable_attention": False}


@special("udop")
def _page(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    feed = rng.choice(("relu", "gated-gelu"))
    own = _two_stacks(rng, drawn) | {"feed_forward_proj": feed, "is_gated_act": feed != "relu"}
    kinds = [{"type": "1d"}, {"type": "horizontal"}, {"type": "vertical"}]
    own |= {"relative_bias_args": rng.choice((None, kinds, kinds[:2])), "max_2d_position_embeddings": 50}
    return own | {"image_size": 32, "patch_size": rng.choice((8, 16)), "is_decoder": False}


@special("switch_transformers")
def _sparse_stacks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    sparse = [rng.choice((0, 1, 2)) for _ in range(2)]
    own: dict[str, Any] = {
        "num_sparse_encoder_layers": sparse[0],
        "num_sparse_decoder_layers": sparse[1],
        "num_experts": 2,
    }
    own |= {"expert_capacity": 64, "router_jitter_noise": rng.choice((0.0, 0.01)), "router_dtype": "float32"}
    own |= {"d_kv": rng.choice((8, 16, 24)), "relative_attention_num_buckets": 32, "decoder_start_token_id": 0}
    return own | {"dense_act_fn": rng.choice(("relu", "gelu")), "tie_word_embeddings": True, "is_encoder_decoder": True}


@special("nllb-moe")
def _sparse_translation(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"encoder_sparse_step": rng.choice((0, 1, 2)), "decoder_sparse_step": rng.choice((0, 1, 2))}
    own |= {"expert_capacity": 256, "router_dtype": "float32", "moe_token_dropout": 0.0, "output_router_logits": False}
    return _start(rng, drawn) | own | {"second_expert_policy": "all"}


@special("albert", "electra")
def _narrow_tokens(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    groups = {"num_hidden_groups": rng.choice((1, 2)), "inner_group_num": rng.choice((1, 2))}
    return {"embedding_size": rng.choice((drawn["hidden_size"], 40)), "tie_word_embeddings": True} | (
        groups if drawn["model_type"] == "albert" else {}
    )


@special("bert", "camembert", "data2vec-text", "megatron-bert", "roberta", "roberta-prelayernorm", "xlm-roberta")
@special("distilbert", "gte", "jina_embeddings_v3", "mpnet", "nomic_bert", "xlm-roberta-xl")
def _tied(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return _known(drawn, {"tie_word_embeddings": True, "is_decoder": False, "tie_weights_": True})


@special("esm")
def _proteins(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {
        "position_embedding_type": rng.choice(("absolute", "rotary")),
        "token_dropout": rng.random() < 0.5,
    }
    own |= {"emb_layer_norm_before": rng.random() < 0.5, "is_folding_model": False, "pad_token_id": 1}
    return _tied(rng, drawn) | own | {"mask_token_id": 4, "vocab_size": rng.choice((97, 160))}


@special("longformer", "led")
def _bands(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn.get("num_hidden_layers") or drawn["encoder_layers"]
    window = rng.choice((8, 16, [rng.choice((8, 16)) for _ in range(layers)]))
    lengths = dict.fromkeys(("max_position_embeddings", "max_encoder_position_embeddings"), 256)
    own = {"attention_window": window, "onnx_export": False, "tie_word_embeddings": True} | lengths
    if drawn["model_type"] == "led":
        own |= _start(rng, drawn) | {"max_decoder_position_embeddings": 128}
    return _known(drawn, own)


@special("bert-generation")
def _either_way(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"tie_word_embeddings": True, "is_decoder": rng.random() < 0.5, "add_cross_attention": False}


@special("mobilebert")
def _bottlenecks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    hidden, shared, between = drawn["hidden_size"], rng.random() < 0.5, rng.random() < 0.8
    own: dict[str, Any] = {
        "key_query_shared_bottleneck": shared,
        "use_bottleneck_attention": not shared,
        "use_bottleneck": between,
    }
    own |= {"intra_bottleneck_size": 2 * drawn["num_attention_heads"], "embedding_size": hidden // 2}
    own |= {"num_feedforward_networks": rng.choice((1, 2, 4)), "trigram_input": rng.random() < 0.5}
    return _tied(rng, drawn) | own | {"normalization_type": rng.choice(("no_norm", "layer_norm"))}


@special("rembert", "roformer")
def _narrow_input(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    narrow = rng.choice((drawn["hidden_size"], 40))
    if drawn["model_type"] == "roformer":
        return _tied(rng, drawn) | {"embedding_size": narrow, "rotary_value": False}
    return {"input_embedding_size": narrow, "output_embedding_size": rng.choice((48, 72)), "tie_word_embeddings": False}


@special("ernie")
def _no_tasks(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return _tied(rng, drawn) | {"use_task_id": False}


@special("modernbert", "modernbert-decoder")
def _locally(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    for name in ("layer_types", "sliding_window"):
        drawn.pop(name, None)
    return {"local_attention": rng.choice((8, 128)), "global_attn_every_n_layers": rng.choice((1, 2, 3))}


@special("deberta")
def _distances_one_by_one(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = rng.choice((["c2p", "p2c"], ["p2c"], ["c2p"]))
    own = {"relative_attention": rng.random() < 0.8, "pos_att_type": kinds, "legacy": True}
    own |= {"max_relative_positions": rng.choice((-1, 12, 512)), "type_vocab_size": rng.choice((0, 2))}
    return own | {"position_biased_input": rng.random() < 0.5, "tie_word_embeddings": True}


@special("deberta-v2")
def _distances(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    own |= {"max_relative_positions": -1, "share_att_key": True, "norm_rel_ebd": "layer_norm", "legacy": True}
    own |= {"position_biased_input": rng.random() < 0.5, "type_vocab_size": 0, "tie_word_embeddings": True}
    return own | {"conv_kernel_size": rng.choice((0, 3)), "conv_act": "gelu"}


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


def _known(drawn: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Of fields that several model types share, those that this one has."""
    own = transformers.AutoConfig.for_model(drawn["model_type"]).to_dict()
    return {name: value for name, value in fields.items() if name in own}


def _kinds(rng: random.Random, layers: int, *kinds: str) -> list[str]:
    """Draw a type for each layer; each type at least once."""
    listed = [*kinds, *(rng.choice(kinds) for _ in range(layers))][:layers]
    return rng.sample(listed, layers)


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
    own = {"layer_types": _kinds(rng, layers, "mamba", "attention"), "num_local_experts": experts}
    own |= {"num_experts_per_tok": min(2, experts), "shared_intermediate_size": 56, "hidden_act": "silu"}
    return _mamba2(rng, drawn, 2 * drawn["hidden_size"]) | own | {"mamba_expand": 2, "init_method": "mup"}


@special("nemotron_h")
def _nemotron(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size = 8
    own = {"layers_block_type": _kinds(rng, 4, "mamba", "moe", "attention", "mlp"), "chunk_size": 16}
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
    return _known(drawn, own | {"hidden_mamba_act": "silu", "mamba_expand": 2, "use_long_context": False})


@special("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")
def _delta_net(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, keys = drawn["num_hidden_layers"], rng.choice((1, 2))
    values = keys if drawn["model_type"] == "olmo_hybrid" else 2 * keys
    own: dict[str, Any] = {"linear_num_key_heads": keys, "linear_num_value_heads": values, "linear_key_head_dim": 16}
    own |= {"linear_value_head_dim": rng.choice((16, 24)), "hidden_act": "silu", "attn_output_gate": True}
    own |= {"layer_types": _kinds(rng, layers, "linear_attention", "full_attention"), "mlp_only_layers": []}
    return _known(drawn, own | {"head_dim": 16})


@special("kimi_linear", "bailing_hybrid")
def _kimi_delta(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own: dict[str, Any] = {
        "linear_num_heads": rng.choice((1, 2, 3)),
        "linear_head_dim": rng.choice((8, 16)),
        "head_dim": 16,
    }
    own |= {"layer_types": _kinds(rng, layers, "linear_attention", "full_attention"), "hidden_act": "silu"}
    groups = rng.choice((1, 2))
    chosen = {"num_experts": 6, "num_experts_per_token": rng.choice((1, 2, 3)), "num_expert_group": groups}
    chosen |= {"topk_group": rng.randint(1, groups), "num_shared_experts": rng.choice((1, 2))}
    return _known(drawn, own) | chosen | {"rope_parameters": None}


def _shared_keys(rng: random.Random) -> dict[str, Any]:
    """Layers of both kinds, the last of which share the keys and values of those before."""
    layers = rng.choice((4, 5))
    kinds = [*_kinds(rng, layers - 2, "full_attention", "sliding_attention"), "sliding_attention", "full_attention"]
    shared = {"num_kv_shared_layers": rng.choice((0, 2)), "hidden_size_per_layer_input": rng.choice((8, 12))}
    sizes = {"vocab_size_per_layer_input": rng.choice((80, 97)), "head_dim": rng.choice((8, 16, 20, 24))}
    window = {"sliding_window": rng.choice((16, 4096))}
    return shared | sizes | window | {"num_hidden_layers": layers, "layer_types": kinds}


@special("gemma4_text", "gemma4_unified_text")
def _two_sizes_of_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = _shared_keys(rng)
    if drawn["model_type"] == "gemma4_text" and rng.random() < 0.5:  # keys are shared with inputs of layers' own alone
        own |= {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
    mixture = rng.random() < 0.5
    experts = {"num_experts": 5, "top_k_experts": rng.choice((1, 2)), "moe_intermediate_size": rng.choice((24, 40))}
    own |= {"enable_moe_block": mixture, **(experts if mixture else dict.fromkeys(experts))}
    drawn.pop("per_layer_config", None)
    kv_heads = rng.choice([n for n in (1, 2) if drawn["num_attention_heads"] % n == 0])
    full = {"global_head_dim": rng.choice((16, 32, 264)), "num_global_key_value_heads": rng.choice((None, kv_heads))}
    return _known(drawn, own) | full


@special("gemma3n_text")
def _streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = _shared_keys(rng)
    layers = own["num_hidden_layers"]
    own |= {"altup_num_inputs": rng.choice((2, 3, 4)), "altup_active_idx": rng.choice((0, 1)), "laurel_rank": 12}
    own |= {"altup_correct_scale": True, "altup_coef_clip": 120.0, "final_logit_softcapping": 30.0}
    own |= {"intermediate_size": [rng.choice((72, 104)) for _ in range(layers)]}
    return own | {"activation_sparsity_pattern": [rng.choice((0.0, 0.95)) for _ in range(layers)]}


def _one_side(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    """Sizes of an encoder or a decoder."""
    heads, layers = rng.choice((2, 4, 6)), rng.choice((2, 3))
    sizes: dict[str, Any] = {
        "hidden_size": heads * rng.choice((8, 12, 16)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    sizes |= {"num_key_value_heads": rng.choice([n for n in (1, 2, heads) if heads % n == 0])}
    sizes |= {"head_dim": rng.choice((8, 16, 20, 24)), "intermediate_size": rng.choice((72, 104))}
    sizes |= {"vocab_size": rng.choice((97, 160)), "hidden_activation": rng.choice(("gelu_pytorch_tanh", "silu"))}
    sizes |= {"sliding_window": rng.choice((16, 4096)), "attention_bias": rng.random() < 0.5}
    sizes |= {"layer_types": _kinds(rng, layers, "full_attention", "sliding_attention")}
    return sizes | {name: rng.choice((None, 30.0)) for name in names}


@special("t5gemma")
def _two_sides(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    sides = {name: _one_side(rng, caps) for name in ("encoder", "decoder")}
    return sides | {"is_encoder_decoder": True, "bos_token_id": 1, "pad_token_id": 0}


@special("t5gemma2")
def _one_table_for_both(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    text, decoder = (_one_side(rng, ("final_logit_softcapping",)) for _ in range(2))
    heads = decoder["num_attention_heads"]
    alike = {name: text[name] for name in ("vocab_size", "hidden_size")}
    decoder |= alike | {"num_attention_heads": heads if alike["hidden_size"] % heads == 0 else 2}
    decoder["num_key_value_heads"] = rng.choice([n for n in (1, 2) if decoder["num_attention_heads"] % n == 0])
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    senses = {"vision_config": vision | {"image_size": 32, "patch_size": 8}, "mm_tokens_per_image": 4}
    return {"encoder": {"text_config": text, **senses}, "decoder": decoder, "is_encoder_decoder": True}


@special("lfm2", "lfm2_moe")
def _convolutions(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own = {"layer_types": _kinds(rng, layers, "conv", "full_attention"), "block_auto_adjust_ff_dim": False}
    return _known(drawn, own | {"num_dense_layers": 1, "block_use_swiglu": True})


@special("lfm3")
def _windows_too(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"layer_types": _kinds(rng, 4, "conv", "full_attention", "sliding_attention"), "num_hidden_layers": 4}
    return own | {"conv_L_cache": rng.choice((3, 7)), "head_dim": rng.choice((8, 16)), "sliding_window": 16}


@special("zaya")
def _compressed(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    kinds = _kinds(rng, drawn["num_hidden_layers"], "hybrid", "hybrid_sliding")
    shares = {kind: rng.choice((0.25, 0.5, 1.0)) for kind in set(kinds)}
    ropes = {
        kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
        for kind, share in shares.items()
    }
    own = {"layer_types": kinds, "rope_parameters": ropes, "sliding_window": rng.choice((16, 4096))}
    own |= {"router_hidden_size": rng.choice((16, 24)), "num_experts_per_tok": 1, "head_dim": rng.choice((8, 16))}
    return own | {"cca_time0": rng.choice((2, 3)), "cca_time1": rng.choice((2, 3)), "output_router_logits": False}


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
    listed = _kinds(rng, drawn["num_hidden_layers"], "linear_attention", "indexed_attention")
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
    own = {"layer_types": _kinds(rng, drawn["num_hidden_layers"], "linear_attention", "full_attention")}
    return own | {"block_size": rng.choice((16, 20)), "sliding_window": None, "head_dim": 16}


@special("recurrent_gemma")
def _griffin(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"block_types": ["recurrent", "attention"], "lru_width": drawn["hidden_size"]}
    return own | {"attention_window_size": 128, "intermediate_size": 144, "embeddings_scale_by_sqrt_dim": True}


@special("rwkv")
def _rwkv(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"context_length": 128, "attention_hidden_size": drawn["hidden_size"]}


@special("idefics")
def _skipped_layers(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {
        "cross_layer_interval": rng.choice((1, 2)),
        "freeze_text_layers": False,
        "freeze_lm_head": False,
    }
    own |= {"freeze_text_module_exceptions": [], "freeze_vision_module_exceptions": [], "use_resampler": False}
    vision = {"embed_dim": 32, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2}
    return own | {"alpha_type": rng.choice(("float", "vector")), "vision_config": vision}


@special("evolla")
def _adapters(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"aligner_ffn_mult": rng.choice((2, 4)), "aligner_num_add_layers": rng.choice((1, 2, 8))}
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return own | {"protein_encoder_config": small, "resampler_depth": 1}


@special("blip_text_model")
def _as_decoder(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"encoder_hidden_size": rng.choice((24, 32)), "label_smoothing": 0.0}
    return own | {"is_decoder": rng.random() < 0.8, "tie_word_embeddings": True}


@special("pix2struct_text_model")
def _heads_of_the_width(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    size = rng.choice((8, 12, 16))
    return {"d_kv": size, "hidden_size": size * drawn["num_heads"], "is_decoder": True}


@special("pp_formulanet_text")
def _its_decoder(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"decoder_start_token_id": 1, "is_encoder_decoder": True, "tie_word_embeddings": False}


@special("mistral_large4_text")
def _temperatures(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    drawn.pop("layer_types", None)
    rotary = [rng.choice((0, 1)) for _ in range(layers)]
    sources = [next((j for j in range(i) if rotary[j] == rotary[i] and i % 2), i) for i in range(layers)]
    own: dict[str, Any] = {"no_rope_layers": rng.choice((None, rotary)), "n_shared_experts": rng.choice((1, 2))}
    own |= {"kv_source_layers": sources if own["no_rope_layers"] is not None and rng.random() < 0.5 else None}
    return own | {"final_logit_softcapping": 30.0, "index_head_dim": drawn["qk_rope_head_dim"] + rng.choice((0, 8))}


@special("muse_spark_text")
def _narrow_experts(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    bases = [rng.choice((0, 5e5)) for _ in range(layers)]
    own: dict[str, Any] = {"layer_rope_theta": rng.choice((None, bases)), "moe_hidden_size": rng.choice((24, 40))}
    own |= {"head_dim": rng.choice((8, 16)), "final_logit_softcapping": 20.0, "hidden_act": "silu"}
    return own | {"sliding_window": rng.choice((16, 4096)), "output_router_logits": False}


@special("diffusion_gemma_text")
def _canvas(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own: dict[str, Any] = {"layer_types": _kinds(rng, layers, "full_attention", "sliding_attention")}
    own |= {"num_experts": 5, "top_k_experts": rng.choice((1, 2)), "moe_intermediate_size": rng.choice((24, 40))}
    drawn.pop("per_layer_config", None)
    own |= {"use_bidirectional_attention": None, "sliding_window": 4096, "head_dim": rng.choice((8, 16))}
    kv_heads = rng.choice([n for n in (1, 2) if drawn["num_attention_heads"] % n == 0])
    full = {"global_head_dim": rng.choice((16, 32)), "num_global_key_value_heads": rng.choice((None, kv_heads))}
    return own | full | {"tie_word_embeddings": True}


@special("inkling2_text")
def _block_sums(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {k: v for k, v in _by_distance(rng, drawn).items() if k != "local_layer_ids"}
    own |= {"unpadded_vocab_size": rng.choice((drawn["vocab_size"], 90)), "log_scaling_n_floor": 8}
    own |= {"n_layers_per_attn_res_block": rng.choice((1, 2, 3, 6)), "final_logit_softcapping": 30.0}
    return own | {"scoring_func": "sigmoid", "log_scaling_alpha": 0.1}


@special("glm5_next_text")
def _pools_and_streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, heads, pool = drawn["num_hidden_layers"], drawn["num_attention_heads"], rng.choice((2, 4))
    own: dict[str, Any] = {"layer_types": _kinds(rng, layers, "linear_attention", "indexed_attention")}
    own |= {"linear_num_heads": rng.choice((1, 2)), "linear_head_dim": rng.choice((8, 16)), "hidden_act": "silu"}
    own |= {"num_key_value_heads": heads, "qk_rope_head_dim": 0, "head_dim": 0, "q_lora_rank": 28}
    own |= {"index_kpool": pool, "index_topk": 4 * pool, "index_head_dim": rng.choice((8, 12)), "hc_mult": 2}
    own |= {"hc_sinkhorn_iters": 3, "indexer_types": ["full"] * layers, "n_shared_experts": rng.choice((1, 2))}
    return own | {"output_router_logits": False, "linear_lower_bound": rng.choice((None, -5.0))}


@special("esmc")
def _all_heads(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"num_key_value_heads": drawn["num_attention_heads"], "tie_word_embeddings": False}


@special("ultrabert")
def _windows_both_ways(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    drawn.pop("layer_types", None)
    listed = [rng.choice(("full_attention", "sliding_attention")) for _ in range(drawn["num_hidden_layers"])]
    own = {"layer_types": listed, "sliding_window": rng.choice((8, 4096))}
    return own | {"prediction_head_size": rng.choice((40, 56))}


@special("luke")
def _entities(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"entity_vocab_size": 50, "entity_emb_size": rng.choice((16, drawn["hidden_size"]))}


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


@special("dory")
def _sections_of_layers(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, before, after = rng.choice((3, 4, 5)), rng.choice((0, 1)), rng.choice((0, 1))
    own: dict[str, Any] = {"num_hidden_layers": layers, "n_input_layers": before, "n_output_layers": after}
    own |= {"n_recurrent_layers": rng.choice((None, layers - before - after)), "n_recurrent_loops": rng.choice((1, 3))}
    own |= {"sliding_window": 16, "head_dim": rng.choice((8, 16)), "rope_parameters": None, "num_key_value_heads": 2}
    listed = [rng.choice(("full_attention", "sliding_attention")) for _ in range(layers)]
    return own | {"layer_types": rng.choice((None, listed)), "num_attention_heads": rng.choice((2, 4))}

"""Fields of decoders."""

from __future__ import annotations

import random
from typing import Any

from special_configs.common import by_attention, kinds_of_layers, known, special


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


@special("cpmant")
def _cpmant(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw a prompt, with few buckets and segments."""
    prompt = {"prompt_length": rng.choice((1, 7, 32)), "prompt_types": rng.choice((3, 4))}
    biases = {"segment_types": rng.choice((3, 4)), "position_bias_num_buckets": rng.choice((16, 32))}
    return prompt | biases | {"dim_head": rng.choice((8, 16, 20)), "dim_ff": rng.choice((72, 104))}


@special("apertus1p5_text")
def _fewer_outputs(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    rows = None if drawn["tie_word_embeddings"] else rng.choice((None, 80))
    return {"hidden_act": "xielu", "output_vocab_size": rows}


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


@special("aria_text")
def _some_shared(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    return {"moe_num_shared_experts": rng.choice((1, 2))}


@special("beam")
def _unrotated_in_full(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {"rope_parameters": rng.choice((None, by_attention(rng, True))), "sliding_window": rng.choice((16, 4096))}
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


def _shared_keys(rng: random.Random) -> dict[str, Any]:
    """Layers of both kinds, the last of which share the keys and values of those before."""
    layers = rng.choice((4, 5))
    kinds = [
        *kinds_of_layers(rng, layers - 2, "full_attention", "sliding_attention"),
        "sliding_attention",
        "full_attention",
    ]
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
    return known(drawn, own) | full


@special("gemma3n_text")
def _streams(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = _shared_keys(rng)
    layers = own["num_hidden_layers"]
    own |= {"altup_num_inputs": rng.choice((2, 3, 4)), "altup_active_idx": rng.choice((0, 1)), "laurel_rank": 12}
    own |= {"altup_correct_scale": True, "altup_coef_clip": 120.0, "final_logit_softcapping": 30.0}
    own |= {"intermediate_size": [rng.choice((72, 104)) for _ in range(layers)]}
    return own | {"activation_sparsity_pattern": [rng.choice((0.0, 0.95)) for _ in range(layers)]}


@special("dory")
def _sections_of_layers(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers, before, after = rng.choice((3, 4, 5)), rng.choice((0, 1)), rng.choice((0, 1))
    own: dict[str, Any] = {"num_hidden_layers": layers, "n_input_layers": before, "n_output_layers": after}
    own |= {"n_recurrent_layers": rng.choice((None, layers - before - after)), "n_recurrent_loops": rng.choice((1, 3))}
    own |= {"sliding_window": 16, "head_dim": rng.choice((8, 16)), "rope_parameters": None, "num_key_value_heads": 2}
    listed = [rng.choice(("full_attention", "sliding_attention")) for _ in range(layers)]
    return own | {"layer_types": rng.choice((None, listed)), "num_attention_heads": rng.choice((2, 4))}

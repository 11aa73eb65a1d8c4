"""Fields of encoder-decoders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from special_configs.common import decoder_tokens, kinds_of_layers, special


@special("pegasus_x")
def _pegasus_x(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Draw blocks that sequences fill or do not, and global tokens."""
    blocks = {"block_size": rng.choice((4, 16, 32)), "num_global_tokens": rng.choice((1, 2, 6))}
    return blocks | {"encoder_layers": rng.choice((1, 2, 3, 4)), "decoder_start_token_id": 0}


@special("prophetnet")
def _predicted(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    own = {f"num_{side}_{what}": rng.choice((2, 3)) for side in ("encoder", "decoder") for what in ("layers",)}
    own |= {f"num_{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    own |= {"hidden_size": 4 * rng.choice((8, 12)), "encoder_ffn_dim": 72, "decoder_ffn_dim": 56}
    own |= {"max_position_embeddings": 128, "pad_token_id": 0}
    return own | {"ngram": rng.choice((1, 2, 3)), "num_buckets": rng.choice((8, 32)), "tie_word_embeddings": True}


@special("whisper")
def _sound(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    lengths = {"max_source_positions": rng.choice((32, 33, 40)), "max_target_positions": 64}
    return lengths | {"num_mel_bins": rng.choice((8, 12)), "apply_spec_augment": False}


special("bart", "blenderbot", "blenderbot-small", "m2m_100", "mbart", "mvp", "pegasus", "plbart")(decoder_tokens)


@special("marian")
def _one_table(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    alike = {"decoder_vocab_size": drawn["vocab_size"], "share_encoder_decoder_embeddings": True}
    return decoder_tokens(rng, drawn) | alike | {"tie_word_embeddings": True}


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
    return decoder_tokens(rng, drawn) | own | {"second_expert_policy": "all"}


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
    sizes |= {"layer_types": kinds_of_layers(rng, layers, "full_attention", "sliding_attention")}
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


@special("diffusion_gemma_text")
def _canvas(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    own: dict[str, Any] = {"layer_types": kinds_of_layers(rng, layers, "full_attention", "sliding_attention")}
    own |= {"num_experts": 5, "top_k_experts": rng.choice((1, 2)), "moe_intermediate_size": rng.choice((24, 40))}
    drawn.pop("per_layer_config", None)
    own |= {"use_bidirectional_attention": None, "sliding_window": 4096, "head_dim": rng.choice((8, 16))}
    kv_heads = rng.choice([n for n in (1, 2) if drawn["num_attention_heads"] % n == 0])
    full = {"global_head_dim": rng.choice((16, 32)), "num_global_key_value_heads": rng.choice((None, kv_heads))}
    return own | full | {"tie_word_embeddings": True}

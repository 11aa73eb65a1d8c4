"""Fields of language models of multimodal classes."""

from __future__ import annotations

import random
from typing import Any

from special_configs.common import special


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


@special("muse_spark_text")
def _narrow_experts(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    layers = drawn["num_hidden_layers"]
    bases = [rng.choice((0, 5e5)) for _ in range(layers)]
    own: dict[str, Any] = {"layer_rope_theta": rng.choice((None, bases)), "moe_hidden_size": rng.choice((24, 40))}
    own |= {"head_dim": rng.choice((8, 16)), "final_logit_softcapping": 20.0, "hidden_act": "silu"}
    return own | {"sliding_window": rng.choice((16, 4096)), "output_router_logits": False}

"""How a model type registers what it draws, and draws that several folders share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import transformers

SPECIAL: dict[str, Callable[[random.Random, dict[str, Any]], dict[str, Any]]] = {}
"""Fields that the general draw cannot make, by model type."""


def special(*model_types: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    def remember(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        SPECIAL.update(dict.fromkeys(model_types, function))
        return function

    return remember


def by_attention(rng: random.Random, none: bool = False) -> dict[str, Any]:
    """Rotary positions of each kind of attention."""
    shares = {kind: rng.choice((0.25, 0.5, 1.0)) for kind in ("full_attention", "sliding_attention")}
    parts = {k: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": v} for k, v in shares.items()}
    return parts | {"full_attention": None} if none and rng.random() < 0.7 else parts


def decoder_tokens(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    """Tokens that a decoder begins and ends with; facts that the class has in no other way."""
    own = {"decoder_start_token_id": 1, "forced_eos_token_id": None, "is_encoder_decoder": True}
    return own | known(drawn, {"tie_word_embeddings": True, "use_prompt": False})


def known(drawn: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Of fields that several model types share, those that this one has."""
    own = transformers.AutoConfig.for_model(drawn["model_type"]).to_dict()
    return {name: value for name, value in fields.items() if name in own}


def kinds_of_layers(rng: random.Random, layers: int, *kinds: str) -> list[str]:
    """Draw a type for each layer; each type at least once."""
    listed = [*kinds, *(rng.choice(kinds) for _ in range(layers))][:layers]
    return rng.sample(listed, layers)

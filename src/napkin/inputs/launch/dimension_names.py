"""Recognize keys that size a model, whatever the framework: `num_key_value_heads`, `n_layer`, `vocab_size`."""

from __future__ import annotations

import re

_COUNTED = "hidden|decoder|attention|attn|query|kv|key_value|routed|local|shared|moe"
_SIZES = re.compile(
    rf"(base_|model_)?(num|n)_(({_COUNTED})_)*(layers?|heads?|experts?|embd?)(_per_tok(en)?|_switch)?|d_model|d_ff|"
    r"(moe_|expert_)?(intermediate|ffn_hidden|ffn|mlp_hidden|hidden|embedding|embed)_(size|dim)|dim_ff|moe_top_?k|"
    r"(padded_|model_)?vocab_size|vocabulary_size|head_(dim|size)|mlp_ratio|expansion_ratio|ffn_dim_multiplier"
)
_OF_OTHERS = {
    "data", "dataset", "datasets", "tokenizer", "generation", "sampling", "sampling_params", "rollout", "draft",
    "teacher", "critic", "reward", "reward_model", "vision", "vision_encoder", "vision_config", "audio_config", "eval",
    "evaluation",
}  # fmt: skip
"""Blocks of keys that size another model than the trained one, or that sample from it."""


def sizes_model(key: str) -> bool:
    """Return whether a key's name is that of a dimension of the trained model."""
    *blocks, name = key.split(".")
    return _SIZES.fullmatch(name) is not None and not _OF_OTHERS & set(blocks)

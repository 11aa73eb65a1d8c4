"""A Hugging Face config.json, or a napkin model file, as the description of a model."""

from __future__ import annotations

from napkin.inputs.launch.format import KeyRule, LaunchFormat
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.values import flag, natural, whole

SIZES = (
    ("layers", ("num_hidden_layers", "n_layer", "n_layers")),
    ("hidden", ("hidden_size", "n_embd", "d_model")),
    ("heads", ("num_attention_heads", "n_head", "n_heads")),
    ("kv_heads", ("num_key_value_heads",)),
    ("head_dim", ("head_dim",)),
    ("ffn", ("intermediate_size", "n_inner")),
    ("vocab", ("vocab_size",)),
    ("experts", ("num_local_experts", "num_experts", "n_routed_experts")),
    ("top_k", ("num_experts_per_tok",)),
    ("expert_ffn", ("moe_intermediate_size",)),
    ("shared_experts", ("n_shared_experts",)),
    ("dense_layers", ("first_k_dense_replace",)),
)


MAY_BE_NONE = ("experts", "top_k", "expert_ffn", "shared_experts", "dense_layers")
"""Dimensions that a configuration may set to 0."""


def is_this(source: LaunchFile) -> bool:
    """Return whether a file is a Hugging Face config.json."""
    return source.is_mapping and "model_type" in source and any(key in source for _, keys in SIZES[:2] for key in keys)


def _read(reading: Reading) -> None:
    for name, keys in SIZES:
        key = next((one for one in keys if reading.find(one) is not None), None)
        if key:
            reading.dimension(name, reading.read(key, natural if name in MAY_BE_NONE else whole), key)
    tied = reading.read("tie_word_embeddings", flag)
    if tied is not None:
        reading.dimension("tied", tied, "tie_word_embeddings")
    reading.describe("model_type", "num_hidden_layers", "hidden_size")
    reading.build(lambda: dict(reading.source.document.data))
    reading.told(*reading.source.values)


FORMAT = LaunchFormat(
    "config.json",
    "a Hugging Face config.json",
    "huggingface/transformers src/transformers/models",
    is_this,
    rules=(KeyRule("model_type num_hidden_layers hidden_size", "model", "the model itself", _read),),
)

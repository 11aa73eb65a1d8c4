"""MiniMax-M3's language model: counts worked out by hand, equal to Hugging Face's class on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.footprint import kv_cache
from tests.conftest import model_of

FIELDS: dict[str, Any] = {
    "model_type": "minimax_m3_vl_text",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "vocab_size": 97,
    "intermediate_size": 40,
    "dense_intermediate_size": 104,
    "shared_intermediate_size": 56,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_block_size": 8,
    "index_topk_blocks": 4,
    "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "tie_word_embeddings": False,
}


def count(fields: dict[str, Any]) -> Any:
    return params(model_of(fields))["params/total"].value


def test_parameters_are_the_classes() -> None:
    attention = 64 * (4 + 2 + 2) * 24 + 2 * 24 + 4 * 24 * 64
    indexer = 64 * (2 + 1) * 16 + 2 * 16
    mixture = 6 * 64 + 6 * 3 * 64 * 40 + 3 * 64 * 56
    layers = 3 * (attention + 2 * 64) + 2 * indexer + 3 * 64 * 104 + 2 * mixture
    assert count(FIELDS) == layers + 2 * 97 * 64 + 64


def test_the_published_files_fields_say_the_same() -> None:
    own = {name: value for name, value in FIELDS.items() if not name.startswith(("index", "layer", "mlp"))}
    legacy = {"sparse_num_index_heads": 2, "sparse_index_dim": 16, "sparse_block_size": 8, "sparse_topk_blocks": 4}
    stated = {"sparse_attention_config": {**legacy, "sparse_attention_freq": [0, 1, 1]}, "moe_layer_freq": [0, 1, 1]}
    assert count({**own, **stated}) == count(FIELDS)


def test_all_keys_are_cached_though_blocks_are_chosen() -> None:
    """100 tokens: keys and values of two heads of 24 in three layers, 16 numbers for the choice in two."""
    numbers = 100 * (3 * 2 * 2 * 24 + 2 * 16)
    assert kv_cache.cache(model_of(FIELDS), 100, 1, 2, "bf16").value == 2 * numbers
    assert kv_cache.unread(model_of(FIELDS), 100) == (100 - 4 * 8) * 2 * 2 * 2 * 24


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"index_n_heads": 3}, "is not divisible by 3"),
        ({"layer_types": ["full_attention"]}, "1 entries for 3 layers"),
        ({"mlp_layer_types": ["moe"] * 3}, "napkin does not know 'moe'"),
        ({"sparse_attention_config": {"sparse_index_dim": "x"}}, "not a whole number"),
        ({"partial_rotary_factor": 3}, "not a fraction"),
    ],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(NapkinError, match=says):
        model_of({**FIELDS, **changes})

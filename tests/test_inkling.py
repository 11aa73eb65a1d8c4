"""Inkling's language model. Counts of Hugging Face's class on the meta device, or worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.footprint import kv_cache
from tests.conftest import model_of

FIELDS: dict[str, Any] = {
    "model_type": "inkling_text",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3,
    "swa_head_dim": 8,
    "sliding_window_size": 20,
    "d_rel": 5,
    "rel_extent": 30,
    "conv_kernel_size": 4,
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "vocab_size": 97,
    "intermediate_size": 96,
    "moe_intermediate_size": 40,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
}
PRODUCTS = 64 * (4 + 2 * 2) * 16 + 4 * 16 * 64 + 64 * 4 * 5
NEAR_PRODUCTS = 64 * (6 + 2 * 3) * 8 + 6 * 8 * 64 + 64 * 6 * 5
CONVOLUTIONS = 4 * (2 * 64 + 2 * 2 * 16)
NEAR_CONVOLUTIONS = 4 * (2 * 64 + 2 * 3 * 8)
PROFILES, NEAR_PROFILES = 5 * 30, 5 * 20
ATTENTION = PRODUCTS + CONVOLUTIONS + PROFILES + 2 * 16
NEAR = NEAR_PRODUCTS + NEAR_CONVOLUTIONS + NEAR_PROFILES + 2 * 8
DENSE = 3 * 64 * 96 + 1
ROUTER = (6 + 2) * 64 + 1
MIXTURE = ROUTER + (6 + 2) * 3 * 64 * 40
OUTSIDE = 2 * 97 * 64 + 2 * 64
"""Token table and head, never tied; norms of the embedding and of the last layer's result."""


def count(fields: dict[str, Any]) -> int:
    total = params(model_of(fields))["params/total"].value
    assert isinstance(total, int)
    return total


def test_each_kind_of_layer_has_sizes_of_its_own() -> None:
    """Profiles of a window reach as far as it does; a dense network and a router have one learned scale each."""
    assert count(FIELDS) == NEAR + 2 * ATTENTION + 3 * 2 * 64 + DENSE + 2 * MIXTURE + OUTSIDE


def test_the_class_as_published_has_947_billion() -> None:
    """Two dense layers of 66; counted on the class itself, on the meta device."""
    bare = {"model_type": "inkling_text", "hidden_size": 6144, "num_hidden_layers": 66, "dense_mlp_idx": 2}
    assert count(bare) == 947_025_547_842


def test_layers_with_a_window_are_listed_by_number_or_all_but_each_sixth() -> None:
    fields = {name: value for name, value in FIELDS.items() if name != "layer_types"}
    assert count(fields | {"local_layer_ids": [0]}) == count(FIELDS)
    assert count(fields) == count(FIELDS) + 2 * (NEAR - ATTENTION)


def test_where_the_dense_width_has_a_name_of_its_own_the_other_is_the_experts() -> None:
    assert count(FIELDS | {"intermediate_size": 40, "dense_intermediate_size": 96}) == count(FIELDS)


def test_forward_flops_are_the_classes() -> None:
    """40 tokens: two for each number of a matrix that a token meets, profiles once for each head, and all pairs."""
    model = model_of(FIELDS)
    met = NEAR_PRODUCTS + 6 * NEAR_PROFILES + 2 * (PRODUCTS + 4 * PROFILES)
    met += DENSE - 1 + 2 * (ROUTER - 1 + (2 + 2) * 3 * 64 * 40) + 97 * 64
    pairs = 2 * 6 * 8 + 2 * 2 * 4 * 16
    assert flops.forward(model, flops.works(model, 1, 40)).value == 2 * 40 * met + 2 * 40 * 40 * pairs


def test_the_cache_is_what_a_window_sees_and_all_of_the_rest() -> None:
    model = model_of(FIELDS)
    assert kv_cache.cache(model, 100, 1, 2, "bf16").value == 2 * (2 * 20 * 3 * 8 + 2 * 2 * 100 * 2 * 16)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_types", ["hybrid"]),
        ("layer_types", ["sliding_attention"] * 3),
        ("mlp_layer_types", ["dense"] * 4),
        ("num_key_value_heads", 3),
        ("swa_num_key_value_heads", 4),
        ("num_experts_per_tok", 7),
        ("n_shared_experts", 0),
        ("d_rel", 0),
        ("conv_kernel_size", "wide"),
        ("local_layer_ids", [-1]),
        ("unpadded_vocab_size", 0),
    ],
)
def test_what_cannot_be_is_named(field: str, value: object) -> None:
    with pytest.raises(NapkinError, match=field):
        model_of(FIELDS | {field: value})


def test_a_whole_published_file_is_its_language_model() -> None:
    """Fields that say what the class always does, and the prediction layers beside, change nothing."""
    always = dict.fromkeys(
        ("norm_after_topk", "use_sconv", "use_embed_norm", "use_gate_bias", "use_global_scale"), True
    )
    text = FIELDS | always | {"gate_activation": "sigmoid", "number_of_conv_states": 4}
    whole = {"model_type": "inkling_mm_model", "text_config": text, "mtp_config": {"num_nextn_predict_layers": 8}}
    assert count(whole | {"vision_config": {}, "audio_config": {}, "audio_bos_token_id": 9}) == count(FIELDS)
    assert count(FIELDS | {"use_sconv": False}) == count(FIELDS)  # the class does not read it

"""dots3.note: latent attention of a layer's kind. Counts of Hugging Face's class on the meta device, or worked out by
hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.footprint import kv_cache
from tests.conftest import model_of

FIELDS: dict[str, Any] = {
    "model_type": "dots3_note_text",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 97,
    "intermediate_size": 96,
    "moe_intermediate_size": 40,
    "shared_experts_intermediate_size": 24,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "q_lora_rank": 28,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 32,
    "tie_word_embeddings": False,
}
NEAR = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 20,
    "kv_lora_rank": 36,
    "head_dim": 40,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 10,
}
KINDS = ["indexed_attention", "indexed_attention", "sliding_attention", "sliding_attention"]
PUBLISHED = FIELDS | {f"swa_{name}": value for name, value in NEAR.items()}
BY_LAYER = FIELDS | {"layer_types": KINDS, "per_layer_config": {"2": NEAR, "3": NEAR}}
ATTENTION = 64 * 28 + 28 + 28 * 4 * 24 + 64 * (24 + 8) + 24 + 8 + 24 * 4 * (16 + 12) + 64 * 4 + 4 * 12 * 64
WINDOWED = 64 * 20 + 20 + 20 * 2 * 40 + 64 * (36 + 16) + 36 + 16 + 36 * 2 * (24 + 10) + 64 * 2 + 2 * 10 * 64
INDEXER = 2 * 16 * 28 + 16 * 64 + 2 * 16 + 2 * 64
DENSE = 3 * 64 * 96
MIXTURE = 6 * 64 + 6 * 3 * 64 * 40 + 3 * 64 * 2 * 24
OUTSIDE = 2 * 97 * 64 + 64


def count(fields: dict[str, Any]) -> int:
    total = params(model_of(fields))["params/total"].value
    assert isinstance(total, int)
    return total


@pytest.mark.parametrize("fields", [PUBLISHED, BY_LAYER])
def test_layers_with_a_window_have_sizes_of_their_own(fields: dict[str, Any]) -> None:
    """The first two of four layers see keys that are chosen, by a file's own names or by the layer."""
    assert count(fields) == 2 * (ATTENTION + INDEXER) + 2 * WINDOWED + 4 * 2 * 64 + DENSE + 3 * MIXTURE + OUTSIDE


def test_without_an_indexer_all_keys_are_seen() -> None:
    assert count(PUBLISHED | {"use_dsa": False}) == count(PUBLISHED) - 2 * INDEXER


def test_the_class_as_it_comes_has_280_billion() -> None:
    """Counted on the class itself, on the meta device."""
    bare = {"model_type": "dots3_note_text", "hidden_size": 5120, "num_hidden_layers": 46}
    assert count(bare) == 279_551_718_016


def test_a_whole_file_holds_the_language_model_on_its_outer_level() -> None:
    whole = PUBLISHED | {"model_type": "dots3_note", "vision_config": {}, "audio_config": {}}
    assert count(whole) == count(PUBLISHED)


def test_forward_flops_are_the_class_s() -> None:
    """40 tokens: two for each weight of a product that a token meets, and the pairs of attention and of the choice."""
    model = model_of(PUBLISHED)
    vectors = 2 * (28 + 24 + 8) + 2 * (20 + 36 + 16) + 2 * 2 * 16 + 4 * 2 * 64 + 64
    idle = 3 * 4 * 3 * 64 * 40
    met = count(PUBLISHED) - vectors - idle - 97 * 64
    pairs = 2 * 4 * (16 + 8 + 12) + 2 * 2 * (24 + 16 + 10) + 2 * 2 * (16 + 1)
    assert flops.forward(model, flops.works(model, 1, 40)).value == 2 * 40 * met + 2 * 40 * 40 * pairs


def test_the_cache_is_the_latents_the_rotary_key_and_the_indexers_keys() -> None:
    """100 tokens, a window of 50: two layers of all tokens, two of what the window sees."""
    model = model_of(PUBLISHED | {"sliding_window": 50})
    each = 2 * 100 * (24 + 8 + 16) + 2 * 50 * (36 + 16)
    assert kv_cache.cache(model, 100, 1, 2, "bf16").value == 2 * each
    assert kv_cache.unread(model, 100) == 2 * (100 - 32) * (24 + 8)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"per_layer_config": {"9": NEAR}}, "per_layer_config"),
        ({"per_layer_config": {"2": NEAR | {"hidden_size": 3}}}, "per_layer_config"),
        ({"per_layer_config": {"2": NEAR | {"v_head_dim": 0}}}, "per_layer_config"),
        ({"per_layer_config": {"2": NEAR}}, "per_layer_config"),
        ({"per_layer_config": {"2": 3}}, "per_layer_config"),
        ({"layer_types": ["full"] * 4}, "layer_types"),
        ({"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim"),
        ({"index_head_dim": 4}, "index_head_dim"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok"),
        ({"n_group": 6}, "n_group"),
        ({"n_shared_experts": 0}, "n_shared_experts"),
        ({"q_lora_rank": None}, "q_lora_rank"),
    ],
)
def test_what_contradicts_itself_is_named(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(NapkinError, match=named):
        model_of(BY_LAYER | changed)


def test_sizes_of_windows_add_up() -> None:
    with pytest.raises(NapkinError, match="swa_head_dim"):
        model_of(PUBLISHED | {"swa_head_dim": 41, "swa_qk_rope_head_dim": 16})

"""Models with latent attention whose layers have more: A.X K1 and K2, Hy4. Counts of Hugging Face's classes on the meta
device, or worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.footprint import kv_cache
from tests.conftest import model_of

FIELDS: dict[str, Any] = {
    "model_type": "axk1",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 97,
    "intermediate_size": 96,
    "moe_intermediate_size": 40,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "q_lora_rank": 28,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "n_group": 1,
    "topk_group": 1,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "tie_word_embeddings": False,
}
INDEXED = FIELDS | {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 32}
KV = 64 * (24 + 8) + 24 + 24 * 4 * (16 + 12)
ATTENTION = 64 * 28 + 28 + 28 * 4 * 24 + KV + 4 * 12 * 64
DENSE = 3 * 64 * 96
MIXTURE = 6 * 64 + (6 + 2) * 3 * 64 * 40
OUTSIDE = 2 * 97 * 64 + 64
INDEXER = 2 * 16 * 28 + 16 * 64 + 2 * 16 + 2 * 64


def count(fields: dict[str, Any]) -> int:
    total = params(model_of(fields))["params/total"].value
    assert isinstance(total, int)
    return total


def test_a_x_k1_normalizes_what_its_experts_make() -> None:
    assert count(FIELDS) == 3 * (ATTENTION + 2 * 64) + DENSE + 2 * (MIXTURE + 64) + OUTSIDE


def test_a_x_k2_gates_norms_and_what_attention_makes() -> None:
    """The queries' product reads the latent twice and makes a gate too; a gate of rank 8 stands behind every first norm
    and behind the second of mixtures."""
    attention = 64 * 28 + 28 + 2 * 28 * 4 * (24 + 12) + KV + 4 * 12 * 64
    gate = 2 * 64 * 8
    layers = 3 * (attention + INDEXER + 2 * 64 + gate) + DENSE + 2 * (MIXTURE + gate)
    assert count(INDEXED | {"model_type": "axk2", "gated_norm_rank": 8}) == layers + OUTSIDE


def test_hy4_has_streams_sinks_and_a_gate_of_its_own() -> None:
    """Two of three layers have an indexer; 2·n weights for each of n = 4 streams of h, and n to read the last."""
    attention = ATTENTION + 64 * 4 * 12 + 4
    streams = 2 * (8 * 4 * 64 + 8 + 2)
    layers = 3 * (attention + streams + 2 * 64) + 2 * INDEXER + DENSE + 2 * MIXTURE
    assert count(INDEXED | {"model_type": "hy_v4", "hc_mult": 4}) == layers + 4 * 4 * 64 + 4 + 1 + OUTSIDE


def test_an_indexer_caches_its_keys_and_the_latent() -> None:
    """100 tokens: in each of three layers the latent and the rotary key of all, though a query sees 32 that are chosen,
    and 16 numbers for the choice."""
    model = model_of(INDEXED | {"model_type": "axk2", "gated_norm_rank": 8})
    assert kv_cache.cache(model, 100, 1, 2, "bf16").value == 2 * 3 * 100 * (24 + 8 + 16)


@pytest.mark.parametrize("field", ["hc_mult", "index_n_heads", "q_lora_rank"])
def test_a_size_of_zero_is_wrong(field: str) -> None:
    with pytest.raises(NapkinError, match=field):
        model_of(INDEXED | {"model_type": "hy_v4", field: 0})

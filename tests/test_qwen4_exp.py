"""Qwen4-Exp: gated residual streams, chosen runs of keys, tables of hashed runs of tokens: by hand, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import build
from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError, Refused
from napkin.footprint.kv_cache import cached_numbers
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from tests.conftest import model_of

H, N, R, E, F = 64, 4, 20, 3, 40
FIELDS: dict[str, Any] = {
    "model_type": "qwen4_exp_text",
    "hidden_size": H,
    "num_hidden_layers": 4,
    "vocab_size": 100,
    "hc_lowrank": R,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": E,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": F,
    "shared_expert_intermediate_size": F,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 32,
    "indexer_compress_ratio": 8,
}
TABLES: dict[str, Any] = {"ple_layer_ids": [1], "ple_embed_dim": 24, "ngram_size": 3, "heads_per_ngram": 2}
TABLES |= {"ngram_vocab_size_base": 50, "make_ngram_vocab_size_divisible_by": 8, "ple_conv_kernel_size": 4}

READ = N * H + N * H * R + R * N * H
"""A norm of the streams and a bottleneck between two matrices."""


def total(**changes: Any) -> Any:
    return params(model_of(FIELDS | changes))["params/total"].value


def test_by_hand() -> None:
    moe = E * H + E * 3 * H * F + 3 * H * F + H
    around = 2 * (READ + N * H * N) + moe
    channels = 2 * 2 * 8 + 4 * 12
    delta = H * (channels + 48 + 4 + 4) + channels * 4 + 2 * 4 + 12 + 48 * H
    index = H * 3 * 16 + 2 * 16
    attention = H * 2 * 64 + 2 * H * 32 + 2 * 16 + 64 * H + index
    assert total() == 3 * delta + attention + 4 * around + 2 * 100 * H + READ


def test_tables_have_consecutive_primes_of_rows() -> None:
    rows = 53 + 59 + 61 + 67  # a table for each of two hashes of two and of three tokens
    assert rows % 8 == 0
    wide = N * H
    added = rows * (24 // 4) + 24 * wide + 24 * H + 3 * wide + wide * 4
    assert total(**TABLES) - total() == added
    second = 71 + 73 + 79 + 83  # 306, up to 312
    both = total(**TABLES | {"ple_layer_ids": [2, 1, 2]}) - total()
    assert both == 2 * added + (-(-second // 8) * 8 - rows) * 6


def test_a_layer_of_the_class_by_default_is_every_fourth() -> None:
    kinds = [
        layer.kind for count, layer in model_of(FIELDS | {"num_hidden_layers": 8}).stacks[0].runs for _ in range(count)
    ]
    assert kinds == (["delta"] * 3 + ["attention"]) * 2
    listed = ["linear_attention", "full_attention"] * 2
    assert [layer.kind for _, layer in model_of(FIELDS | {"layer_types": listed}).stacks[0].runs] == [
        "delta",
        "attention",
    ] * 2


def test_serving_keeps_the_indexers_keys_and_what_the_tables_convolution_reads() -> None:
    layers = {layer.kind: layer for layer in model_of(FIELDS | TABLES).stacks[0].layers}
    growing, fixed = cached_numbers(layers["attention"], 10)
    assert (growing, fixed) == (10 * (2 * 2 * 16 + 16), 0)
    with_tables, without = (cached_numbers(layers[kind], 10)[1] for kind in ("delta_tables", "delta"))
    assert with_tables - without == N * H * (4 - 1) * 3


def test_the_indexer_scores_runs_and_not_tokens() -> None:
    coarse, fine = (
        flops.forward(model, flops.works(model, 2, 64)).value
        for model in (model_of(FIELDS | {"indexer_compress_ratio": rate}) for rate in (16, 8))
    )
    assert fine - coarse == 2 * (2 * 64) * 2 * 16 * (64 // 8 - 64 // 16)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"indexer_n_heads": None}, 3),
        ({"indexer_kv_heads": 2}, 3),
        ({"output_gate_type": "gelu"}, 3),
        ({"layer_types": ["sliding_attention"] * 4}, 3),
        ({"hc_count": 1}, 2),
        ({"indexer_budget": 33}, 2),
        ({"linear_num_key_heads": 3}, 2),
        ({"num_experts_per_tok": 9}, 2),
        (TABLES | {"ple_layer_ids": [5]}, 2),
        (TABLES | {"ple_layer_ids": [4]}, 2),
        (TABLES | {"ple_layer_ids": ["1"]}, 2),
        (TABLES | {"heads_per_ngram": 5}, 2),
        (TABLES | {"heads_per_ngram": 10**6, "ple_embed_dim": 2 * 10**6}, 2),
        (TABLES | {"ngram_size": 1}, 2),
    ],
)
def test_what_does_not_hold_together(changes: dict[str, Any], status: int) -> None:
    fields = FIELDS | changes
    with pytest.raises(NapkinError) as caught:
        build(config_from("config", Document("config", fields), fields))
    assert caught.value.status == status
    assert isinstance(caught.value, Refused) == (status == 3)

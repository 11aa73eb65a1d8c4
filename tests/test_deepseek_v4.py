"""DeepSeek-V4: hyper-connections, keys of runs, experts by a hash. Counts of Hugging Face's class on the meta device,
or worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import REFUSED, NapkinError
from napkin.footprint import kv_cache
from napkin.operations.experts import Experts
from napkin.operations.primitives import run_pairs
from tests.conftest import model_of

WINDOW, CHOSEN, ALL = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
FIELDS: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "head_dim": 32,
    "q_lora_rank": 24,
    "o_groups": 2,
    "o_lora_rank": 12,
    "sliding_window": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 4,
    "moe_intermediate_size": 40,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "vocab_size": 97,
    "hc_mult": 4,
    "layer_types": [WINDOW, CHOSEN, ALL, CHOSEN],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
    "compress_rates": {CHOSEN: 4, ALL: 16},
    "partial_rotary_factor": 0.25,
    "tie_word_embeddings": False,
}


def test_parameters_are_the_classes() -> None:
    """Each layer by hand: both hyper-connections (n = 4 streams of h = 64, 24 weights a token), attention with the
    output in two steps, what compresses and what chooses, six experts and the one that all share."""
    streams = 2 * (24 * 4 * 64 + 24 + 3)
    attention = 64 * 24 + 24 + 24 * 128 + 64 * 32 + 32 + 4 + 2 * 12 * 64 + 24 * 64
    experts = 6 * 64 + 7 * 3 * 64 * 40
    every = streams + attention + experts + 2 * 64
    all_runs = 2 * 64 * 32 + 16 * 32 + 32
    chosen_runs = 2 * 64 * 64 + 4 * 64 + 32
    indexer = 2 * 64 * 32 + 4 * 32 + 16 + 24 * 32 + 64 * 2
    outside = 2 * 97 * 64 + 4 * 4 * 64 + 4 + 1 + 64
    expected = 4 * every + all_runs + 2 * (chosen_runs + indexer) + outside
    assert params(model_of(FIELDS))["params/total"].value == expected == 350_989


def test_products_are_the_classes() -> None:
    """FlopCounterMode's count of transformers 5.23.0's class, which leaves out the grouped products of experts."""
    model = model_of(FIELDS)
    over = flops.works(model, 2, 40)
    forward = flops.forward(model, over).value
    layers = [(n, layer) for stack in model.stacks for n, layer in stack.runs]
    mixtures = [(n, op) for n, layer in layers for op in layer.operations if isinstance(op, Experts)]
    routed = sum(n * sum(p.flops for p in op.gemms(over["decoder"])) for n, op in mixtures)
    assert forward - routed == 34_150_400


@pytest.mark.parametrize(("tokens", "rate", "chosen"), [(40, 4, 4), (41, 4, None), (7, 8, 3), (64, 16, 2)])
def test_pairs_of_queries_and_runs(tokens: int, rate: int, chosen: int | None) -> None:
    seen = [(t + 1) // rate for t in range(tokens)]
    assert run_pairs(tokens, rate, chosen) == sum(n if chosen is None else min(n, chosen) for n in seen)


def test_the_cache_holds_a_window_runs_and_their_indexers_keys() -> None:
    """512 tokens: each layer's window of 8 keys of 32 numbers, which are values too; 128 runs and their 16 numbers for
    the indexer in two layers, 32 runs in one."""
    numbers = 4 * 8 * 32 + 2 * 128 * (32 + 16) + 32 * 32
    assert kv_cache.cache(model_of(FIELDS), 512, 1, 2, "bf16").value == 2 * numbers


def test_layers_are_listed_by_kind_or_by_the_tokens_of_a_run() -> None:
    own = {name: value for name, value in FIELDS.items() if name not in ("layer_types", "mlp_layer_types")}
    by_rate = {**own, "compress_ratios": [0, 4, 128, 4, 0], "num_hash_layers": 1}
    assert params(model_of(by_rate))["params/total"].value == params(model_of(FIELDS))["params/total"].value


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layer_types": [WINDOW] * 3}, "3 entries for 4 layers"),
        ({"layer_types": ["full_attention"] * 4}, "napkin does not know 'full_attention'"),
        ({"compress_rates": {CHOSEN: 0, ALL: 16}}, "no whole number of tokens"),
        ({"scoring_func": "softmax"}, "napkin does not know 'softmax'"),
        ({"o_groups": 3}, "is not divisible by 3"),
        ({"index_head_dim": 4}, "less than the 8 elements that rotate"),
        ({"partial_rotary_factor": 2}, "not a fraction"),
        ({"compress_ratios": [7] * 4, "layer_types": None}, "napkin does not know 7"),
    ],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(NapkinError) as caught:
        model_of({**FIELDS, **changes})
    assert says in caught.value.message
    assert caught.value.status in (2, REFUSED)

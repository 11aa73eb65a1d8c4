"""Recurrent and hybrid networks: pinned counts of published files, one layer of each kind by hand, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError, Refused
from napkin.footprint.kv_cache import cached_numbers
from napkin.operations.convolutions import HalfShifted
from napkin.operations.model import Model
from napkin.operations.recurrence import Scan
from napkin.operations.work import Work
from tests.conftest import model

PATTERN = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"

# fields that set the published file apart from its class's defaults; total and active parameters of its tensors
PUBLISHED: dict[str, tuple[dict[str, Any], int, int]] = {
    "mamba-130m": (
        {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280},
        129_135_360,
        129_135_360,
    ),
    "falcon-mamba-7b": (  # the stated inner width wins over expand
        {
            "model_type": "falcon_mamba",
            "hidden_size": 4096,
            "num_hidden_layers": 64,
            "vocab_size": 65024,
            "intermediate_size": 8192,
            "expand": 16,
            "time_step_rank": 256,
            "tie_word_embeddings": False,
        },
        7_272_665_088,
        7_272_665_088,
    ),
    "mamba-codestral-7b": (
        {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768},
        7_285_403_648,
        7_285_403_648,
    ),
    "jamba-v0.1": (
        {"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32},
        51_570_323_328,
        12_110_311_296,
    ),
    "zamba2-1.2b": (
        {
            "model_type": "zamba2",
            "hidden_size": 2048,
            "num_hidden_layers": 38,
            "layers_block_type": (["mamba"] * 5 + ["hybrid"]) * 6 + ["mamba"] * 2,
            "mamba_ngroups": 2,
            "n_mamba_heads": 64,
            "use_shared_attention_adapter": True,
            "use_mem_rope": True,
        },
        1_215_064_704,
        1_215_064_704,
    ),
    "bamba-9b": (
        {
            "model_type": "bamba",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "attn_layer_indices": [9, 18, 27],
            "mamba_d_state": 128,
            "vocab_size": 128256,
        },
        9_780_235_392,
        9_780_235_392,
    ),
    "nemotron-3-nano": (
        {
            "model_type": "nemotron_h",
            "hidden_size": 2688,
            "num_hidden_layers": 52,
            "hybrid_override_pattern": PATTERN,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_num_heads": 64,
            "n_groups": 8,
            "n_routed_experts": 128,
            "num_experts_per_tok": 6,
            "moe_intermediate_size": 1856,
            "moe_shared_expert_intermediate_size": 3712,
        },
        31_577_937_344,
        3_580_073_408,
    ),
    "recurrentgemma-2b": (
        {
            "model_type": "recurrent_gemma",
            "hidden_size": 2560,
            "num_hidden_layers": 26,
            "intermediate_size": 15360,
            "num_key_value_heads": 1,
        },
        2_682_862_080,
        2_682_862_080,
    ),
    "lfm2-1.2b": (
        {
            "model_type": "lfm2",
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "block_ff_dim": 12288,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        },
        1_170_340_608,
        1_170_340_608,
    ),
    "qwen3-next-80b": (
        {"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48},
        79_674_391_296,
        3_874_929_408,
    ),
}


def small(model_type: str, **changes: Any) -> Model:
    return model(**{"model_type": model_type, "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100, **changes})


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_checkpoints(name: str) -> None:
    fields, total, active = PUBLISHED[name]
    counted = params(model(**fields))
    assert counted["params/total"].value == total
    assert counted["params/active"].value == active


def test_by_hand_selective_scan() -> None:
    h, d, n, k, rank = 64, 128, 16, 4, 4
    layer = h * 2 * d + d * k + d + d * (rank + 2 * n) + rank * d + d + d * n + d + d * h + h
    assert params(small("mamba"))["params/total"].value == 4 * layer + 100 * h + h


def test_by_hand_mamba2() -> None:
    h, heads, p, n, groups, k = 64, 8, 16, 12, 2, 4
    d = heads * p
    channels = d + 2 * groups * n
    layer = h * (d + channels + heads) + channels * k + channels + 3 * heads + d + d * h + h
    counted = params(small("mamba2", num_heads=heads, head_dim=p, state_size=n, n_groups=groups))
    assert counted["params/layers"].value == 4 * layer


def test_by_hand_gated_delta() -> None:
    h, keys, values, dk, dv, k = 64, 2, 4, 8, 12, 4
    channels = 2 * keys * dk + values * dv
    layer = h * (channels + values * dv + 2 * values) + channels * k + 2 * values + dv + values * dv * h
    feed = 3 * h * 96
    counted = params(
        small(
            "qwen3_5_text",
            layer_types=["linear_attention"] * 4,
            linear_num_key_heads=keys,
            linear_num_value_heads=values,
            linear_key_head_dim=dk,
            linear_value_head_dim=dv,
            intermediate_size=96,
        )
    )
    assert counted["params/layers"].value == 4 * (layer + feed + 2 * h)


@pytest.mark.parametrize(("low", "model_type"), [(True, "kimi_linear"), (False, "bailing_hybrid")])
def test_by_hand_kimi_delta(low: bool, model_type: str) -> None:
    h, heads, d, k, f, experts = 64, 3, 8, 4, 96, 2
    size = heads * d
    way = h * d + d * size if low else h * size  # to the decays, and to the output gate
    layer = 3 * h * size + 3 * size * k + 2 * way + heads + size + h * heads + d + size * h
    mixture = experts * h + experts * 3 * h * 24 + 3 * h * 24
    sizes = {"linear_num_heads": heads, "linear_head_dim": d, "num_attention_heads": 2, "moe_intermediate_size": 24}
    fields = {"layer_types": ["linear_attention"] * 4, "mlp_layer_types": ["dense", *["sparse"] * 3], **sizes}
    fields |= {"num_experts": experts, "num_experts_per_token": 1, "intermediate_size": f, "n_group": 1}
    counted = params(small(model_type, topk_group=1, tie_word_embeddings=True, **fields))
    assert counted["params/layers"].value == 4 * (layer + 2 * h) + 3 * h * f + 3 * mixture
    assert counted["params/lm_head"].value == 100 * h  # the class ties nothing


@pytest.mark.parametrize("inner", [{}, {"head_dim": 24, "num_heads": 5, "short_conv_kernel_size": 3}])
def test_the_linear_layers_sizes_of_a_published_file_win(inner: dict[str, Any]) -> None:
    stated = {"full_attn_layers": [2, 4], "kda_layers": [1, 3], **inner}
    one = small("kimi_linear", linear_attn_config=stated, linear_num_heads=2, linear_head_dim=8)
    scans = [op for op in one.operations if isinstance(op, Scan)]
    sizes = (inner.get("num_heads", 2), inner.get("head_dim", 8))
    assert {(op.heads, op.head_dim, op.state) for op in scans} == {(*sizes, sizes[1])}
    assert [layer.kind.split("_")[0] for _, layer in one.stacks[0].runs] == ["delta", "attention"] * 2


ZAYA: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "router_hidden_size": 24}
ZAYA |= {"num_experts": 3, "moe_intermediate_size": 40, "cca_time0": 3, "cca_time1": 2}


def test_by_hand_compressed_convolutional_attention() -> None:
    h, q, kv, d, r, experts = 64, 4 * 16, 2 * 16, 16, 24, 3
    convolutions = (q + kv) * 3 + (q + kv) * d * 2 + 2 * (q + kv)
    attention = h * q + h * kv + 2 * h * (kv // 2) + convolutions + 2 + q * h
    router = h * r + r + r + 2 * (r * r + r) + r * (experts + 1)
    layer = attention + router + experts * 3 * h * 40 + 2 * h + 2 * 4 * h
    counted = params(small("zaya", **ZAYA))
    assert counted["params/layers"].value == 4 * layer + 3 * r  # the first router has no state before it
    assert counted["params/total"].value == 4 * layer + 3 * r + 100 * h + h + 2 * h


def test_half_of_the_first_tokens_values_is_made_of_zeros() -> None:
    delayed = [op for op in small("zaya", **ZAYA).operations if isinstance(op, HalfShifted)]
    assert sum(product.flops for product in delayed[0].gemms(Work(2, 40))) == 2 * 2 * 64 * 16


def test_serving_compressed_attention_keeps_what_its_convolutions_and_delayed_values_read() -> None:
    layer = small("zaya", **ZAYA).stacks[0].layers[0]
    growing, fixed = cached_numbers(layer, 10)
    assert growing == 10 * 2 * 2 * 16
    assert fixed == (4 * 16 + 2 * 16) * (3 + 2 - 2) + 16


def test_serving_kimi_delta_keeps_a_state_of_each_head_and_three_inputs_of_its_convolution() -> None:
    sizes = {"linear_num_heads": 6, "linear_head_dim": 8, "layer_types": ["linear_attention"] * 4}
    layer = small("kimi_linear", **sizes).stacks[0].layers[0]
    assert cached_numbers(layer, 10) == (0, 6 * 8 * 8 + 3 * 3 * 6 * 8)
    assert cached_numbers(layer, 10, 2) == (0, 3 * 8 * 8 + 3 * 3 * 3 * 8)


@pytest.mark.parametrize("mode", ["single", "fused"])
def test_by_hand_matrix_memory(mode: str) -> None:
    h, heads, keys, values, f = 64, 4, 32, 128, 192  # ⌈64 · 2.667 / 64⌉ · 64
    projections = h * (2 * keys + 2 * values) + 2 * (h * heads + heads)
    layer = projections + values + values * h + 3 * h * f + 2 * h
    counted = params(small("xlstm", num_heads=heads, qk_dim_factor=0.5, v_dim_factor=2.0, weight_mode=mode))
    assert counted["params/total"].value == 4 * layer + 2 * 100 * h + h


def test_shared_blocks_count_once_and_their_adapters_each_time() -> None:
    def total(*kinds: str, blocks: int = 2) -> int:
        fields: dict[str, Any] = {"num_hidden_layers": len(kinds), "layers_block_type": list(kinds)}
        counted = params(small("zamba2", num_mem_blocks=blocks, num_attention_heads=4, adapter_rank=8, **fields))
        value = counted["params/layers"].value
        assert isinstance(value, int)
        return value

    h, f, rank = 64, 256, 8
    block = 2 * h + 3 * 2 * h * 2 * h + 2 * h * h + h + h * 2 * f + f * h
    adapter = h * rank + rank * 2 * f
    linear = h * h
    use = linear + adapter
    first, second, third = (total(*["hybrid"] * n, *["mamba"] * (4 - n)) for n in (1, 2, 3))
    assert second - first == block + use
    assert third - second == use
    assert total(*["hybrid"] * 4, blocks=1) - total(*["hybrid"] * 3, "mamba", blocks=1) == use


def test_a_shared_block_works_at_every_use() -> None:
    kinds = ["hybrid"] * 4
    one, two = (small("zamba2", layers_block_type=kinds, num_attention_heads=4, num_mem_blocks=b) for b in (1, 2))
    counted = [flops.forward(m, flops.works(m, 1, 64)).value for m in (one, two)]
    assert counted[0] == counted[1]


def test_the_feed_forward_width_of_lfm2_shrinks_and_is_rounded_up() -> None:
    fields = {"intermediate_size": 1000, "num_attention_heads": 4, "num_key_value_heads": 2, "block_multiple_of": 64}
    adjusted = params(small("lfm2", **fields))["params/total"].value
    plain = params(small("lfm2", **{**fields, "intermediate_size": 704}, block_auto_adjust_ff_dim=False))
    assert adjusted == plain["params/total"].value  # int(2 · 1000 / 3) = 666, up to 704


@pytest.mark.parametrize(
    ("scan", "expected"),
    [
        # b = 2 sequences of s tokens, a = 4 heads of p = 16, state N = 8
        (Scan("scan", (), "selective", 4, 16, 8), 2 * 2 * 40 * 4 * 16 * 8),
        (Scan("scan", (), "rg_lru", 4, 16, 8), 0),
        (Scan("scan", (), "ssd", 4, 16, 8, chunk=16), 8 * (2 * 48 * (16 * 8 + 16 * 16 + 2 * 8 * 16) + 2 * 16 * 128)),
        (Scan("scan", (), "delta", 4, 16, 8, chunk=16), 8 * 2 * 48 * (2 * 16 * 8 + 16 * 16 + 3 * 8 * 16)),
        (Scan("scan", (), "kda", 4, 16, 16, chunk=16), 8 * 2 * 48 * (2 * 16 * 16 + 16 * 16 + 3 * 16 * 16)),
        (Scan("scan", (), "mlstm", 4, 16, 8, chunk=16), 8 * 2 * 48 * (16 * 8 + 16 * 16 + 2 * 8 * 16 + 8)),
        (Scan("scan", (), "lightning", 4, 16, 16, chunk=16), 8 * (2 * 32 * (2 * 256 + 64) + 4 * 40 * 256)),
    ],
)
def test_by_hand_products_of_a_scan(scan: Scan, expected: int) -> None:
    assert sum(product.flops for product in scan.gemms(Work(2, 40))) == expected


@pytest.mark.parametrize(
    ("model_type", "changes", "field"),
    [
        ("zamba", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("zamba2", {"use_conv_bias": False}, "use_conv_bias"),
        ("nemotron_h", {"hybrid_override_pattern": "MEX*"}, "hybrid_override_pattern"),
        ("recurrent_gemma", {"block_types": ["recurrent", "mlp"]}, "block_types"),
        ("mamba", {"rms_norm": False}, "rms_norm"),
        ("lfm2_moe", {"num_key_value_heads": 2}, "layer_types"),
        ("qwen3_next", {"layer_types": ["conv"] * 4}, "layer_types"),
        ("granitemoehybrid", {"position_embedding_type": "learned"}, "position_embedding_type"),
        ("zaya", {"num_experts_per_tok": 2}, "num_experts_per_tok"),
        ("xlstm", {"norm_reduction_force_float32": False, "num_heads": 4}, "norm_reduction_force_float32"),
        ("xlstm", {"weight_mode": "split", "num_heads": 4}, "weight_mode"),
        ("zaya", {"layer_types": ["full_attention"] * 4}, "layer_types"),
        ("bailing_hybrid", {"architectures": ["BailingMoeV2_5ForCausalLM"]}, "BailingMoeV2_5"),
    ],
)
def test_what_is_not_understood_is_refused(model_type: str, changes: dict[str, Any], field: str) -> None:
    heads = {"num_attention_heads": 4} if model_type != "mamba" else {}
    with pytest.raises(Refused, match=field):
        small(model_type, **heads, **changes)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("mamba2", {"num_heads": 7}),
        ("mamba", {"expand": 1e300}),
        ("mamba", {"expand": -1}),
        ("mamba", {"state_size": [16]}),
        ("zamba2", {"layers_block_type": ["mamba"]}),
        ("zamba2", {"n_mamba_heads": 7}),
        ("jamba", {"attn_layer_offset": 9}),
        ("nemotron_h", {"hybrid_override_pattern": "M*"}),
        ("qwen3_next", {"linear_num_key_heads": 3}),
        ("lfm2", {"full_attn_idxs": ["two"]}),
        ("lfm2", {"block_ffn_dim_multiplier": -2.0}),
        ("recurrent_gemma", {"intermediate_size": 1}),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [5], "kda_layers": [1, 2, 3, 4]}}),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}}),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": ["4"], "kda_layers": [1]}}),
        ("kimi_linear", {"linear_attn_config": {"num_heads": -3}}),
        ("kimi_linear", {"linear_attn_config": 4}),
        ("kimi_linear", {"num_expert_group": 7}),
        ("kimi_linear", {"num_experts_per_token": 300}),
        ("bailing_hybrid", {"layer_group_size": 0}),
        ("zaya", {"layer_types": ["hybrid_sliding"] * 4, "sliding_window": 0}),
        ("zaya", {"rope_parameters": {"rope_type": "default"}}),
        ("zaya", {"rope_parameters": {"hybrid": {"partial_rotary_factor": -1}}}),
        ("zaya", {"num_key_value_heads": 3}),
        ("zaya", {"head_dim": 1, "num_key_value_heads": 1}),
        ("zaya", {"cca_time0": 0}),
        ("xlstm", {"num_heads": 5}),
        ("xlstm", {"num_heads": 4, "v_dim_factor": 1e-9}),
        ("xlstm", {"num_heads": 4, "ffn_proj_factor": -1}),
        ("xlstm", {"num_heads": 4, "ffn_proj_factor": 1e300}),
        ("xlstm", {"num_heads": 4, "embedding_dim": 32}),
        ("bailing_hybrid", {"topk_group": 9}),
        ("bailing_hybrid", {"architectures": 3}),
    ],
)
def test_what_cannot_be_is_wrong(model_type: str, changes: dict[str, Any]) -> None:
    with pytest.raises(NapkinError) as caught:
        small(model_type, **changes)
    assert caught.value.status == 2

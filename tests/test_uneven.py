"""Decoders whose layers differ in more than their window: what sets each kind of layer apart, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import WRAPPERS
from napkin.counting.params import params
from napkin.errors import REFUSED, USAGE, NapkinError
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer
from napkin.operations.pointwise import Activation
from napkin.operations.rotary import Rotary
from tests.conftest import model_of, preset
from tests.test_families import check_dataflow

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
EXPERTS = ("moe_intermediate_size", "num_experts", "num_experts_per_tok")
DEEP = {k: v for k, v in SMALL.items() if k not in ("head_dim", "num_experts")} | {"n_routed_experts": 6}
FOUR = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]


def layers_of(model_type: str, **fields: Any) -> list[Layer]:
    unknown = {"cohere2_moe": ("moe_intermediate_size",), "lfm3": EXPERTS}.get(model_type, ())
    config = {k: v for k, v in SMALL.items() if k not in unknown} | {"model_type": model_type, **fields}
    return [layer for count, layer in model_of(config).stacks[0].runs for _ in range(count)]


def one(layer: Layer, kind: type[Operation], name: str = "") -> Any:
    return next(op for op in layer.operations if isinstance(op, kind) and op.name.startswith(name))


def rotates(layer: Layer) -> bool:
    return any(isinstance(op, Rotary) for op in layer.operations)


def test_mimo_has_twice_the_key_heads_and_sinks_in_windows() -> None:
    named = {k: v for k, v in SMALL.items() if k != "num_experts"}
    fields = {**named, "n_routed_experts": 6, "v_head_dim": 8, "layer_types": FOUR, "sliding_window_size": 3}
    config = {"model_type": "mimo_v2_flash", **fields}
    layers = [layer for count, layer in model_of(config).stacks[0].runs for _ in range(count)]
    cores = [one(layer, AttentionCore) for layer in layers]
    assert [core.kv_heads for core in cores] == [2, 4, 4, 2]
    assert [core.sinks for core in cores] == [False, True, True, False]
    assert [core.window for core in cores] == [None, 4, 4, None]  # the query's own key on top of three before
    assert {(core.qk_dim, core.v_dim) for core in cores} == {(16, 8)}
    assert [one(layer, Matmul, "o").d_in for layer in layers] == [64] * 4
    assert one(layers[0], Rotary).dim == 6  # ⌊0.334 · 16⌋ = 5, in pairs
    assert [layer.kind for layer in layers] == ["full_dense", "sliding_moe", "sliding_moe", "full_moe"]


def test_mimos_published_file_lists_its_layers_by_ones() -> None:
    of = preset("mimo-v2-flash")
    kinds = {name: count for name, count, _ in of.stacks[0].kinds()}
    assert kinds == {"full_dense": 1, "sliding_moe": 39, "full_moe": 8}


def test_lagunas_layers_have_heads_of_their_own() -> None:
    layers = layers_of("laguna", layer_types=FOUR, num_attention_heads_per_layer=[2, 4, 6, 8])
    assert [one(layer, AttentionCore).heads for layer in layers] == [2, 4, 6, 8]
    assert [one(layer, Matmul, "gate_logit").d_out for layer in layers] == [2, 4, 6, 8]
    assert [one(layer, Rotary).dim for layer in layers] == [8, 16, 16, 8]  # half a head without a window
    assert one(layers[0], Activation, "gate_score").upcast
    wide = layers_of("laguna", gating="per-element")
    assert one(wide[0], Matmul, "gate_logit").d_out == 8 * 16


def test_tensor_parallelism_divides_what_all_lagunas_layers_share() -> None:
    config = {**SMALL, "model_type": "laguna", "num_attention_heads_per_layer": [4, 8, 12, 4]}
    assert model_of(config).heads == 4


def test_commands_dense_prefix_rotates_where_its_pattern_has_no_window() -> None:
    kinds = {"layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]}
    mixed = {**kinds, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
    assert [rotates(layer) for layer in layers_of("cohere2_moe", **mixed)] == [True, False, True, False]
    apart = layers_of("cohere2_moe", **mixed, prefix_dense_sliding_window_pattern=2)
    assert [rotates(layer) for layer in apart] == [False, False, True, False]


def test_beam_rotates_in_windows_and_scales_queries_elsewhere() -> None:
    layers = layers_of("beam", layer_types=FOUR, mlp_layer_types=["dense", "sparse", "sparse", "dense"], n_group=1)
    assert [rotates(layer) for layer in layers] == [False, True, True, False]
    assert [any(op.name == "q_tempered" for op in layer.operations) for layer in layers] == [True, False, False, True]


def test_trinity_rotates_in_windows_alone() -> None:
    layers = layers_of("afmoe", num_shared_experts=1)
    assert [rotates(layer) for layer in layers] == [True, True, True, False]


def test_lfm3_lays_out_convolutions_windows_and_full_attention() -> None:
    layers = layers_of("lfm3", num_hidden_layers=6)
    assert [layer.kind for layer in layers] == ["conv", "conv", "full", "conv", "sliding", "conv"]


@pytest.mark.parametrize(
    ("model_type", "fields", "status", "says"),
    [
        ("mimo_v2_flash", {"num_key_value_heads": 3, "num_experts": None}, USAGE, "does not divide"),
        ("laguna", {"num_attention_heads_per_layer": [8, 8]}, USAGE, "2 entries for 4 layers"),
        ("laguna", {"num_attention_heads_per_layer": [8, 8, 8, 3]}, USAGE, "not a multiple"),
        ("laguna", {"rope_parameters": {"rope_theta": 1e4}}, REFUSED, "has no entry for"),
        ("laguna", {"gating": "per-token"}, REFUSED, "gating"),
        ("laguna", {"mlp_only_layers": [1]}, USAGE, "mlp_only_layers"),
        ("beam", {"sliding_window": None, "layer_types": FOUR}, REFUSED, "layers with a window"),
        ("cohere2_moe", {"expert_selection_fn": "argmax"}, REFUSED, "argmax"),
        ("aria_text", {"moe_num_shared_experts": 0}, USAGE, "moe_num_shared_experts"),
        ("lfm3", {"sliding_window": None}, REFUSED, "layers with a window"),
    ],
)
def test_contradictions_are_reported(model_type: str, fields: dict[str, Any], status: int, says: str) -> None:
    config = {**SMALL, "model_type": model_type, "num_hidden_layers": 4}
    if model_type == "aria_text":
        config |= {"moe_num_experts": 6, "moe_topk": 2, "num_experts": None, "num_experts_per_tok": None}
    if model_type == "lfm3":
        config |= {"layer_types": ["conv", "sliding_attention", "conv", "full_attention"]}
    with pytest.raises(NapkinError) as caught:
        model_of({**config, **fields})
    assert (caught.value.status, says in caught.value.message) == (status, True), caught.value.message


@pytest.mark.parametrize("model_type", ["afmoe", "beam", "cohere2_moe", "laguna", "lfm3"])
def test_operations_are_dataflow_programs(model_type: str) -> None:
    kinds = {"mlp_layer_types": ["dense", "sparse", "sparse", "dense"], "layer_types": FOUR}
    known = {"afmoe": {"layer_types": FOUR}, "lfm3": {"layer_types": ["conv", *FOUR[1:]]}}.get(model_type, kinds)
    for layer in layers_of(model_type, **known):
        check_dataflow(layer.operations, {"x"})


def test_a_fuyu_file_is_a_persimmon_on_one_level() -> None:
    persimmon = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    flat = {"model_type": "fuyu", **persimmon, "image_size": 300, "patch_size": 30, "tie_word_embeddings": False}
    nested = {"model_type": "fuyu", "text_config": {**persimmon, "model_type": "persimmon"}}
    alone = {"model_type": "persimmon", **persimmon}
    counts = {params(model_of(config))["params/total"].value for config in (flat, nested, alone)}
    assert len(counts) == 1
    assert model_of(flat).family == "persimmon"


def test_what_the_holding_class_does_otherwise_is_its_own() -> None:
    text = {**{k: v for k, v in SMALL.items() if k not in EXPERTS}, "final_logit_softcapping": 30.0}
    alone = model_of({**text, "model_type": "gemma3_text"})
    held = model_of({"model_type": "gemma3", "text_config": {**text, "model_type": "gemma3_text"}})
    assert [op.name for op in alone.stacks[0].after] == ["final_norm", "lm_head", "logits_capped"]
    assert [op.name for op in held.stacks[0].after] == ["final_norm", "lm_head"]
    assert held.family == "gemma3_text"
    kimi = {
        "model_type": "kimi_k25",
        "tie_word_embeddings": False,
        "text_config": {**DEEP, "model_type": "deepseek_v3"},
    }
    assert model_of(kimi).family == "kimi_k25"  # it copies the token ids, and masks those of images


@pytest.mark.parametrize("holder", ["idefics2", "video_llava", "lighton_ocr", "janus", "ovis2", "exaone4_5"])
def test_a_holder_says_what_its_language_model_is(holder: str) -> None:
    text = {k: v for k, v in SMALL.items() if k not in EXPERTS} | {"tie_word_embeddings": False}
    fields = {"text_config": text, "vision_config": {"hidden_size": 48}, "tie_word_embeddings": False}
    held = model_of({"model_type": holder, **fields})
    assert held.family == WRAPPERS[holder]
    assert (
        params(held)["params/total"].value
        == params(model_of({**text, "model_type": held.family}))["params/total"].value
    )

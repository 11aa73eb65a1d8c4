"""peft's adapter_config.json next to its base model; counts are those of peft 0.21's own adapters on these shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Napkin

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
LLAMA = {"model_type": "llama", **SIZES}
MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, **SIZES}
PHI3 = {"model_type": "phi3", "pad_token_id": 0, **SIZES}
USUAL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NUMBERED = {"model.layers.1.self_attn.q_proj": 8, "q_proj": 2}
GROUPED = {r".*\.(0|3)\.mlp.*": 1, "o_proj": 16}
SECOND = {"rank_pattern": {"layers.1.self_attn.v_proj": 8}}
FUSED = {"target_parameters": ["mlp.experts.gate_up_proj"]}
VIRTUAL = {"peft_type": "P_TUNING", "num_virtual_tokens": 8}
COPIED = {"token_dim": 64, "num_layers": 4, "num_attention_heads": 4, "num_transformer_submodules": 1}
"""What peft writes of the model's sizes into the file."""
FP32 = "frozen=fp32,param=fp32,grad=fp32,compute=fp32,state=fp32"


def asked(napkin: Napkin, folder: Path, model: dict[str, object], adapter: dict[str, object]) -> object:
    """Return the trained parameters, as bytes of fp32 gradients over 4, or the error."""
    base = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_dropout": 0.0}
    (folder / "config.json").write_text(json.dumps(model))
    (folder / "adapter_config.json").write_text(json.dumps({**base, **adapter}))
    words = ["memory", str(folder / "config.json"), "--from", str(folder / "adapter_config.json")]
    found = napkin([*words, "--seq", "16", "--precision", FP32, "--json"])
    return json.loads(found.out)["values"]["memory/gradients"] / 4 if found.status == 0 else found.err


@pytest.mark.parametrize(
    ("model", "adapter", "parameters"),
    [
        (LLAMA, {"target_modules": ["q_proj", "v_proj"]}, 3584),
        (LLAMA, {"target_modules": "all-linear"}, 14848),
        (LLAMA, {"target_modules": r".*\.(q|v)_proj"}, 3584),
        (LLAMA, {}, 3584),
        (LLAMA, {"target_modules": ["q_proj", "o_proj"], "use_dora": True}, 4608),
        (LLAMA, {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1, 3]}, 1792),
        (LLAMA, {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": 2}, 896),
        (LLAMA, {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}, 16384),
        (LLAMA, {"target_modules": "all-linear", "exclude_modules": ["o_proj"]}, 12800),
        (LLAMA, {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {"q_proj": 8}}, 3584),
        (LLAMA, {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"q_proj": 8}}, 5632),
        (LLAMA, {"target_modules": ["q_proj", "v_proj"], "rank_pattern": NUMBERED}, 3328),
        (LLAMA, {"target_modules": "all-linear", "rank_pattern": GROUPED, "use_dora": True}, 19904),
        (LLAMA, {"target_modules": ["q_proj", "embed_tokens"], "rank_pattern": {"model.embed_tokens": 2}}, 2376),
        (LLAMA, {"target_modules": ["q_proj"], "rank_pattern": {"o_proj": 16}}, 2048),  # of no target: passed over
        (LLAMA, {"target_modules": ["q_proj"], "rank_pattern": {}}, 2048),
        (LLAMA, {**SECOND, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1, 3]}, 2176),
        (MIXTRAL, {"target_modules": ["q_proj", "w1", "w2", "w3"], "rank_pattern": {"down_proj": 6}}, 50176),
        (MIXTRAL, {**FUSED, "target_modules": ["q_proj"], "rank_pattern": {"experts.gate_up_proj": 3}}, 14336),
        (PHI3, {"target_modules": ["qkv_proj", "o_proj"], "rank_pattern": {"qkv_proj": 12}}, 11264),
        (MIXTRAL, {"target_modules": USUAL}, 7168),  # gate_proj is not the router, which is called gate
        (MIXTRAL, {"target_modules": ["q_proj", "w1", "w2", "w3"]}, 45056),
        (MIXTRAL, {"target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj"]}, 18432),
        (PHI3, {"target_modules": ["q_proj", "o_proj"], "use_dora": True}, 2304),  # it has qkv_proj
        (LLAMA, {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 8, **COPIED, "prompt_tuning_init": "RANDOM"}, 512),
        (LLAMA, {**VIRTUAL, **COPIED, "encoder_hidden_size": 64, "encoder_reparameterization_type": "MLP"}, 12992),
        (LLAMA, {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 8, **COPIED, "prefix_projection": False}, 2048),
    ],
)
def test_an_adapter_trains_what_peft_trains(
    napkin: Napkin, tmp_path: Path, model: dict[str, object], adapter: dict[str, object], parameters: int
) -> None:
    assert asked(napkin, tmp_path, model, adapter) == parameters


@pytest.mark.parametrize(
    ("adapter", "key"),
    [
        ({"target_modules": ["q_proj"], "rank_pattern": {"(q|v)+_proj": 8}}, "rank_pattern.(q|v)+_proj"),
        ({"target_modules": ["q_proj"], "rank_pattern": {"q_proj": 0}}, "rank_pattern.q_proj"),
        ({"target_modules": ["q_proj"], "rank_pattern": 8}, "rank_pattern"),
        ({"target_modules": ["q_proj"], "rank_pattern": ["q_proj"]}, "rank_pattern"),
        ({"target_modules": ["q_proj"], "bias": "all"}, "bias"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"peft_type": "PROMPT_TUNING"}, "--virtual-tokens"),
        ({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 8, "prefix_projection": True}, "prefix_projection"),
        ({**VIRTUAL, "encoder_hidden_size": 128, "token_dim": 64}, "encoder_hidden_size"),
        ({**VIRTUAL, "encoder_reparameterization_type": "LSTM"}, "encoder_reparameterization_type"),
        ({**VIRTUAL, "modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"target_modules": r"^(?!.*lm_head).*\.(q|v)_proj"}, "target_modules"),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 2]}, "trainable_token_indices"),
    ],
)
def test_what_changes_the_count_and_is_not_modeled_is_refused(
    napkin: Napkin, tmp_path: Path, adapter: dict[str, object], key: str
) -> None:
    assert key in str(asked(napkin, tmp_path, LLAMA, adapter))


@pytest.mark.parametrize("layers", [-1, [-1], [1, None], ["a"], [0.5]])
def test_what_is_no_number_of_a_layer_is_refused(napkin: Napkin, tmp_path: Path, layers: object) -> None:
    """Not read as every layer: peft finds no layer -1 either."""
    adapter = {"target_modules": ["q_proj"], "layers_to_transform": layers}
    assert "layers_to_transform" in str(asked(napkin, tmp_path, LLAMA, adapter))


def test_an_adapter_in_a_models_place_is_named(napkin: Napkin, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')
    for model in (tmp_path, tmp_path / "adapter_config.json"):
        found = napkin(["memory", str(model)])
        assert found.status == 2
        assert "is a peft adapter, not a model" in found.err
        assert "--from" in found.err
    assert "--from" in napkin(["memory", "gpt2", "--adapter", "adapter_config.json"]).err

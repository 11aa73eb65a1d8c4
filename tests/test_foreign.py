"""Model files of other projects: read as the config.json they mean, or refused with the file that will do."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.conftest import Outcome, run_line

LLAMA3_8B = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0,
}  # fmt: skip
MISTRAL_7B = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
    "norm_eps": 1e-05, "sliding_window": 4096, "vocab_size": 32000,
}  # fmt: skip
MIXTRAL = {**MISTRAL_7B, "moe": {"num_experts_per_tok": 2, "num_experts": 8}, "sliding_window": None}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "bias": True, "vocab_size": 50257}
PYTHIA = """
name: pythia-160m
block_size: 2048
vocab_size: 50254
padded_vocab_size: 50304
n_layer: 12
n_head: 12
n_embd: 768
bias: true
mlp_class_name: GptNeoxMLP
norm_class_name: LayerNorm
parallel_residual: true
rotary_percentage: 0.25
"""
MPT = """
variables:
  max_seq_len: 2048
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: ${variables.max_seq_len}
  vocab_size: 50432
  no_bias: true
  attn_config:
    alibi: true
    attn_impl: flash
max_duration: 1ba
eval_interval: 0ba
"""
OLMO = """
model:
  d_model: 4096
  n_heads: 32
  n_layers: 32
  mlp_hidden_size: 22016
  weight_tying: false
  rope: true
  include_bias: false
  layer_norm_type: default
  layer_norm_with_affine: false
  bias_for_layer_norm: false
  vocab_size: 50280
  embedding_size: 50304
"""
OLMO2 = """
model:
  d_model: 4096
  n_heads: 32
  n_layers: 32
  mlp_hidden_size: 22016
  weight_tying: false
  rope: true
  include_bias: false
  layer_norm_type: rms
  bias_for_layer_norm: false
  attention_layer_norm: true
  norm_after: true
  vocab_size: 100278
  embedding_size: 100352
"""
NANOTRON = """
model:
  make_vocab_size_divisible_by: 1
  model_config:
    hidden_size: 576
    intermediate_size: 1536
    is_llama_config: true
    num_attention_heads: 9
    num_hidden_layers: 30
    num_key_value_heads: 3
    rope_theta: 10000.0
    tie_word_embeddings: true
    vocab_size: 49152
parallelism:
  tp: 2
"""
MPT_125M = """
model:
  name: mpt_causal_lm
  d_model: 768
  n_heads: 12
  n_layers: 12
  expansion_ratio: 4
  max_seq_len: 2048
  vocab_size: 50368
  attn_config:
    attn_impl: torch
"""
QWEN25_05B = {
    "name": "Qwen2.5-0.5B", "n_layer": 24, "n_head": 14, "n_embd": 896, "n_query_groups": 2, "block_size": 32768,
    "vocab_size": 151643, "padded_vocab_size": 151936, "intermediate_size": 4864, "bias": False, "attn_bias": True,
    "parallel_residual": False, "mlp_class_name": "LLaMAMLP", "norm_class_name": "RMSNorm", "rotary_percentage": 1.0,
}  # fmt: skip
EXECUTORCH = {
    "dim": 896, "hidden_dim": 4864, "n_heads": 14, "n_kv_heads": 2, "n_layers": 24, "vocab_size": 151936,
    "use_scaled_rope": False, "attention_qkv_bias": True,
}  # fmt: skip
DEEPSEEK = {"dim": 2048, "inter_dim": 10944, "moe_inter_dim": 1408, "n_layers": 27, "n_heads": 16, "vocab_size": 1024}
OPEN_LM = {"hidden_dim": 4096, "n_layers": 32, "n_heads": 32, "seq_len": 2048, "vocab_size": 50432}
NAMED = "model:\n  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
NEOX = '"num-layers": 12\n"hidden-size": 768\n"num-attention-heads": 12\n"rotary-pct": 0.25\n'


def asked(text: Any) -> Outcome:
    return run_line(["params", "-", "--json"], stdin=text if isinstance(text, str) else json.dumps(text))


# published counts: the model cards' and the Hugging Face classes'
@pytest.mark.parametrize(
    ("file", "total", "kind"),
    [
        (LLAMA3_8B, 8_030_261_248, "Meta"),
        ({**LLAMA3_8B, "vocab_size": -1, "multiple_of": 256, "ffn_dim_multiplier": None, "n_kv_heads": None},
         6_738_415_616, "Meta"),
        (MISTRAL_7B, 7_241_732_096, "Mistral"),
        (MIXTRAL, 46_702_792_704, "Mistral"),
        (GPT2, 124_439_808, "nanoGPT"),
        # without biases: 12h² of a layer's products and 2h of its norms, two tables, the last norm
        ({**GPT2, "n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "bias": False},
         6 * (12 * 384**2 + 2 * 384) + (50_257 + 256 + 1) * 384, "nanoGPT"),
        (PYTHIA, 162_322_944, "LitGPT"),
        (MPT, 6_649_286_656, "MosaicML"),
        ("parameters:" + indent(MPT, "  "), 6_649_286_656, "MosaicML"),
        (OLMO, 6_888_095_744, "OLMo"),
        (OLMO2, 7_298_617_344, "OLMo"),
        (NANOTRON, 134_515_008, "nanotron"),
        # biases and learned positions, MPT's defaults: 4·768·769 in attention, 3072·769 + 768·3073 in the MLP and
        # 4·768 in the norms of a layer
        (MPT_125M, 12 * (4 * 768 * 769 + 3072 * 769 + 768 * 3073 + 4 * 768) + (50368 + 2048) * 768 + 2 * 768, "Mosaic"),
        # without the tie: 151,936 rows of 896 more than the published 494,032,768
        (QWEN25_05B, 494_032_768 + 151_936 * 896, "LitGPT"),
    ],
)  # fmt: skip
def test_it_is_read_as_the_config_that_it_means(file: Any, total: int, kind: str) -> None:
    answer = asked(file)
    assert answer.status == 0, answer.err
    assert answer.values["params/total"] == total
    assert any(kind in note for note in answer.data["notes"])


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (OLMO.replace("rope: true", "alibi: true"), "rope"),
        (MPT.replace("no_bias: true", "no_bias: false"), "biases"),
        (MPT.replace("alibi: true", "alibi: false"), "no_bias"),
        (MPT_125M + "  learned_pos_emb: false\n", "learned_pos_emb"),
        (NANOTRON.replace("is_llama_config", "is_mamba_config"), "nanotron"),
        (NEOX, "convert_neox_to_hf"),
        (EXECUTORCH, "ExecuTorch"),
        (DEEPSEEK, "DeepSeek"),
        (OPEN_LM, "OpenLM"),
        (NAMED, "its name"),
        ({**LLAMA3_8B, "vision_num_cross_attention_layers": 8}, "vision_num_cross_attention_layers"),
        ({**MISTRAL_7B, "made_up": 3}, "made_up"),
        ({**QWEN25_05B, "lm_head_bias": True}, "lm_head_bias"),
        ({"dim": 4096, "n_layers": 64, "n_groups": 8, "vocab_size": 32768}, "config.json"),
        ({**LLAMA3_8B, "moe_args": {"num_experts": 16}}, "config.json"),
        ({**LLAMA3_8B, "dim": "wide"}, "Meta"),
        ({**LLAMA3_8B, "ffn_dim_multiplier": {"": 1.3}}, "ffn_dim_multiplier is not a number"),
        (OLMO.replace("mlp_hidden_size: 22016", "mlp_ratio: {a: 1}"), "a value of another kind than the format's"),
    ],
)
def test_what_does_not_say_enough_names_the_file_that_will_do(file: Any, says: str) -> None:
    outcome = asked(file)
    assert outcome.status == 3
    assert says in outcome.err
    assert len(outcome.err.strip().splitlines()) == 2  # error: and hint:


def test_a_folder_with_params_json_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(MISTRAL_7B), encoding="utf-8")
    assert run_line(["params", str(tmp_path), "--json"]).values["params/total"] == 7_241_732_096


def test_python_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "train_gpt2.py"
    path.write_text("n_layer = 12\nraise SystemExit(9)\n", encoding="utf-8")
    outcome = run_line(["params", str(path)])
    assert outcome.status == 3
    assert "n_layer" in outcome.err


def test_toml_names_the_file_that_will_do(tmp_path: Path) -> None:
    path = tmp_path / "llama3_8b.toml"
    path.write_text('[model]\nname = "llama3"\nflavor = "8B"\n', encoding="utf-8")
    outcome = run_line(["params", str(path)])
    assert outcome.status == 3
    assert "flavor" in outcome.err


def test_a_padded_vocabulary_gets_a_note() -> None:
    answer = asked(NANOTRON.replace("49152", "49153"))
    assert answer.values["params/total"] == 134_515_008 + 2 * 576  # tp 2: one row more than asked
    assert any("49,154 tokens" in note for note in answer.data["notes"])


@pytest.mark.parametrize("file", [LLAMA3_8B, MIXTRAL, GPT2, QWEN25_05B])
@pytest.mark.parametrize("value", ["null", "[]", "{}", '"x"', "-1", "1e300", "Infinity", "true"])
def test_hostile_values_never_crash(file: dict[str, Any], value: str) -> None:
    for field in file:
        text = json.dumps({**file, field: "@"}).replace('"@"', value)
        assert asked(text).status in (0, 2, 3)

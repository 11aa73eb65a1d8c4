"""Model files of other projects: read as the config.json they mean, or refused with the file that will do."""

from __future__ import annotations

import json
from pathlib import Path
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
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: 2048
  vocab_size: 50432
max_duration: 1ba
"""
OLMO = "run_name: OLMo\nmodel:\n  d_model: 4096\n  n_heads: 32\n  n_layers: 32\n"
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
        (PYTHIA, 162_322_944, "LitGPT"),
        (MPT, 6_649_286_656, "MosaicML"),
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
        (OLMO, "OLMo"),
        (NEOX, "convert_neox_to_hf"),
        ({"dim": 4096, "n_layers": 64, "n_groups": 8, "vocab_size": 32768}, "config.json"),
        ({**LLAMA3_8B, "moe_args": {"num_experts": 16}}, "config.json"),
        ({**GPT2, "bias": False}, "bias=False"),
        ({**LLAMA3_8B, "dim": "wide"}, "Meta"),
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


@pytest.mark.parametrize("file", [LLAMA3_8B, MIXTRAL, GPT2])
@pytest.mark.parametrize("value", ["null", "[]", "{}", '"x"', "-1", "1e300", "Infinity", "true"])
def test_hostile_values_never_crash(file: dict[str, Any], value: str) -> None:
    for field in file:
        text = json.dumps({**file, field: "@"}).replace('"@"', value)
        assert asked(text).status in (0, 2, 3)

"""Levanter's YAML, with the defaults of its own code (src/levanter/trainer.py, src/levanter/models)."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

SMALL = """data: {id: a/b}
model: {type: gpt2, hidden_dim: 32, num_heads: 4, num_layers: 2, seq_len: 64}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 32, num_train_steps: 100, fsdp_axis: embed}
"""
LLAMA = """data: {tokenizer: meta-llama/Llama-2-7b-hf}
model: {type: llama}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 1024, per_device_parallelism: 4, MORE}
"""


def read(text: str) -> Reading:
    return reading_of(source_of(text, "run.yaml"))


def test_a_small_gpt2(napkin: Napkin, tmp_path: Path) -> None:
    """GPT-2's tokenizer by default: 50,257 and 64 rows of 32, 12·32² + 13·32 in each layer, a last norm."""
    found = read(SMALL)
    wanted = {
        "steps": 100, "global-batch": 32, "grad-accum": 1, "seq": 64, "precision": "amp-bf16", "zero": 3,
        "recompute": "full", "optimizer": "adamw", "task": "pretrain", "gpus": None,
    }  # fmt: skip
    assert {name: found.value_of(name) for name in wanted} == wanted
    path = tmp_path / "run.yaml"
    path.write_text(SMALL)
    total = napkin(f"params --from {path} --json").values["params/total"]
    assert total == (50257 + 64) * 32 + 2 * (12 * 32**2 + 13 * 32) + 2 * 32
    assert napkin(f"memory --from {path} --gpus 4 --hardware h100").status == 0


def test_a_class_has_levanters_sizes() -> None:
    found = read(LLAMA.replace("MORE", "model_axis_size: 2"))
    assert found.value_of("model") == "llama-7b"  # 32 layers of 4096 with an MLP of 11008
    assert [found.value_of(name) for name in ("micro-batch", "tp", "seq")] == [4, 2, 2048]


@pytest.mark.parametrize(
    ("stated", "policy"),
    [("f32", "fp32"), ("bfloat16", "bf16-pure"), ("p=bfloat16,c=bfloat16", "bf16-pure"),
     ("params=float32,compute=bfloat16,output=bfloat16", "amp-bf16"), ("p=f64,c=f32", None)],
)  # fmt: skip
def test_jmps_policies(stated: str, policy: str | None) -> None:
    assert read(SMALL.replace("p=f32,c=bfloat16", stated)).value_of("precision") == policy


@pytest.mark.parametrize(
    ("old", "new", "option", "value"),
    [
        ("fsdp_axis: embed", "fsdp_axis: null", "zero", 0),
        ("seq_len: 64", "seq_len: 64, gradient_checkpointing: false", "recompute", "none"),
        ("train_batch_size: 32", "train_batch_size: [{start: 0, value: 8}]", "global-batch", None),
        ("data: {id: a/b}", "data: !include data/mix.yaml", "model", None),
        ("data: {id: a/b}", "chat_train_urls: [a]\nmessages_field: m", "task", "sft"),
        ("type: gpt2", "type: gpt2_hyena", "model", None),
    ],
)
def test_a_key_of_levanter(old: str, new: str, option: str, value: object) -> None:
    found = read(SMALL.replace(old, new))
    assert found.format.name == "levanter"
    assert found.value_of(option) == value


def test_adapters_over_weights_in_the_type_of_the_computation() -> None:
    text = SMALL + "initialize_from_hf: mistralai/Mistral-7B-v0.1\nuse_hf_model_config: true\nlora: {r: 16}\n"
    found = read(text)
    assert found.value_of("model") == "mistral-7b-v0.1"
    assert found.value_of("lora-rank") == 16
    assert str(found.value_of("precision")) == "frozen=bf16,param=fp32,grad=fp32,compute=bf16,state=fp32"
    saved = read(SMALL + "initialize_from_hf: gpt2\npeft_save_path: out\n")
    assert [saved.value_of(name) for name in ("adapter", "lora-rank", "lora-targets")] == ["lora", 8, "all"]

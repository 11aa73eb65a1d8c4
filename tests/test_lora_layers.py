"""Adapters on some layers only (peft's layers_to_transform): `--lora-targets all,@16-31`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin, run_line

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
MEMORY = "--lora-rank 4 --seq 32 --micro-batch 2 --precision fp32 --attention eager --json"


@pytest.mark.parametrize(
    ("targets", "trained", "saved"),
    [
        ("q,v", 5_376, 1_604_100),
        ("q,v,@4-5", 1_792, 578_052),
        ("q,down,@2", 1_408, 1_076_740),
        ("all,@0,@3,@5", 13_440, 1_801_732),
        ("o,@3", 512, 731_140),
        ("gate,@5", 896, 193_284),
        ("@1-3", 13_440, 1_563_652),
    ],
)
def test_parameters_and_saved_bytes_are_those_of_peft(targets: str, trained: int, saved: int) -> None:
    """Measured with peft 0.21.2 and transformers 5.23.0: LoraConfig(r=4, layers_to_transform=…) on this Llama with
    eager attention in fp32, 2 × 32 tokens; distinct storages of saved tensors that are neither weights nor buffers."""
    values = run_line(["memory", json.dumps(TINY), "--lora-targets", targets, *MEMORY.split()]).values
    assert values["memory/gradients"] == 4 * trained
    assert values["memory/activations"] == saved


def test_all_layers_are_as_no_layers_named() -> None:
    line = "memory llama3-8b --lora-rank 8 --hardware h100 --seq 2048 --json"
    named, plain = (run_line(f"{line} --lora-targets {targets}").values for targets in ("all,@0-31", "all"))
    assert named["memory/total"] == plain["memory/total"]


def test_the_first_adapted_layer_ends_the_backward_pass() -> None:
    """With an adapter one layer earlier, gradients pass through one layer more: 2 FLOP for each of its weights and, of
    attention in full, twice its two matmuls of 2·s·h, for each token."""
    line = "flops llama3-8b --lora-rank 8 --seq 2048 --json"
    earlier, later = (run_line(f"{line} --lora-targets q,@{at}").values["flops/total"] for at in (30, 31))
    weights = 4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336
    assert earlier - later == 2048 * (2 * weights + 2 * 2 * 2 * 2048 * 4096)


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        ("all,@40", "has layers 0 to 31"),
        ("all,@5-3", "begins after its end"),
        ("all,@x", "no number of a layer"),
        ("embed_tokens,@3", "is in no layer"),
    ],
)
def test_layers_that_there_are_not(napkin: Napkin, targets: str, says: str) -> None:
    outcome = napkin(f"memory llama3-8b --lora-rank 8 --lora-targets {targets}")
    assert outcome.status == 2
    assert says in outcome.errors[0]


def test_experts_in_some_layers_are_refused(napkin: Napkin) -> None:
    """peft puts adapters of parameters into every layer."""
    assert napkin("memory mixtral-8x7b --lora-rank 8 --lora-targets all,@3").status == 3
    assert napkin("memory mixtral-8x7b --lora-rank 8 --lora-targets q_proj,@3").status == 0
    assert napkin("memory t5-small --lora-rank 8 --lora-targets q,@3").status == 3


@pytest.mark.parametrize(
    ("layers", "means"),
    [("[28, 29, 30, 31]", "all,@28-31"), ("[0, 2, 3]", "all,@0,@2-3"), ("7", "all,@7"), ("", "all"), ("[]", "all")],
)
def test_axolotl_names_layers(layers: str, means: str) -> None:
    text = (
        "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 1\nsequence_len: 2048\nadapter: lora\nlora_r: 8\n"
        f"lora_target_linear: true\npeft_layers_to_transform: {layers}\n"
    )
    assert reading_of(source_of(text, "file")).value_of("lora-targets") == means


def test_programs_name_layers(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\n"
        "peft = LoraConfig(r=8, target_modules=['q_proj', 'v_proj'], layers_to_transform=[30, 31])\n"
        "SFTTrainer(model='Qwen/Qwen3-8B', args=SFTConfig(), peft_config=peft)\n",
        encoding="utf-8",
    )
    outcome = run_line(["read", "--from", str(file), "--json"])
    assert "q_proj,v_proj,@30-31" in outcome.out or "q,v,@30-31" in outcome.out

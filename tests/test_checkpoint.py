"""What a checkpoint holds: the trained part of a model, by the shapes of its weights if states depend on them."""

from __future__ import annotations

import pytest

from tests.conftest import Napkin

EMBEDDING = 128_256 * 4096
LORA_16 = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
"""Adapters of rank 16 on the seven linear layers of each of Llama 3 8B's 32 layers."""


def test_adapters_are_saved_without_the_model(napkin: Napkin) -> None:
    """bf16 adapters, an fp32 master copy and two moments; merged, the whole model in bf16."""
    found = napkin("checkpoint llama3-8b --lora-rank 16 --json").values
    assert found["checkpoint/parameters"] == 2 * LORA_16
    assert found["checkpoint/master"] == 4 * LORA_16
    assert found["checkpoint/optimizer"] == pytest.approx(8 * LORA_16, rel=1e-5)  # and a step count per tensor
    assert found["checkpoint/merged"] == 2 * 8_030_261_248
    assert napkin("checkpoint llama3-8b --lora-rank 16").out.count("merged") == 1


def test_frozen_layers_are_not_saved(napkin: Napkin) -> None:
    """All weights, and the states of half of the 32 layers, the last norm and the head."""
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    trained = 16 * layer + 4096 + EMBEDDING
    found = napkin("checkpoint llama3-8b --freeze-layers 16 --json").values
    assert found["checkpoint/parameters"] == 2 * 8_030_261_248
    assert found["checkpoint/master"] == 4 * trained
    line = "train-time llama3-8b --task sft --freeze-layers 16 --tokens 1B --gpus 8 --hardware h100 --zero 3 --json"
    assert napkin(line).values["checkpoint/bytes"] == found["checkpoint/bytes"]


def test_a_tied_embedding_is_saved_once(napkin: Napkin) -> None:
    """BLOOM 560M: 14 bytes of each of 559,214,592 parameters, of which the head has none of its own."""
    line = "train-time bloom-560m --tokens 1B --gpus 8 --hardware h100 --zero 1 --json"
    assert napkin(line).values["checkpoint/bytes"] == pytest.approx(14 * 559_214_592, rel=1e-5)


def test_a_vision_tower_is_saved_with_its_model(napkin: Napkin) -> None:
    """Qwen2-VL 7B: 8,291,375,616 parameters as published, 675.8 million of them in the tower and its projector."""
    found = napkin("checkpoint qwen2-vl-7b --json").values["checkpoint/bytes"]
    assert found == 14 * 8_291_375_616
    run = napkin("train-time qwen2-vl-7b --tokens 1B --gpus 8 --hardware h100 --zero 3 --json").values
    assert run["checkpoint/bytes"] == pytest.approx(found, rel=1e-6)


def test_states_that_depend_on_shapes(napkin: Napkin) -> None:
    """Muon has one buffer of a matrix in a layer and leaves the rest to AdamW with two; Adafactor has a row and a
    column. A count of parameters alone is not enough for them."""
    muon = napkin("checkpoint llama3-8b --optimizer muon --json").values["checkpoint/optimizer"]
    rest = 2 * EMBEDDING + (2 * 32 + 1) * 4096
    assert muon == pytest.approx(4 * (8_030_261_248 - rest) + 8 * rest, rel=1e-6)
    memory = napkin("memory llama3-8b --optimizer adafactor --json").values
    kept = napkin("checkpoint llama3-8b --optimizer adafactor --json").values["checkpoint/optimizer"]
    assert kept == pytest.approx(memory["memory/optimizer"] - memory["memory/optimizer/master"], rel=1e-3)
    assert napkin("checkpoint --params 8B --optimizer adafactor").status == 3


def test_the_next_line_has_no_option_of_a_launch_file_that_is_not_its_own(napkin: Napkin) -> None:
    shown = napkin("checkpoint llama3-8b --from configs/launch/lora-8b.yaml").out
    line = shown.partition("next: napkin ")[2].replace("\\\n", " ")
    assert "--lora-rank 16" in line
    assert napkin(line).status == 0


@pytest.mark.parametrize(
    "line", ["llama3-8b --lora-rank 8 --quantized nf4", "llama3-8b --lora-rank 8 --lora-dropout 0.1"]
)
def test_what_is_not_saved_is_rejected(napkin: Napkin, line: str) -> None:
    assert "frozen weights are not saved" in napkin(f"checkpoint {line}").err
    assert "belongs to a MODEL" in napkin("checkpoint --params 8B --lora-rank 8").err

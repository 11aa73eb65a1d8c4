"""Heads of classification and question answering: counts of transformers' own classes, and arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin._tables.class_heads import CLASS_HEADS
from napkin.architectures.heads import HEADS
from napkin.counting import flops
from napkin.counting.params import params
from tests.conftest import model_of, run_line

ROWS = json.loads((Path(__file__).parent / "data" / "class_heads.json").read_text(encoding="utf-8"))["rows"]
BERT = {
    "architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": 768, "hidden_act": "gelu",
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522,
    "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForSequenceClassification"], "model_type": "llama", "hidden_size": 4096,
    "vocab_size": 128256, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336,
    "max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_8B_BODY = 8030261248 - 128256 * 4096
"""Llama 3 8B without its head."""


def value(line: str, path: str) -> float:
    return float(run_line(f"{line} --json").values[path])


def total(fields: dict[str, Any]) -> int:
    return int(params(model_of(fields))["params/total"].value)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_counts_are_those_of_the_class(row: list[Any]) -> None:
    _, weights, all_flops, of_head, length, target, fields = row
    model = model_of(fields)
    assert params(model)["params/total"].value == weights
    if all_flops >= 0:
        over = flops.works(model, 2, length, target=target or None)
        counted = flops.forward(model, over).value
        own = sum(
            2 * one.m * one.k * one.n
            for op in model.stacks[-1].after
            if not op.name.startswith(("pooler", "project_out", "final"))
            for one in op.gemms(over[model.stacks[-1].name])
        )
        assert counted == all_flops or own == of_head


def test_every_class_has_a_head_that_is_known() -> None:
    assert set(CLASS_HEADS.values()) <= set(HEADS)


def test_labels_are_those_of_id2label_then_num_labels_then_two() -> None:
    pooled = 109_482_240  # bert-base-uncased with its pooler
    assert total(BERT) == pooled + 768 * 2 + 2
    assert total({**BERT, "num_labels": 5}) == pooled + 768 * 5 + 5
    assert total({**BERT, "id2label": {"0": "a", "1": "b", "2": "c"}}) == pooled + 768 * 3 + 3
    assert total({**LLAMA, "num_labels": 1}) == LLAMA_8B_BODY + 4096
    tokens = {**LLAMA, "architectures": ["LlamaForTokenClassification"], "num_labels": 9}
    assert total(tokens) == LLAMA_8B_BODY + 9 * 4096 + 9


@pytest.mark.parametrize(
    "name",
    ["DSparkDraftModel", "LlamaForCausalLMEagle3", "LlamaForProcessRewardModel", "LlamaForCausalLMWithValueHead"],
)
def test_a_class_that_transformers_does_not_have_is_not_taken_for_the_body(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "architectures": [name]}), encoding="utf-8")
    outcome = run_line(["params", str(file)])
    assert outcome.status == 3
    assert outcome.err.count("error:") == outcome.err.count("hint:") == 1
    assert name in outcome.err
    assert "remove the field" in outcome.err


@pytest.mark.parametrize(("name", "head"), [("LlamaModel", 0), ("LLaMAForCausalLM", 1), ("LlamaForCausalLM", 1)])
def test_a_body_and_a_language_model_are_distinguished_by_name(name: str, head: int) -> None:
    assert total({**LLAMA, "architectures": [name]}) == LLAMA_8B_BODY + head * 128256 * 4096


def test_no_logits_over_the_vocabulary_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    line = f"memory {file} --seq 4096 --attention flash"
    file.write_text(json.dumps({**LLAMA, "num_labels": 3}), encoding="utf-8")
    scored = value(line, "memory/activations/saved")
    file.write_text(json.dumps({**LLAMA, "architectures": ["LlamaForCausalLM"]}), encoding="utf-8")
    named = value(line, "memory/activations/saved")
    logits = 4096 * 128256 * 4  # what the loss of a language model keeps of them, fp32
    assert abs(named - scored - logits) < 1e6


@pytest.mark.parametrize(
    ("more", "line", "status", "says"),
    [
        ({"num_labels": 3, "id2label": {"0": "a"}}, "params", 2, "num_labels"),
        ({"id2label": {}}, "params", 2, "id2label"),
        ({"architectures": ["LlamaForAudioClassification"]}, "params", 3, "LlamaForAudioClassification"),
        ({}, "memory --task dpo", 2, "scores labels"),
        ({}, "memory --loss fused", 2, "over its labels"),
        ({}, "serve --hardware h100", 3, "scores labels"),
    ],
)
def test_what_a_head_does_not_have_is_refused(
    more: dict[str, Any], line: str, status: int, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, **more}), encoding="utf-8")
    command, *options = line.split()
    outcome = run_line([command, str(file), *options])
    assert outcome.status == status
    assert says in outcome.err


def test_adapters_leave_the_head_to_be_trained_in_full(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "num_labels": 7}), encoding="utf-8")
    line = f"memory {file} --lora-rank 8 --lora-targets q_proj --precision fp32 --optimizer sgd-momentum"
    trained = 32 * 8 * (4096 + 4096) + 7 * 4096
    assert value(line, "memory/optimizer") == 4 * trained

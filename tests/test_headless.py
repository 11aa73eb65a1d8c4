"""Files that name a class without a language model's head: what they say of the head changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.operations.roles import LM_HEAD
from tests.conftest import ROOT, model_of, run_line

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
}


def total(fields: dict[str, Any]) -> int:
    found = params(model_of(fields))["params/total"].value
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("model_type", "bare", "whole", "more"),
    [
        ("qwen3", "Qwen3Model", "Qwen3ForCausalLM", {"intermediate_size": 64}),
        ("smollm3", "SmolLM3Model", "SmolLM3ForCausalLM", {"intermediate_size": 64}),  # LM is a part of its name
        ("deberta-v2", "DebertaV2Model", "DebertaV2ForMaskedLM", {"intermediate_size": 64}),
        ("modernbert", "ModernBertModel", "ModernBertForMaskedLM", {"intermediate_size": 64, "decoder_bias": False}),
    ],
)
def test_a_class_without_a_head_has_none_whether_or_not_it_would_be_tied(
    model_type: str, bare: str, whole: str, more: dict[str, Any], tied: bool
) -> None:
    fields = {"model_type": model_type, **SIZES, **more, "tie_word_embeddings": tied}
    without = total(fields | {"architectures": [bare]})
    assert without < total(fields | {"architectures": [whole]}) or (tied and model_type in ("qwen3", "smollm3"))
    assert without == total(fields | {"architectures": [bare], "tie_word_embeddings": not tied})


def test_xmod_without_a_head_has_a_pooler() -> None:
    """`XmodModel(config)` of transformers 5.23.0 on the meta device."""
    fields = {"model_type": "xmod", **SIZES, "intermediate_size": 64, "max_position_embeddings": 40}
    bare = total(fields | {"architectures": ["XmodModel"]})
    assert bare == 45_584


def test_a_head_that_the_class_never_ties_gets_a_note() -> None:
    fields = {
        "model_type": "nemotron_h", **SIZES, "intermediate_size": 64, "hybrid_override_pattern": "*-",
        "head_dim": 12,
    }  # fmt: skip
    model = model_of(fields | {"tie_word_embeddings": True})
    assert not model.tied
    assert any("tie_word_embeddings has no effect" in note for note in model.notes)


DEFAULTS = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]


def test_nothing_is_tied_to_a_head_that_is_not_there() -> None:
    """Of every type's default configuration under a class without a head: memory would count one table less."""
    read = 0
    for model_type, fields in DEFAULTS:
        stated = {**fields, "model_type": model_type, "architectures": ["Model"], "tie_word_embeddings": True}
        try:
            model = model_of(stated)
        except NapkinError:  # no such class, or nothing to tie
            continue
        heads = [op for stack in model.stacks for op in stack.after if op.role == LM_HEAD]
        assert heads or not model.tied, model_type
        read += 1
    assert read > len(DEFAULTS) / 2


@pytest.mark.parametrize("model_type", ["bart", "deberta-v2", "distilbert", "hrm_text", "openai-gpt"])
def test_memory_of_a_class_that_ends_with_its_layers(model_type: str) -> None:
    """Nothing follows the layers, not even a norm: the loss is on the residual stream. In fp32 four bytes for each
    parameter."""
    stated = {**dict(DEFAULTS)[model_type], "model_type": model_type, "architectures": ["Model"]}
    answer = run_line("memory - --seq 64 --precision fp32 --json", stdin=json.dumps(stated))
    assert answer.values["memory/parameters"] == 4 * total(stated)
    assert answer.values["memory/activations"] > 0


@pytest.mark.parametrize("tied", [True, False])
def test_a_bare_recurrent_class_holds_its_table_once(tied: bool) -> None:
    """In fp32 four bytes for each parameter, of which 97 × 48 are the table's."""
    fields = {"model_type": "mamba", "hidden_size": 48, "num_hidden_layers": 2, "vocab_size": 97}
    stated = {**fields, "architectures": ["MambaModel"], "tie_word_embeddings": tied}
    answer = run_line("memory - --seq 64 --precision fp32 --json", stdin=json.dumps(stated))
    assert answer.values["memory/parameters"] == 4 * total(stated)

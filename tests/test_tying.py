"""Which tie_word_embeddings a multimodal file follows: what classes of transformers were seen to do, and what files of
transformers 4 meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import build
from napkin.counting.params import params
from napkin.errors import Refused
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from napkin.operations.model import Model

DATA = Path(__file__).parent / "data"
SEEN = json.loads((DATA / "class_ties.json").read_text(encoding="utf-8"))
SAVED: dict[str, Any] = dict(json.loads((DATA / "default_configs.json").read_text(encoding="utf-8"))["rows"])
INCOMPLETE = {"aya_vision", "cohere_compass", "deepseek_ocr2", "diffusion_gemma", "qwen4_exp"}
"""Types whose default configuration no model can be built of."""
TEXT = {"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2}
HEAD = 100 * 64


def built(fields: Mapping[str, Any]) -> Model:
    return build(config_from("config", Document("config", fields), fields))


def stating(saved: Mapping[str, Any], outer: bool | None, inner: bool | None) -> dict[str, Any]:
    """Return a file without its version whose levels state these values; null if a level states none."""
    fields: dict[str, Any] = json.loads(json.dumps(saved))
    for level, stated in ((fields, outer), (fields.get("text_config", {}), inner)):
        level.pop("transformers_version", None)
        level.pop("tie_word_embeddings", None)
        level.update({} if stated is None else {"tie_word_embeddings": stated})
    return fields


def test_every_class_is_followed_whatever_the_levels_state() -> None:
    off: dict[str, tuple[str, str]] = {}
    for model_type, letters in SEEN["rows"].items():
        if model_type not in INCOMPLETE:
            files = (stating(SAVED[model_type], *pair) for pair in product(SEEN["stated"], repeat=2))
            mine = "".join("FT"[built(fields).tied] for fields in files)
            off |= {} if mine == letters else {model_type: (letters, mine)}
    assert len(SEEN["rows"]) > 100
    assert off == {}


def head(kind: str, inner: Mapping[str, Any], **outer: Any) -> Any:
    fields = {"model_type": kind, "text_config": {**TEXT, **inner}, **outer}
    return params(built(fields))["params/lm_head"].value


@pytest.mark.parametrize(
    ("kind", "text", "outer", "expected"),
    [
        ("mistral3", {}, {}, 0),  # the class's own default
        ("mistral3", {}, {"transformers_version": "4.50.0.dev0"}, HEAD),  # the language model's, and so the checkpoint
        ("mistral3", {"transformers_version": "4.50.0"}, {"transformers_version": None}, HEAD),
        ("mistral3", {}, {"transformers_version": "5.0.0"}, 0),
        ("mistral3", {}, {"tie_word_embeddings": False, "transformers_version": "4.50.0"}, HEAD),
        ("mistral3", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, HEAD),
        (
            "mistral3",
            {"tie_word_embeddings": True},
            {"tie_word_embeddings": False, "transformers_version": "4.57.1"},
            0,
        ),
        ("llava", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, 0),  # its class takes either
        ("voxtral", {"model_type": "llama", "tie_word_embeddings": True}, {}, HEAD),  # its class shares nothing
        ("lfm2_vl", {"model_type": "llama"}, {"tie_embedding": False}, HEAD),
    ],
)
def test_levels_and_versions(kind: str, text: dict[str, Any], outer: dict[str, Any], expected: int) -> None:
    assert head(kind, text, **outer) == expected


def test_a_difference_between_versions_gets_a_note() -> None:
    fields = {"model_type": "mistral3", "text_config": TEXT, "transformers_version": "4.50.0"}
    assert any("transformers 4" in note and "tie_word_embeddings is false" in note for note in built(fields).notes)
    assert not any("tie_word" in note for note in built({**fields, "tie_word_embeddings": False}).notes)


def test_an_unseen_class_is_not_guessed() -> None:
    text = {**TEXT, "tie_word_embeddings": True}
    unknown = {"model_type": "some_vl", "text_config": text, "tie_word_embeddings": False}
    with pytest.raises(Refused, match="contradicts text_config"):
        built(unknown)
    assert built({**unknown, "transformers_version": "4.57.1"}).tied
    assert not built({**unknown, "transformers_version": "5.0.0"}).tied

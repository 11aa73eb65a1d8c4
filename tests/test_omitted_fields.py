"""Fields that a file omits or states against the usual: counts of transformers' classes, built on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import NapkinError
from tests.conftest import model_of

SIGLIP_LARGE = {"hidden_size": 2048, "intermediate_size": 4104, "num_channels": 1, "num_hidden_layers": 24}
TEXTS: list[tuple[int, dict[str, Any]]] = [
    # VoxtralConfig gives its Llama another vocabulary, inner width and number of heads than LlamaConfig has
    (
        994_065_408,
        {
            "model_type": "voxtral",
            "text_config": {"hidden_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 16},
        },
    ),
    # the first layer is dense if no field says which are
    (
        594_090_240,
        {
            "model_type": "unlimited_ocr",
            "vision_config": {},
            "text_config": {
                "num_hidden_layers": 2, "n_shared_experts": 1, "hidden_size": 1280, "intermediate_size": 6848,
                "num_attention_heads": 10,
            },
        },
    ),
]  # fmt: skip
WHOLES: list[tuple[int, dict[str, Any]]] = [
    # the projector's own width
    (
        18_148_533_264,
        {
            "model_type": "minimax_m3_vl",
            "projector_hidden_size": 6152,
            "vision_config": {
                "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
            },
            "text_config": {
                "num_hidden_layers": 2, "hidden_size": 6144, "intermediate_size": 3072, "num_attention_heads": 64,
            },
        },
    ),
    # a token for masked patches
    (
        4_783_416_000,
        {
            "model_type": "qianfan_ocr",
            "vision_feature_layer": -2,
            "vision_config": {**SIGLIP_LARGE, "use_mask_token": True, "num_attention_heads": 16},
            "text_config": {
                "num_hidden_layers": 2, "hidden_size": 8192, "intermediate_size": 22016, "num_attention_heads": 32,
                "model_type": "qwen3",
            },
        },
    ),
]  # fmt: skip
BART = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "vocab_size": 101}
TOWER = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 3}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(("count", "fields"), TEXTS, ids=[str(one["model_type"]) for _, one in TEXTS])
def test_the_language_model_is_its_class_s(count: int, fields: dict[str, Any]) -> None:
    assert params(model_of(fields))["params/total"].value == count


@pytest.mark.parametrize(("count", "fields"), WHOLES, ids=[str(one["model_type"]) for _, one in WHOLES])
def test_the_tower_is_its_class_s(count: int, fields: dict[str, Any]) -> None:
    assert params_of(model_of(fields))[1].value == count


def test_a_decoder_s_vocabulary_next_to_shared_embeddings_is_refused_where_they_are_untied() -> None:
    apart = {**BART, "model_type": "marian", "decoder_vocab_size": 103, "tie_word_embeddings": False}
    with pytest.raises(NapkinError) as caught:
        model_of(apart)
    assert "decoder_vocab_size" in caught.value.message
    model_of({**apart, "decoder_vocab_size": 101})
    model_of({**apart, "tie_word_embeddings": True})


def test_a_projector_that_does_not_fit_its_tower_is_not_counted() -> None:
    kimi = {"model_type": "kimi_k25", "text_config": DEEPSEEK, "vision_config": TOWER}
    assert model_of({**kimi, "projection_hidden_size": 48}).vision is not None
    other = model_of({**kimi, "projection_hidden_size": 96})
    assert other.vision is None
    assert any("projection_hidden_size" in note for note in other.notes)

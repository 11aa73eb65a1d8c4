"""Fields that a file omits or states against the usual: counts of transformers' classes, built on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import USAGE, NapkinError
from napkin.operations.queries import heard_operations
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
HELD: list[tuple[int, dict[str, Any]]] = [
    # files of llava-hf/llava-1.5-7b-hf and HuggingFaceM4/idefics2-8b, whose text_config states what differs from its
    # class only; the totals of their safetensors
    (
        7_063_427_072,
        {
            "model_type": "llava",
            "text_config": {
                "model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "vocab_size": 32064,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                "image_size": 336, "patch_size": 14, "model_type": "clip_vision_model",
            },
        },
    ),
    (
        8_402_768_112,
        {
            "model_type": "idefics2",
            "tie_word_embeddings": False,
            "perceiver_config": {"model_type": "idefics2"},
            "text_config": {"model_type": "mistral", "sliding_window": None, "vocab_size": 32003},
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
                "image_size": 980, "patch_size": 14,
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


@pytest.mark.parametrize(("count", "fields"), HELD, ids=[str(one["model_type"]) for _, one in HELD])
def test_a_block_that_states_no_size_has_its_class_s(count: int, fields: dict[str, Any]) -> None:
    assert params_of(model_of(fields))[1].value == count


def test_a_file_of_its_own_states_its_size() -> None:
    with pytest.raises(NapkinError) as caught:
        model_of({"model_type": "llama", "vocab_size": 32064})
    assert "hidden_size: is missing" in caught.value.message


@pytest.mark.parametrize("block", [None, {}])
def test_gemma_4_without_an_audio_block_lacks_no_audio_encoder(block: dict[str, Any] | None) -> None:
    text = {"model_type": "gemma4_text", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 99}
    whole = {"model_type": "gemma4", "vision_config": {}, "audio_config": block, "text_config": text}
    model = model_of(whole)
    assert model.missing == ""
    assert bool(heard_operations(model)) is (block is not None)


def test_minicpm_v_is_qwen2_with_a_siglip_tower_and_a_resampler() -> None:
    vision = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27}
    fields = {
        "architectures": ["MiniCPMV"], "model_type": "minicpmv", "version": 2.6, "hidden_size": 3584,
        "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
        "vocab_size": 151_666, "tie_word_embeddings": False, "query_num": 64, "image_size": 448, "patch_size": 14,
        "drop_vision_last_layer": False, "vision_config": {**vision, "image_size": 980, "patch_size": 14},
    }  # fmt: skip
    qwen2 = 7_615_616_512 - 2 * (152_064 - 151_666) * 3584  # Qwen2-7B with fewer tokens
    layer = 4 * (1152 * 1152 + 1152) + 2 * 1152 * 4304 + 4304 + 1152 + 2 * 2 * 1152
    tower = (3 * 14 * 14 + 1) * 1152 + 70 * 70 * 1152 + 27 * layer + 2 * 1152
    resampler = 64 * 3584 + 1152 * 3584 + 4 * (3584 * 3584 + 3584) + 3 * 2 * 3584 + 3584 * 3584
    model = model_of(fields)
    assert params(model)["params/total"].value == qwen2
    assert params_of(model)[1].value == qwen2 + tower + resampler
    assert model.vision is not None
    assert model.vision.lengths() == (32 * 32, 32 * 32, 64)
    fewer = params_of(model_of({**fields, "drop_vision_last_layer": True}))[1].value
    assert fewer == qwen2 + tower + resampler - layer
    with pytest.raises(NapkinError) as caught:
        model_of({**fields, "version": 3.1})
    assert "version" in caught.value.message


def test_molmo_is_qwen2_with_rows_for_tokens_of_images() -> None:
    fields = {
        "architectures": ["MolmoForCausalLM"], "model_type": "molmo", "hidden_size": 3584, "num_hidden_layers": 28,
        "intermediate_size": 2 * 18944, "num_attention_heads": 28, "num_key_value_heads": 4, "qkv_bias": True,
        "vocab_size": 152_064, "embedding_size": 152_064, "layer_norm_type": "rms", "norm_after": False,
    }  # fmt: skip
    model = model_of(fields)
    assert params(model)["params/total"].value == 7_615_616_512 + 128 * 3584
    assert model.missing == "language model only"
    normed = model_of({**fields, "attention_layer_norm": True})
    assert params(normed)["params/total"].value == 7_615_616_512 + 128 * 3584 + 28 * (3584 + 4 * 128)


def test_dots_ocr_is_qwen2_with_a_tower_of_its_own() -> None:
    text = {
        "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_hidden_layers": 28,
        "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": False,
    }  # fmt: skip
    vision = {
        "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42, "use_bias": False,
        "num_attention_heads": 12, "patch_size": 14, "spatial_merge_size": 2, "post_norm": True,
    }  # fmt: skip
    width, wide = 1536, 4 * 1536
    layer = 4 * width * width + 3 * width * 4224 + 2 * width
    tower = (3 * 14 * 14 + 1) * width + width + 42 * layer + width
    merger = 2 * width + wide * wide + wide + wide * width + width
    model = model_of({"model_type": "dots_ocr", **text, "vision_config": vision})
    qwen2 = params(model_of({"model_type": "qwen2", **text}))["params/total"].value
    assert params(model)["params/total"].value == qwen2
    assert params_of(model)[1].value == qwen2 + tower + merger


@pytest.mark.parametrize(("name", "text"), [("llava_qwen", "qwen2"), ("llava_mistral", "mistral")])
def test_llava_s_own_files_hold_a_language_model(name: str, text: str) -> None:
    fields = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    own = {
        "mm_hidden_size": 48,
        "mm_tunable_parts": "mm_mlp_adapter",
        "use_mm_proj": True,
        "image_grid_pinpoints": [[1, 1]],
    }
    model = model_of({"model_type": name, **fields, **own})
    assert params(model)["params/total"].value == params(model_of({"model_type": text, **fields}))["params/total"].value
    assert model.missing == "language model only"


def test_qwen3_asr_s_own_file_holds_its_network_as_a_thinker() -> None:
    text = {
        "model_type": "qwen3_asr_text", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 99,
    }  # fmt: skip
    heard = {
        "model_type": "qwen3_asr_audio_encoder", "d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2,
        "encoder_ffn_dim": 48, "num_mel_bins": 16, "downsample_hidden_size": 8, "output_dim": 64,
    }  # fmt: skip
    thinker = {"model_type": "qwen3_asr_thinker", "audio_config": heard, "text_config": text}
    model = model_of({"model_type": "qwen3_asr", "support_languages": ["German"], "thinker_config": thinker})
    bare = model_of({**text, "model_type": "qwen3"})
    assert params(model)["params/total"].value == params(bare)["params/total"].value
    convolutions = (
        9 * 8 + 8 + 2 * (9 * 8 * 8 + 8) + 32 * 2 * 8
    )  # each halves 16 frequencies; a matrix of the last 2 × 8
    layer = 4 * 32 * 32 + 4 * 32 + 2 * 32 * 48 + 48 + 32 + 4 * 32
    ends = 2 * 32 + 32 * 32 + 32 + 32 * 64 + 64
    assert params_of(model)[0].value == convolutions + layer + ends
    assert model.missing == ""


def test_a_decoder_s_vocabulary_next_to_shared_embeddings_is_refused_where_they_are_untied() -> None:
    apart = {**BART, "model_type": "marian", "decoder_vocab_size": 103, "tie_word_embeddings": False}
    with pytest.raises(NapkinError) as caught:
        model_of(apart)
    assert "decoder_vocab_size" in caught.value.message
    model_of({**apart, "decoder_vocab_size": 101})
    model_of({**apart, "tie_word_embeddings": True})


def test_a_projector_that_does_not_fit_its_tower_is_an_error() -> None:
    kimi = {"model_type": "kimi_k25", "text_config": DEEPSEEK, "vision_config": TOWER}
    assert model_of({**kimi, "projection_hidden_size": 48}).vision is not None
    with pytest.raises(NapkinError, match="projection_hidden_size: is 96, and the tower's results have 48") as raised:
        model_of({**kimi, "projection_hidden_size": 96})
    assert raised.value.status == USAGE

"""Audio encoders of multimodal models: published totals, a Whisper by hand, and what memory makes of their weights."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.architectures import build
from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import USAGE, NapkinError
from napkin.inputs.model_file import preset_config
from napkin.inputs.presets import preset
from tests.conftest import answered, model_of, run_line

TEXT: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 100,
}  # fmt: skip
EAR: dict[str, Any] = {
    "d_model": 48, "encoder_attention_heads": 4, "encoder_ffn_dim": 80, "encoder_layers": 3, "max_source_positions": 30,
    "model_type": "qwen2_audio_encoder", "num_mel_bins": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("qwen2-audio-7b", 8_397_094_912),  # safetensors total of Qwen/Qwen2-Audio-7B-Instruct
        ("qwen2.5-omni-3b", 4_703_464_448),  # of LCO-Embedding/LCO-Embedding-Omni-3B, a tuned thinker
        # of microsoft/Phi-4-multimodal-instruct, without LoRA of rank 256 and 320 on 32 layers and without the mean and
        # deviation of 80 frequencies, which are no parameters
        ("phi4-multimodal", 5_574_460_384 - (256 + 320) * 32 * (8192 + 6144 + 19456 + 11264) - 2 * 80),
    ],
)
def test_totals_are_the_published_ones(name: str, weights: int) -> None:
    model = build(preset_config(preset(name)))
    assert params_of(model)[-1].value == weights


def test_qwen2_audio_by_hand() -> None:
    """Whisper's encoder, of which keys have no bias, and one linear layer."""
    model = model_of({"model_type": "qwen2_audio", "text_config": TEXT, "audio_config": EAR})
    h, inner = 48, 80
    stem = 16 * h * 3 + h + h * h * 3 + h + 30 * h
    layer = 4 * h * h + 3 * h + 2 * h * inner + inner + h + 4 * h
    encoder = stem + 3 * layer + 2 * h
    audio, whole = params_of(model)
    assert audio.value == encoder + h * 64 + 64
    assert whole.value == params(model)["params/total"].value + audio.value
    assert model.missing == ""


def test_granite_speech_by_hand() -> None:
    """A Conformer, and a Q-former of which the first and third layer attend to sound."""
    encoder = {
        "conv_expansion_factor": 2, "conv_kernel_size": 15, "dim_head": 8, "feedforward_mult": 4, "hidden_dim": 32,
        "input_dim": 20, "max_pos_emb": 10, "num_heads": 4, "num_layers": 2, "output_dim": 7,
    }  # fmt: skip
    former = {
        "cross_attention_frequency": 2, "encoder_hidden_size": 32, "hidden_size": 24, "intermediate_size": 40,
        "num_attention_heads": 4, "num_hidden_layers": 3,
    }  # fmt: skip
    fields = {
        "model_type": "granite_speech", "text_config": TEXT, "encoder_config": encoder, "projector_config": former,
        "downsample_rate": 5, "window_size": 15,
    }  # fmt: skip
    h, q = 32, 24
    half = 2 * h + 2 * 4 * h * h + 4 * h + h
    attention = 2 * h + h * h + 2 * h * h + h * h + h + 21 * 8
    convolution = 2 * h + h * 4 * h + 4 * h + 2 * h * 15 + 2 * 2 * h + 2 * h * h + h
    ends = 20 * h + h + h * 7 + 7 + 7 * h + h
    own = 4 * (q * q + q) + 2 * q + 2 * q * 40 + 40 + q + 2 * q
    across = 2 * (q * q + q) + 2 * (h * q + q) + 2 * q
    projector = 3 * q + 2 * q + 3 * own + 2 * across + q * 64 + 64
    count = ends + 2 * (2 * half + attention + convolution + 2 * h) + projector
    assert params_of(model_of(fields))[0].value == count


def test_memory_holds_the_states_of_an_audio_encoder() -> None:
    """AdamW keeps two moments of each parameter in fp32."""
    found = answered("memory qwen2-audio-7b --hardware h100").by_path()
    for moment in ("exp_avg", "exp_avg_sq"):
        assert found[f"memory/optimizer/{moment}"].value == 4 * 8_397_094_912


def test_a_network_beside_the_language_model_is_said_to_be_missing() -> None:
    whole = model_of({"model_type": "qwen2_5_omni", "thinker_config": preset("qwen2.5-omni-7b").config})
    assert whole.missing == "no talker"
    assert "its talker is counted nowhere" in whole.notes
    assert params_of(whole)[-1].value == 8_931_813_888
    held = {"model_type": "janus", "text_config": TEXT, "vision_config": {"hidden_size": 48, "num_attention_heads": 4}}
    assert model_of(held).missing == "no image generator"


@pytest.mark.parametrize("command", ["memory", "step"])
def test_a_step_on_text_says_that_it_hears_nothing(command: str) -> None:
    line = f"{command} qwen2-audio-7b --hardware h100 --gpus 8 --zero 3"
    assert "no audio" in run_line(line).out
    assert "no audio" not in run_line(line.replace("qwen2-audio-7b", "qwen-7b")).out


@pytest.mark.parametrize("block", ["x", [1], 3, True])
def test_a_block_that_is_no_mapping_is_named(block: object) -> None:
    """A projector's block may be left out, which means its class's defaults; another type is an error."""
    text = {**TEXT, "model_type": "granite"}
    sound: dict[str, object] = {"model_type": "granite_speech", "text_config": text, "encoder_config": {}}
    assert len(params_of(model_of(sound))) == 2
    for name in ("projector_config", "encoder_config"):
        with pytest.raises(NapkinError, match=rf"{name}: .* is not a mapping") as raised:
            model_of({**sound, name: block})
        assert raised.value.status == USAGE

"""Encoders of sound, decoders that run alone, attention of blocks and by distance: counted by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.operations.block_attention import BlockAttention
from napkin.operations.work import Work
from tests.conftest import model_of, run_line

WHISPER_TINY: dict[str, Any] = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 384,
    "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "decoder_layers": 4, "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536, "encoder_layers": 4, "is_encoder_decoder": True, "max_source_positions": 1500,
    "max_target_positions": 448, "num_mel_bins": 80, "vocab_size": 51865, "mask_time_prob": 0.05,
    "forced_decoder_ids": [[1, 50259]], "suppress_tokens": [1, 2, 7],
}  # fmt: skip
XLNET: dict[str, Any] = {
    "model_type": "xlnet", "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "vocab_size": 100, "dropout": 0.1,
}  # fmt: skip
MOSHI: dict[str, Any] = {
    "model_type": "moshi", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48,
    "vocab_size": 100,
}  # fmt: skip


def total(fields: dict[str, Any]) -> Any:
    return params(model_of(fields))["params/total"].value


def forward(fields: dict[str, Any], sequences: int, length: int, target: int | None = None) -> Any:
    model = model_of(fields)
    return flops.forward(model, flops.works(model, sequences, length, target=target)).value


def test_whisper_tiny_has_its_published_parameters() -> None:
    assert total(WHISPER_TINY) == 37_760_640


def test_whispers_decoder_runs_alone_where_its_class_does() -> None:
    h, f, rows, positions = 384, 1536, 51865, 448
    layer = 2 * (4 * h * h + 3 * h) + 2 * h * f + f + h + 3 * 2 * h  # no bias on keys; cross-attention is held
    alone = {**WHISPER_TINY, "architectures": ["WhisperForCausalLM"]}
    assert total(alone) == rows * h + positions * h + 4 * layer + 2 * h
    s = 16
    run = 2 * s * (4 * h * h + 2 * h * f) + 4 * s * s * h  # and is not run
    assert forward(alone, 1, s) == 4 * run + 2 * s * h * rows


def test_whispers_encoder_reads_two_frames_for_each_token() -> None:
    h, f, s, t, rows = 384, 1536, 1500, 10, 51865
    convolutions = 2 * 2 * s * 80 * 3 * h + 2 * s * h * 3 * h
    encoder = 4 * (2 * s * (4 * h * h + 2 * h * f) + 4 * s * s * h)
    decoder = 4 * (2 * t * (6 * h * h + 2 * h * f) + 2 * s * 2 * h * h + 4 * t * t * h + 4 * t * s * h)
    assert forward(WHISPER_TINY, 1, s, t) == convolutions + encoder + decoder + 2 * t * h * rows


def test_a_decoder_gets_no_more_tokens_than_it_has_positions(tmp_path: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(WHISPER_TINY), encoding="utf-8")
    inputs = run_line(["flops", str(file), "--json"]).data["inputs"]
    assert (inputs["seq"]["value"], inputs["target-seq"]["value"]) == (1500, 448)
    said = run_line(["flops", str(file), "--target-seq", "500", "--json"]).data["notes"]
    assert any("448 positions" in note for note in said)


def test_xlnet_has_keys_of_distances() -> None:
    h, f, rows, a, d = 32, 48, 100, 4, 8
    layer = 5 * h * h + 3 * a * d + 2 * a * d + 2 * h + 2 * h * f + f + h + 2 * h
    assert total(XLNET) == rows * h + h + 2 * layer + rows  # the head's bias, and the embedding of masked tokens
    s, b = 16, 3
    for kind, distances in (("bi", 2 * s), ("uni", s + 1)):
        linear = 2 * b * s * (4 * h * h + 2 * h * f) + 2 * b * distances * h * h
        scores = 2 * b * h * (2 * s * s + s * distances)
        assert forward({**XLNET, "attn_type": kind}, b, s) == 2 * (linear + scores) + 2 * b * s * h * rows


def test_moshis_embedding_has_a_row_more_than_its_head() -> None:
    h, f, rows = 32, 48, 100
    assert total(MOSHI) == (rows + 1) * h + 2 * (4 * h * h + f * h + f // 2 * h + 2 * h) + h + rows * h
    assert total({**MOSHI, "tie_word_embeddings": True}) == total(MOSHI)  # the class ties nothing


@pytest.mark.parametrize("across", [True, False])
def test_musicgen_has_an_embedding_and_a_head_for_each_code(across: bool) -> None:
    kind = "musicgen" if across else "musicgen_melody"
    decoder = {
        "model_type": f"{kind}_decoder", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
        "ffn_dim": 48, "vocab_size": 50, "num_codebooks": 4,
    }  # fmt: skip
    h, f, rows, books = 32, 48, 50, 4
    layer = (4 * h * h + 2 * h) * (1 + across) + 2 * h * f + 2 * h
    assert total({"model_type": kind, "decoder": decoder}) == books * (2 * rows + 1) * h + 2 * layer + 2 * h


@pytest.mark.parametrize("length", [28, 32, 40, 64])
def test_blocks_see_the_first_the_last_their_neighbors_and_some_more(length: int) -> None:
    block, random = 4, 1
    core = BlockAttention("a", ("q", "k", "v"), 2, 2, 8, 8, causal=False, block=block, random=random)
    n = length // block
    seen = [n if i in (0, n - 1) else len({0, n - 1, i - 1, i, i + 1}) + random for i in range(n)]
    expected = block**2 * sum(seen) if length > (5 + 2 * random) * block else length * length
    assert core.own_pairs(Work(1, length)) == expected
    assert core.depends_on_shapes(length) == (length <= 28)


def test_a_pooler_reads_one_token_of_a_sequence() -> None:
    bert = {
        "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
        "intermediate_size": 48, "vocab_size": 100,
    }  # fmt: skip
    h, s, b = 32, 16, 3
    layer = 2 * b * s * (4 * h * h + 2 * h * 48) + 4 * b * s * s * h
    assert forward({**bert, "architectures": ["BertModel"]}, b, s) == layer + 2 * b * h * h


@pytest.mark.parametrize(
    "fields",
    [
        {**XLNET, "bi_data": True},
        {**MOSHI, "ffn_dim": 47},
        {**WHISPER_TINY, "architectures": ["WhisperForAudioClassification"]},
    ],
)
def test_what_is_not_counted_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(NapkinError):
        model_of(fields)

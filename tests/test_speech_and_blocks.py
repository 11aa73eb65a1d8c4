"""Encoders of sound, decoders that run alone, attention of blocks and by distance: counted by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError
from napkin.operations.attention.blocks import BlockAttention
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
    assert core.pairs(Work(1, length)) == expected
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


def test_prophetnet_runs_a_stream_for_each_token_ahead() -> None:
    h, f, a, rows, n, buckets, s, t = 32, 48, 4, 100, 2, 8, 16, 12
    fields = {
        "model_type": "prophetnet", "hidden_size": h, "num_encoder_layers": 1, "num_decoder_layers": 1,
        "num_encoder_attention_heads": a, "num_decoder_attention_heads": a, "encoder_ffn_dim": f, "decoder_ffn_dim": f,
        "vocab_size": rows, "max_position_embeddings": 64, "ngram": n, "num_buckets": buckets,
    }  # fmt: skip
    attention, mlp, norm = 4 * (h * h + h), 2 * h * f + f + h, 2 * h
    encoder = attention + mlp + 2 * norm
    decoder = 2 * attention + h * buckets * a + buckets * a + mlp + 3 * norm
    tables = rows * h + 2 * 64 * h + n * h + 2 * norm
    assert total(fields) == tables + encoder + decoder
    streams = (1 + n) * t
    expected = 2 * s * (4 * h * h + 2 * h * f) + 4 * s * s * h
    expected += 2 * streams * (4 * h * h + h * buckets * a + 2 * h * h + 2 * h * f) + 2 * s * 2 * h * h
    expected += 4 * t * t * h * (1 + 2 * n) + 4 * streams * s * h + 2 * n * t * h * rows
    assert forward(fields, 1, s, t) == expected


def test_reformer_sorts_tokens_by_hash_or_sees_its_chunk() -> None:
    h, f, a, d, rows, s = 32, 48, 2, 8, 100, 64
    fields = {
        "model_type": "reformer", "hidden_size": h, "feed_forward_size": f, "num_attention_heads": a,
        "attention_head_size": d, "attn_layers": ["local", "lsh"], "axial_pos_embds_dim": [8, 24],
        "axial_pos_shape": [8, 8], "vocab_size": rows, "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 16,
        "num_buckets": 4, "num_hashes": 2,
    }  # fmt: skip
    mlp = 2 * h * f + f + h + 2 * 2 * h
    local, hashed = 4 * h * a * d + mlp, 3 * h * a * d + mlp
    assert total(fields) == rows * h + 8 * 8 + 8 * 24 + local + hashed + 2 * 2 * h + 2 * h * rows + 2 * rows
    linear = 2 * s * (7 * h * a * d + 2 * 2 * h * f + 2 * h * rows)
    chunks = 4 * a * d * s * (2 * 8) + 2 * 4 * a * d * s * (2 * 16)
    assert forward(fields, 1, s) == linear + chunks + 2 * a * s * d * 2 * 2  # two hashes of two directions each


def test_hrm_runs_its_stacks_in_turns_and_owns_their_weights_once() -> None:
    h, f, a, d, rows, s, n = 32, 48, 4, 8, 100, 16, 2
    fields = {
        "model_type": "hrm_text", "hidden_size": h, "intermediate_size": f, "num_attention_heads": a, "head_dim": d,
        "num_hidden_layers": n, "vocab_size": rows, "H_cycles": 2, "L_cycles": 3,
    }  # fmt: skip
    layer = 5 * h * h + 3 * h * f
    assert total(fields) == 2 * rows * h + h + 2 * n * layer
    assert total({**fields, "num_layers_per_stack": n, "num_hidden_layers": n * 8}) == total(fields)
    once = 2 * s * layer + 4 * s * s * h
    assert forward(fields, 1, s) == 8 * n * once + 2 * s * h * rows
    model = model_of(fields)
    works = flops.works(model, 1, s)
    graded = (1 + 1) + (2 + 1)  # low passes with a gradient and the high one, in each of two cycles
    back = flops.backward(model, works, flops.forward(model, works)).value
    assert back == 2 * (graded * n * once + 2 * s * h * rows)


def test_fnet_has_no_attention() -> None:
    h, f, rows = 32, 48, 100
    fields = {
        "model_type": "fnet", "hidden_size": h, "intermediate_size": f, "num_hidden_layers": 2, "vocab_size": rows,
        "max_position_embeddings": 64,
    }  # fmt: skip
    s, b = 16, 3
    tables = (rows + 64 + 4) * h + 2 * h + h * h + h
    layer = 2 * h * f + f + h + 4 * h
    assert total(fields) == tables + 2 * layer + h * h + h + (h * h + h + 2 * h) + rows
    linear = 2 * b * s * (h * h + 2 * 2 * h * f + h * h + h * rows)
    assert forward(fields, b, s) == linear + 2 * b * h * h


@pytest.mark.parametrize("model_type", ["prophetnet", "reformer"])
def test_memory_that_is_not_known_is_refused(model_type: str, tmp_path: Any) -> None:
    fields = {"model_type": model_type, "hidden_size": 256, "vocab_size": 100, "architectures": ["Model"]}
    if model_type == "prophetnet":
        fields |= {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 4}
        fields |= {"num_decoder_attention_heads": 4, "architectures": ["ProphetNetForConditionalGeneration"]}
    else:
        fields |= {"attn_layers": ["local"], "architectures": ["ReformerModelWithLMHead"]}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(fields), encoding="utf-8")
    assert run_line(["params", str(file)]).status == 0
    refused = run_line(["memory", str(file), "--hardware", "h100"])
    assert refused.status == 3
    assert "keeps in memory" in refused.err


@pytest.mark.parametrize(("model_type", "tie"), [("bart", True), ("bart", False), ("bigbird_pegasus", True)])
def test_a_bart_decoder_runs_alone_where_its_class_does(model_type: str, tie: bool) -> None:
    h, f, rows, positions, s = 32, 48, 100, 64, 16
    fields = {
        "model_type": model_type, "architectures": ["BartForCausalLM"], "d_model": h, "encoder_layers": 1,
        "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 40,
        "decoder_ffn_dim": f, "vocab_size": rows, "max_position_embeddings": positions, "is_decoder": True,
        "tie_word_embeddings": tie, "is_encoder_decoder": False,
    }  # fmt: skip
    bart = model_type == "bart"
    attention = 4 * h * h + 4 * h * bart
    layer = 2 * attention + 2 * h * f + f + h + 3 * 2 * h
    heads = 1 if bart and tie else 2  # the other class does not tie them
    assert total(fields) == heads * rows * h + (positions + 2 * bart) * h + 2 * h + 2 * layer
    assert forward(fields, 1, s) == 2 * (2 * s * (4 * h * h + 2 * h * f) + 4 * s * s * h) + 2 * s * h * rows

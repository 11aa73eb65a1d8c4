"""Encoders and encoder-decoders: pinned counts of published files, layers by hand, windows, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.counting import flops
from napkin.counting.params import params
from napkin.errors import NapkinError, Refused
from napkin.operations.model import Model
from tests.conftest import ROOT, model, model_of

BERT = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12}
T5_BASE = {"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}

PUBLISHED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    # total, token table, untied head
    "bert-base-uncased": (BERT, 109_514_298, 23_440_896, 0),
    "bert-base-cased": ({**BERT, "vocab_size": 28996}, 108_340_804, 22_268_928, 0),
    "bert-base, bare": ({**BERT, "architectures": ["BertModel"]}, 109_482_240, 23_440_896, 0),
    "bert-base, pre-training": ({**BERT, "architectures": ["BertForPreTraining"]}, 110_106_428, 23_440_896, 0),
    "roberta-base": (
        {**BERT, "model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
        124_697_433,
        38_603_520,
        0,
    ),
    "modernbert-base": ({**BERT, "model_type": "modernbert", "num_hidden_layers": 22}, 149_655_232, 38_682_624, 0),
    "t5-base": (T5_BASE, 222_903_552, 24_674_304, 0),
    "t5-3b": (
        {"model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_heads": 32},
        2_851_598_336,
        32_899_072,
        0,
    ),
    "flan-t5-base": (
        {**T5_BASE, "d_ff": 2048, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        247_577_856,
        24_674_304,
        24_674_304,
    ),
}


COUNTED = json.loads((Path(__file__).parent / "data" / "class_counts.json").read_text(encoding="utf-8"))["rows"]
"""What torch counted on the classes themselves."""


def forward(of: Model, seq: int, pairs: str = "full", target: int | None = None) -> int:
    value = flops.forward(of, flops.works(of, 1, seq, target=target, pairs=pairs)).value
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_checkpoints(name: str) -> None:
    fields, total, embedding, lm_head = PUBLISHED[name]
    counted = params(model(**fields))
    assert counted["params/total"].value == total
    assert counted["params/embedding"].value == embedding
    assert counted["params/lm_head"].value == lm_head


@pytest.mark.parametrize("row", COUNTED, ids=[f"{row[0]}-{at}" for at, row in enumerate(COUNTED)])
def test_what_torch_counts_of_the_classes(row: list[Any]) -> None:
    _, sequences, length, target, total, counted, fields = row
    one = model(**fields)
    assert params(one)["params/total"].value == total
    works = flops.works(one, sequences, length, target=target or None)
    assert flops.forward(one, works).value == counted


def test_by_hand_bert() -> None:
    h, f, vocabulary, positions, segments = 768, 3072, 30522, 512, 2
    layer = 4 * (h * h + h) + 2 * h * f + f + h + 4 * h
    tables = (vocabulary + positions + segments) * h + 2 * h
    head = h * h + h + 2 * h + vocabulary
    assert params(model(**BERT))["params/total"].value == 12 * layer + tables + head


def test_by_hand_deberta() -> None:
    h, f, vocabulary, distances = 768, 3072, 50265, 2 * 512
    attention = 3 * h * h + 2 * h + 2 * h * h + h + h * h + h  # its inputs, the two position projections, its output
    layer = attention + 2 * h * f + f + h + 4 * h
    head = h * h + h + 2 * h + vocabulary
    by_hand = 12 * layer + (distances + vocabulary) * h + 2 * h + head
    deberta = {"model_type": "deberta", "vocab_size": vocabulary, "relative_attention": True, "type_vocab_size": 0}
    deberta |= {"pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
    assert params(model(**BERT | deberta))["params/total"].value == by_hand == 139_244_121


@pytest.mark.parametrize(
    "fields",
    [
        {**BERT, "model_type": "deberta", "type_vocab_size": 0},
        {"model_type": "xlnet", "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "vocab_size": 100},
    ],
)
def test_a_class_that_loads_in_two_types_says_how_it_runs_in_16_bits(fields: dict[str, Any]) -> None:
    """transformers 5.24, from_config(dtype=torch.bfloat16): q_bias, v_bias and XLNet's r, q, k, … stay in fp32, and a
    forward pass raises RuntimeError; after .to(torch.bfloat16) it runs."""
    assert any("model.to(dtype)" in note for note in model(**fields).notes)


def test_by_hand_t5() -> None:
    h, f, heads, d, buckets, vocabulary, layers = 512, 2048, 8, 64, 32, 32128, 6
    attention = 4 * h * heads * d
    encoder = attention + 2 * h * f + 2 * h
    decoder = 2 * attention + 2 * h * f + 3 * h
    by_hand = layers * (encoder + decoder) + 2 * buckets * heads + 2 * h + vocabulary * h
    small = {"model_type": "t5", "d_model": h, "num_layers": layers}
    assert params(model(**small))["params/total"].value == by_hand == 60_506_624
    # UMT5 keeps a table in every layer
    every = model(
        **{
            **small,
            "model_type": "umt5",
            "vocab_size": vocabulary,
            "d_ff": f,
            "num_heads": heads,
            "feed_forward_proj": "relu",
        }
    )
    assert params(every)["params/total"].value == by_hand + 2 * (layers - 1) * buckets * heads


def test_the_decoders_table_is_the_encoders() -> None:
    bart = {
        "model_type": "bart",
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "vocab_size": 100,
    }
    counted = params(model(**bart))
    assert counted["params/embedding"].value == 100 * 64
    assert counted["params/lm_head"].value == 0


def test_albert_counts_a_group_of_layers_once_and_runs_it_every_time() -> None:
    fields = {
        "model_type": "albert",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "embedding_size": 16,
    }
    few, many = (model(**fields, num_hidden_layers=n) for n in (2, 8))
    assert params(few)["params/total"].value == params(many)["params/total"].value
    per_layer = (forward(many, 32) - forward(few, 32)) / 6
    h, f, s = 64, 96, 32
    assert per_layer == 2 * s * (4 * h * h + 2 * h * f) + 4 * s * s * h
    groups = model(**fields, num_hidden_layers=8, num_hidden_groups=2)
    layer = 4 * (h * h + h) + 2 * h * f + f + h + 4 * h
    assert params(groups)["params/total"].value - params(many)["params/total"].value == layer


def test_cross_attention_reads_the_sources_length() -> None:
    t5 = model(model_type="t5", d_model=64, num_layers=1, d_ff=96, num_heads=4, d_kv=16, vocab_size=100)
    h, f, s, t = 64, 96, 40, 24
    encoder = 2 * s * (4 * h * h + 2 * h * f) + 4 * s * s * h
    decoder = 2 * t * (4 * h * h + 2 * h * h + 2 * h * f) + 2 * s * 2 * h * h + 4 * t * t * h + 4 * t * s * h
    assert forward(t5, s, target=t) == encoder + decoder + 2 * t * h * 100


def test_windows_of_modernbert_reach_to_both_sides() -> None:
    bert = model(
        model_type="modernbert",
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        vocab_size=100,
        local_attention=16,
    )
    h, s, reach = 64, 128, 8
    allowed = sum(min(s, i + reach + 1) - max(0, i - reach) for i in range(s))
    assert forward(bert, s) - forward(bert, s, pairs="exact") == 2 * 4 * h * (s * s - allowed)


EMBEDDING_GEMMA = {
    "model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "hidden_size": 768, "num_hidden_layers": 24,
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 1152,
    "vocab_size": 262144, "sliding_window": 512, "use_bidirectional_attention": True,
}  # fmt: skip


def test_embedding_gemma_sees_half_a_window_to_each_side() -> None:
    """Fields and safetensors total of google/embeddinggemma-300m (302,863,104)."""
    gemma = model(**EMBEDDING_GEMMA)
    assert params(gemma)["params/total"].value == 302_863_104
    s, reach, windowed, heads, size = 1024, 256, 20, 3, 256
    allowed = sum(min(s, i + reach + 1) - max(0, i - reach) for i in range(s))
    hidden = windowed * 2 * 2 * heads * size * (s * s - allowed)
    assert forward(gemma, s) - forward(gemma, s, pairs="exact") == hidden
    causal = model(**{**EMBEDDING_GEMMA, "use_bidirectional_attention": False})
    assert forward(gemma, s) == forward(causal, s)


def test_ernie_3_embeds_the_task() -> None:
    fields = {**BERT, "model_type": "ernie", "task_type_vocab_size": 3}
    plain, tasks = (params(model(**fields, use_task_id=on))["params/total"].value for on in (False, True))
    assert tasks - plain == 3 * 768


def test_how_tapas_answers_changes_no_count() -> None:
    fields = {**BERT, "model_type": "tapas", "type_vocab_sizes": [3, 256]}
    answers = {"num_aggregation_labels": 4, "use_answer_as_supervision": True, "select_one_column": False}
    counts = [params(model(**fields, **more))["params/total"].value for more in (answers, {})]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"architectures": ["BertForNothing"]}, "architectures"),
        ({"model_type": "deberta-v2", "pos_att_type": ["p2p"]}, "pos_att_type"),
        ({"model_type": "deberta", "pos_att_type": 3}, "pos_att_type"),
        ({"model_type": "t5", "feed_forward_proj": "gated-cubic"}, "feed_forward_proj"),
        ({"model_type": "perceiver"}, "model_type"),
    ],
)
def test_what_is_not_understood_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused, match=field):
        model(**{**BERT, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 7},
        {"num_hidden_layers": 2.5},
        {"type_vocab_size": -1},
        {"model_type": "albert", "num_hidden_groups": 13},
        {"model_type": "modernbert", "layer_types": ["full_attention"]},
    ],
)
def test_what_cannot_be_is_wrong(changes: dict[str, Any]) -> None:
    with pytest.raises(NapkinError) as caught:
        model(**{**BERT, **changes})
    assert caught.value.status == 2


# parameters of transformers 5.23.0's classes, counted on the meta device (default configurations with these fields)
@pytest.mark.parametrize(
    ("model_type", "changes", "total"),
    [
        ("bert", {"tie_word_embeddings": False}, 132_985_716),
        ("big_bird", {}, 128_111_286),
        ("ibert", {}, 109_514_298),
        ("layoutlm", {}, 113_250_618),
        ("layoutlm", {"tie_word_embeddings": False}, 136_722_036),
        ("convbert", {}, 106_303_170),
        ("convbert", {"num_groups": 2, "head_ratio": 4, "embedding_size": 128}, 57_608_190),
        ("convbert", {"tie_word_embeddings": False}, 129_744_066),
        ("mra", {}, 124_697_433),
        ("nystromformer", {}, 109_122_240),
        ("roc_bert", {}, 124_514_106),
        ("roc_bert", {"concat_input": False, "shape_embed_dim": 768}, 129_304_122),
        ("tapas", {}, 110_703_930),
        ("yoso", {}, 127_449_945),
        ("xlm", {}, 667_119_041),
        ("xlm", {"n_langs": 5}, 667_129_281),
        ("flaubert", {}, 667_119_041),
        ("squeezebert", {}, 51_712_314),
        ("xmod", {}, 116_606_010),
        ("xmod", {"languages": ["en_XX", "de_DE", "fr_XX"]}, 130_789_434),
        ("longt5", {}, 60_506_624),
        ("longt5", {"encoder_attention_type": "transient-global"}, 60_509_952),
        ("pegasus_x", {}, 568_568_832),
        ("fsmt", {}, 483_913_728),
        ("xlm-roberta", {"tie_word_embeddings": False}, 132_985_716),
        ("gte", {"tie_word_embeddings": False}, 498_247_360),
        ("mobilebert", {"tie_word_embeddings": False}, 40_533_876),
        ("bart", {"tie_word_embeddings": False}, 560_705_536),
        ("switch_transformers", {"tie_word_embeddings": False}, 391_335_168),
        ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60_000}, 475_747_328),
        (
            "marian",
            {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60_000, "tie_word_embeddings": False},
            537_187_328,
        ),
    ],
)
def test_relatives_and_untied_heads_are_the_class_s(model_type: str, changes: dict[str, Any], total: int) -> None:
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    assert params(model(**{**dict(rows)[model_type], **changes}))["params/total"].value == total


# parameters of transformers 5.24.0's classes, counted on the meta device (default configurations with these fields)
@pytest.mark.parametrize(
    ("model_type", "name", "crosses", "total"),
    [
        ("bert", "BertLMHeadModel", False, 109_514_298),
        ("bert", "BertLMHeadModel", True, 137_881_146),
        ("big_bird", "BigBirdForCausalLM", False, 128_111_286),
        ("big_bird", "BigBirdForCausalLM", True, 156_478_134),
        ("electra", "ElectraForCausalLM", False, 13_546_682),
        ("electra", "ElectraForCausalLM", True, 16_710_842),
        ("rembert", "RemBertForCausalLM", False, 993_263_548),
        ("rembert", "RemBertForCausalLM", True, 1_163_354_044),
        ("roc_bert", "RoCBertForCausalLM", False, 124_514_106),
        ("roc_bert", "RoCBertForCausalLM", True, 152_880_954),
        ("roformer", "RoFormerForCausalLM", False, 124_197_968),
        ("roformer", "RoFormerForCausalLM", True, 152_564_816),
        ("xlm-roberta-xl", "XLMRobertaXLForCausalLM", False, 3_482_741_760),
        ("xlm-roberta-xl", "XLMRobertaXLForCausalLM", True, 4_427_013_120),
        ("xmod", "XmodForCausalLM", False, 116_606_010),
        ("xmod", "XmodForCausalLM", True, 144_972_858),
        ("prophetnet", "ProphetNetForCausalLM", False, 239_640_576),
        ("bert-generation", "BertGenerationDecoder", False, 354_452_662),
        ("bert-generation", "BertGenerationDecoder", True, 455_263_414),
    ],
)
def test_classes_that_predict_the_next_token_have_the_masked_head(
    model_type: str, name: str, crosses: bool, total: int
) -> None:
    """Of encoders, and of the decoder of an encoder-decoder. crosses: with attention to an encoder."""
    rows = json.loads(Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8"))["rows"]
    decodes = {"is_decoder": True, "add_cross_attention": True} if crosses else {}
    fields = {**dict(rows)[model_type], **decodes, "architectures": [name]}
    assert params(model(**fields))["params/total"].value == total


def test_an_encoder_without_such_a_class_is_refused() -> None:
    with pytest.raises(NapkinError) as caught:
        model(**{**BERT, "model_type": "mpnet", "architectures": ["MPNetForCausalLM"]})
    assert caught.value.status == 3


def test_bert_as_a_decoder_sees_no_later_token() -> None:
    usual, causal = model(**BERT), model(**BERT, is_decoder=True)
    assert forward(usual, 64) == forward(causal, 64)
    assert forward(usual, 64, pairs="exact") == forward(usual, 64)
    assert forward(causal, 64, pairs="exact") < forward(causal, 64)


def test_esm_c_and_ultrabert_are_the_class_s() -> None:
    """Parameters of the default configurations of EsmcForMaskedLM and UltrabertForMaskedLM, transformers 5.23.0."""
    esmc = model(model_type="esmc", hidden_size=2560, num_hidden_layers=80)
    ultrabert = model(model_type="ultrabert", hidden_size=4096, num_hidden_layers=32)
    assert params(esmc)["params/total"].value == 6_352_005_184
    assert params(ultrabert)["params/total"].value == 6_744_707_072


def test_gte_as_its_own_code_writes_it() -> None:
    base = {
        "architectures": ["NewModel"], "model_type": "new", "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 8192, "type_vocab_size": 0,
        "vocab_size": 30528, "layer_norm_type": "layer_norm", "position_embedding_type": "rope", "pack_qkv": True,
        "logn_attention_scale": False, "unpad_inputs": False, "use_memory_efficient_attention": False,
    }  # fmt: skip
    layer = 4 * (768 * 768 + 768) + 768 * 2 * 3072 + 3072 * 768 + 768 + 2 * 2 * 768
    assert params(model_of(base))["params/total"].value == 30528 * 768 + 2 * 768 + 12 * layer
    several = {**base, "type_vocab_size": 1, "vocab_size": 250_048}  # gte-multilingual-base: 305 M parameters
    assert params(model_of(several))["params/total"].value == 250_048 * 768 + 768 + 2 * 768 + 12 * layer
    with pytest.raises(NapkinError):
        model_of({**base, "layer_norm_type": "rms_norm"})

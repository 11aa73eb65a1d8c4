"""Fields of a config.json: what the class reads counts, what it does not read cannot, and default files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin._tables.class_fields import ANYWHERE, READ
from napkin.architectures import MODULES, WRAPPERS, build
from napkin.counting.params import params
from napkin.errors import REFUSED, USAGE, NapkinError
from napkin.inputs.load import Document
from napkin.inputs.model_file import config_from
from napkin.inputs.slips import among_others, distance, slip_of
from tests.conftest import ROOT, model_of, run_line

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "tie_word_embeddings": False,
}
COUNT = 2 * 128 * 64 + 4 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96 + 2 * 64) + 64
SAVED: list[tuple[str, dict[str, Any]]] = json.loads(
    Path(ROOT, "tests/data/default_configs.json").read_text(encoding="utf-8")
)["rows"]
NOT_BUILT = {
    "aya_vision": "its vision tower has 14 heads on a width of 1,152: ValueError",
    "cohere_compass": "the default rotary parameters lack the attention of its layers: KeyError",
    "cohere_compass_text": "the same",
    "deepseek_ocr2": "chooses None experts: its step fails",
    "deepseek_ocr2_text": "the same",
    "deepseek_v2": "chooses None experts: its step fails",
    "diffusion_gemma": "has None experts: TypeError",
    "diffusion_gemma_text": "the same",
    "dots1": "has None experts: TypeError",
    "esm": "has None tokens: TypeError",
    "gemma4_unified_assistant": "has no training step of its own",
    "lfm2_moe": "has None layer types: TypeError",
    "qwen4_exp": "has None indexer heads: TypeError",
    "qwen4_exp_text": "the same",
}
"""Default configurations of which transformers 5.23.0 makes no model, or none that runs."""


@pytest.mark.parametrize("model_type", [name for name in MODULES if name in READ])
def test_every_class_is_known_to_read_its_width(model_type: str) -> None:
    """A table without a class's own fields lets pass what changes a count, and calls what is read unread."""
    widths = {"hidden_size", "d_model", "n_embd", "embed_dim", "emb_dim", "dim", "decoder", "audio_encoder"}
    assert widths & set(json.loads(READ[model_type]))


@pytest.mark.parametrize(
    ("kind", "own"), [("qwen2_5_omni", {}), ("qwen3_omni_moe", {"shared_expert_intermediate_size": 0})]
)
@pytest.mark.parametrize("speaks", [True, False])
def test_fields_of_the_networks_that_hear_and_speak_change_no_language_model(
    kind: str, own: dict[str, Any], speaks: bool
) -> None:
    """Qwen's published omni files: the talker's experts and whether it is there, and where audio is in time."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
    text = {**LLAMA, "model_type": f"{kind}_text", "head_dim": 8, **(experts if own else {})}

    def total(block: dict[str, Any], **outer: object) -> object:
        tokens = dict.fromkeys(("audio_token_index", "image_token_index", "user_token_id", "vision_end_token_id"), 7)
        times = {"position_id_per_seconds": 25, "seconds_per_chunk": 2, "ignore_index": -100, "initializer_range": 0.02}
        thinker = {"model_type": f"{kind}_thinker", "text_config": block, **tokens, **times}
        whole = {"model_type": kind, "thinker_config": thinker, **outer}
        return params(model_of(whole))["params/total"].value

    assert total({**text, **own}, enable_audio_output=speaks) == total(text)


def test_a_field_that_only_a_part_s_class_reads_is_refused_where_it_changes_a_count() -> None:
    text = {"model_type": "kosmos_2_text_model", "embed_dim": 64, "layers": 2, "attention_heads": 4, "ffn_dim": 96}
    assert "add_cross_attention" in refusal({**text, "add_cross_attention": True}).message


def test_an_untied_head_of_bert_has_a_second_bias_in_every_relative() -> None:
    text = {"model_type": "blip_text_model", "hidden_size": 96, "num_hidden_layers": 2, "vocab_size": 77}
    tied, apart = (
        params(model_of({**text, "tie_word_embeddings": one}))["params/total"].value for one in (True, False)
    )
    assert apart - tied == 77 * 96 + 77


def refusal(fields: dict[str, Any]) -> NapkinError:
    with pytest.raises(NapkinError) as caught:
        model_of(fields)
    return caught.value


def asked(fields: dict[str, Any], *options: str) -> Any:
    return run_line(["params", "-", *options, "--json"], stdin=json.dumps(fields))


# --- what the class does not read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["turbo_mode", "num_memory_slots", "experts_for_fun", "auto_map_v2"])
def test_a_field_that_the_class_does_not_read_changes_nothing_and_is_named(field: str) -> None:
    answer = asked({**LLAMA, field: 7})
    assert answer.status == 0
    assert answer.values["params/total"] == COUNT
    (note,) = [note for note in answer.data["notes"] if field in note]
    assert "llama" in note


def test_strict_config_refuses_it() -> None:
    outcome = asked({**LLAMA, "turbo_mode": 7}, "--strict-config")
    assert outcome.status == REFUSED
    assert "turbo_mode" in outcome.err
    assert asked({**LLAMA, "turbo_mode": 7}, "--strict-config", "--assume-ignorable", "turbo_mode").status == 0
    assert asked({**LLAMA, "rope_theta": 1e6, "transformers_version": "4.1"}, "--strict-config").status == 0


def test_every_command_that_reads_a_model_takes_strict_config() -> None:
    for command in ("params", "flops --seq 16", "memory --seq 16", "train-time --tokens 1e6"):
        line = [*command.split()[:1], "-", *command.split()[1:], "--strict-config"]
        assert run_line(line, stdin=json.dumps({**LLAMA, "turbo_mode": 7})).status == REFUSED


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("mpt", "expansion_ratio", 8),  # the class's MLP is 4 times as wide, whatever the file says
        ("bart", "normalize_before", True),
        ("bloom", "n_inner", 512),
    ],
)
def test_a_value_that_other_code_reads_does_not_matter_to_the_class(model_type: str, field: str, value: object) -> None:
    fields = dict(dict(SAVED)[model_type])
    assert field not in json.loads(READ[model_type])
    before = params(model_of(fields))["params/total"].value
    model = model_of({**fields, field: value})
    assert params(model)["params/total"].value == before
    assert any(field in note for note in model.notes)


# --- what it reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"is_causal": False}, "is_causal"),
        ({"per_layer_config": {"0": {"intermediate_size": 32}}}, "per_layer_config"),
        ({"model_type": "gemma", "use_bidirectional_attention": "sometimes"}, "use_bidirectional_attention"),
    ],
)
def test_a_field_that_the_class_reads_and_napkin_does_not_understand_is_refused(
    changes: dict[str, Any], named: str
) -> None:
    problem = refusal({**LLAMA, **changes})
    assert problem.status in (REFUSED, USAGE)
    assert named in problem.message


def test_its_default_value_is_understood() -> None:
    fields = dict(dict(SAVED)["deberta-v2"])
    reads = json.loads(READ["deberta-v2"])
    assert "talking_head" not in fields
    assert params(model_of({**fields, "position_buckets": reads["position_buckets"] or -1}))["params/total"].value


# --- misspellings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("num_key_value_head", "num_key_value_heads"),
        ("intermediate_sizes", "intermediate_size"),
        ("tie_word_embedding", "tie_word_embeddings"),
        ("attention_bais", "attention_bias"),
        ("hed_dim", "head_dim"),
    ],
)
def test_a_probable_misspelling_is_refused_with_the_field_meant(written: str, meant: str) -> None:
    fields = {key: value for key, value in LLAMA.items() if key != meant}
    problem = refusal({**fields, written: LLAMA.get(meant, 8)})
    assert problem.status == REFUSED
    assert written in problem.message or meant in problem.message
    assert meant in f"{problem.message} {problem.hint}"


def test_the_right_spelling_next_to_it_settles_what_is_meant() -> None:
    assert params(model_of({**LLAMA, "num_key_value_head": 3}))["params/total"].value == COUNT


def test_a_name_that_another_class_reads_is_no_misspelling() -> None:
    assert "num_kv_heads" in ANYWHERE.split()
    fields = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert params(model_of({**fields, "num_kv_heads": 2}))["params/total"].value > COUNT  # all 8 heads have keys


@pytest.mark.parametrize(
    ("one", "other", "far"), [("abc", "abc", 0), ("abc", "ab", 1), ("abcd", "abdc", 1), ("abc", "xyz", 3)]
)
def test_distance_counts_letters(one: str, other: str, far: int) -> None:
    assert distance(one, other, 5) == far


@pytest.mark.parametrize(
    ("word", "known", "alone", "beside"),
    [
        ("tie", ("tied", "tier"), "tied", ""),  # one letter of four: too short to tell where other words may stand
        ("min_length", ("max_length",), "max_length", ""),  # two letters of ten
        ("hidden_siez", ("hidden_size",), "hidden_size", "hidden_size"),  # neighbors that are swapped count once
        ("hidden_size", ("hidden_size", "hidden_sizes"), "", ""),  # a known word is no slip
        ("num_atention_head", ("num_attention_heads", "num_kv_heads"), "num_attention_heads", "num_attention_heads"),
        ("ep", ("dp", "sp"), "", ""),
    ],
)
def test_a_slip_is_longer_where_all_words_are_known(word: str, known: tuple[str, ...], alone: str, beside: str) -> None:
    assert slip_of(word, known) == alone
    assert slip_of(word, known, among_others) == beside


# --- lists per layer, numbers, defaults ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer_types", "status"),
    [
        (["full_attention"] * 4, 0),
        (["full_attention"] * 3, USAGE),
        (["full_attention"] * 3 + ["spiral"], REFUSED),
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_layer_types_are_checked_where_no_window_is_in_use(
    model_type: str, layer_types: list[str], status: int
) -> None:
    outcome = asked({**LLAMA, "model_type": model_type, "layer_types": layer_types})
    assert outcome.status == status
    assert status == 0 or "layer_types" in outcome.err


def test_a_default_that_the_class_derives_is_shown() -> None:
    fields = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    given = asked(fields).data["inputs"]
    assert given["num-key-value-heads"] == {"value": 8, "origin": "class default", "given": None}
    assert given["head-dim"] == {"value": 8, "origin": "class default", "given": None}


@pytest.mark.parametrize("word", ["Infinity", "-Infinity"])
def test_infinity_is_read_where_the_field_does_not_matter(word: str) -> None:
    text = json.dumps({**LLAMA, "time_step_limit": ["X", 1], "turbo_mode": "X"}).replace('"X"', word)
    assert run_line(["params", "-", "--json"], stdin=text).values["params/total"] == COUNT
    outcome = run_line(["params", "-"], stdin=json.dumps({**LLAMA, "hidden_size": "X"}).replace('"X"', word))
    assert outcome.status == USAGE
    assert "hidden_size" in outcome.err


# --- files that default configurations save --------------------------------------------------------------------------


def test_every_registered_type_has_a_default_file_here() -> None:
    missing = {name for name in (*MODULES, *WRAPPERS) if name in READ} - {name for name, _ in SAVED}
    assert missing <= {"gemma4_assistant", "kimi_k2"}  # has no default configuration; deepseek_v3's class


@pytest.mark.parametrize(("model_type", "fields"), SAVED, ids=[name for name, _ in SAVED])
def test_the_file_that_a_default_configuration_saves_is_read(model_type: str, fields: dict[str, Any]) -> None:
    config = config_from(model_type, Document(model_type, fields), fields)
    if model_type in NOT_BUILT:
        with pytest.raises(NapkinError):
            build(config)
        return
    total = params(build(config))["params/total"].value
    assert isinstance(total, int)
    assert total > 0


REPLACED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("glm_moe_dsa", {"index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": "FSSS"}),
    ("axk1", {"moe_layer_freq": 2, "first_k_dense_replace": 1}),
    ("deepseek_v32", {"first_k_dense_replace": 1, "moe_layer_freq": 2}),
    ("deepseek_v4", {"expert_dtype": "fp4"}),
)
"""Fields that a class reads only where another one (indexer_types, mlp_layer_types) is missing, or to store weights."""


@pytest.mark.parametrize(("model_type", "more"), REPLACED)
def test_a_field_that_another_one_replaces_changes_nothing(model_type: str, more: dict[str, Any]) -> None:
    fields = next(fields for name, fields in SAVED if name == model_type)
    whole = params(model_of(fields))["params/total"].value
    assert params(model_of({**fields, **more}))["params/total"].value == whole


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status", "hint"),
    [
        ({"model_type": ["llama"]}, 2, "for example llama"),
        ({**LLAMA, "num_key_value_heads": 3}, 2, "num_key_value_heads"),
        ({**LLAMA, "architectures": 7}, 2, "architectures"),
        ({"model_type": "gemma3", "text_config": 7}, 2, "text_config"),
        ({"model_type": "llava", "text_config": {"model_type": "llava"}}, 3, "the language model's own"),
    ],
)
def test_every_refusal_of_a_config_has_a_hint(fields: dict[str, Any], status: int, hint: str) -> None:
    outcome = run_line(["params", "-"], stdin=json.dumps(fields))
    assert outcome.status == status
    assert hint in outcome.err.splitlines()[1]


def test_a_number_that_is_too_long_has_its_line() -> None:
    text = json.dumps(LLAMA, indent=0).replace("64", "9" * 5000, 1)
    outcome = run_line(["params", "-"], stdin=text)
    assert outcome.status == 2
    assert outcome.err.startswith("error: standard input:3: a number is too long")


def test_a_config_given_as_text_may_hold_infinity() -> None:
    text = json.dumps({**LLAMA, "time_step_limit": [0.0, 1]}).replace("1]", "Infinity]")
    assert run_line(["params", text, "--json"]).status == 0


# --- size ------------------------------------------------------------------------------------------------------------


def test_many_unknown_fields_are_answered_with_a_short_note() -> None:
    model = model_of({**LLAMA, **{f"unknown_{n}": n for n in range(50_000)}})
    assert params(model)["params/total"].value == COUNT
    assert max(map(len, model.notes)) < 1000


# --- what contains a language model -----------------------------------------------------------------------------------


# parameters of the language model and its head in transformers 5.23.0's classes, default configurations, meta device
@pytest.mark.parametrize(
    ("model_type", "total"),
    [
        ("audioflamingo3", 12_049_846_272),
        ("blip-2", 125_239_296),
        ("cosmos3_edge", 1_946_273_792),
        ("cosmos3_omni", 12_049_461_248),
        ("florence2", 406_291_456),
        ("glm_ocr", 373_359_616),
        ("glmasr", 1_472_055_296),
        ("granite_docling", 386_630_656),
        ("granite_speech", 6_607_343_616),
        ("minicpm_ocr", 7_936_684_544),
        ("mllama", 9_775_192_080),
        ("minicpmv4_7", 8_953_803_264),
        ("nemo_speechlm", 31_577_937_344),
        ("paddleocr_vl", 360_748_032),
        ("pp_chart2table", 463_909_888),
        ("qwen2_5_omni_thinker", 7_615_616_512),
        ("qwen2_audio", 12_049_846_272),
        ("qwen3_asr", 1_720_574_976),
        ("qwen3_omni_moe_thinker", 17_201_485_816),
        ("shieldgemma2", 2_628_658_432),
        ("step3p7", 195_843_833_088),
        ("unlimited_ocr", 2_934_734_080),
        ("voxtral", 4_014_136_320),
    ],
)
def test_the_language_model_within_another_is_the_class_s(model_type: str, total: int) -> None:
    assert params(model_of(dict(SAVED)[model_type]))["params/total"].value == total


def test_step_3_7_as_published_gives_layers_with_a_window_heads_of_their_own() -> None:
    """Give the fields of its hub file: moe_layers_enum, attention_other_setting and lists padded for MTP modules."""
    text = {
        "model_type": "step3p5",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_attention_groups": 2,
        "head_dim": 16,
        "vocab_size": 100,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "share_expert_dim": 48,
        "moe_layers_enum": "2,3",
        "layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"],
        "attention_other_setting": {"num_attention_heads": 6},
        "sliding_window": 8,
        "num_nextn_predict_layers": 1,
    }
    full, windowed = (2 * 64 * 16 * a + 2 * 64 * 16 * 2 + 64 * a + 2 * 16 for a in (4, 6))
    dense, sparse = 3 * 64 * 96, 8 * 3 * 64 * 32 + 64 * 8 + 3 * 64 * 48
    layers = 2 * (full + windowed) + 2 * dense + 2 * sparse + 4 * 2 * 64
    found = params(model_of({"model_type": "step3p7", "text_config": text, "vision_config": {}}))
    assert found["params/total"].value == 2 * 100 * 64 + layers + 64


def test_a_multimodal_file_with_code_of_its_own_is_refused_and_a_registered_one_is_answered() -> None:
    own = {"model_type": "my_vlm", "auto_map": {"AutoConfig": "mine.MyConfig"}, "text_config": LLAMA}
    assert refusal(own).status == REFUSED
    assert params(model_of({**own, "model_type": "kosmos-2.5"}))["params/total"].value == COUNT

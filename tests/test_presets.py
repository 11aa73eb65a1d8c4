"""Published architectures: each counted as its publisher counts it, named once, cited; and what a config may omit."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from napkin._tables.class_defaults import (
    ALIASES,
    CLASS_DEFAULTS,
    IGNORABLE,
    IGNORABLE_PATTERNS,
    IGNORABLE_WHEN,
)
from napkin.architectures import WRAPPERS, build
from napkin.commands.command import accepted, ask, find
from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.errors import NapkinError
from napkin.inputs.launch.names import model_of as model_of_name
from napkin.inputs.model_file import load_config, preset_config
from napkin.inputs.presets import Preset, preset, presets, spelling
from napkin.record import replace
from napkin.render import render
from tests.conftest import run_line

ROOT = Path(__file__).resolve().parent.parent
ALL = list(presets())
POWERS = {"M": 10**6, "B": 10**9, "T": 10**12}


def words(text: str) -> list[str]:
    return text.split()


def counted(one: Preset) -> dict[str, int]:
    return {path: term.value for path, term in params(build(preset_config(one))).items()}


def checkpoint(one: Preset) -> int:
    """What a checkpoint stores: multi-token prediction modules, a vision tower and its projector too."""
    model = build(preset_config(one))
    tower = sum(term.value for term in params_of(model) if term.name == "params/vision")
    return int(params(model, mtp=bool(model.extra))["params/total"].value + tower)


def printed(figure: int | str) -> tuple[Decimal, Decimal]:
    """A published figure and half of its last printed digit: 132B → 132e9 ± 0.5e9; a whole count is exact."""
    if isinstance(figure, int):
        return Decimal(figure), Decimal(0)
    digits, power = Decimal(figure[:-1]), POWERS[figure[-1]]
    step = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return digits * power, step * power / 2


# --- the presets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_count_is_the_published_one(one: Preset) -> None:
    count = {**counted(one), "params/checkpoint": checkpoint(one)}
    assert 0 < count["params/active"] <= count["params/total"]
    for what, figure in one.params_published.items():
        if what != "source":
            value, slack = printed(figure)
            assert abs(count[f"params/{what}"] - value) <= slack, f"{one.params_published['source']}: {figure}"


# Totals and active parameters from papers and cards, where a preset's own source prints none or another kind
PRINTED = [
    ("llama3.1-405b", "total", "406B", "the card's count of safetensors"),
    ("mixtral-8x7b", "active", "12.9B", "Mixtral of Experts: 12.9B active"),
    ("mixtral-8x22b", "total", "141B", "Mistral AI, Mixtral 8x22B: 141B, 39B active"),
    ("mixtral-8x22b", "active", "39B", "Mistral AI, Mixtral 8x22B: 141B, 39B active"),
    ("deepseek-v3", "total", "671B", "DeepSeek-V3: 671B total"),
    ("deepseek-v4-flash", "total", "284B", "DeepSeek-V4-Flash's card: 284B total, 13B active"),
    ("deepseek-v2", "total", "236B", "DeepSeek-V2: 236B total"),
    ("dbrx", "total", "132B", "DBRX: 132B total"),
    ("dbrx", "active", "36B", "DBRX: 36B active"),
    ("qwen3-235b-a22b", "active", "22B", "Qwen3-235B-A22B"),
    ("glm4.5", "total", "353B", "GLM-4.5: 355B with its prediction module, 352.8B without"),
    ("opt-66b", "total", "66B", "OPT, Table 1"),
    ("nemotron4-340b", "non_embedding", "331.6B", "Nemotron-4 340B: 331.6B non-embedding parameters"),
    ("nemotron4-15b", "non_embedding", "12.5B", "Nemotron-4 15B: 12.5B non-embedding parameters"),
    ("t5-11b", "total", "11B", "T5, Section 3.7: 11 billion"),
]


@pytest.mark.parametrize(("name", "what", "figure", "source"), PRINTED)
def test_count_is_what_papers_print(name: str, what: str, figure: str, source: str) -> None:
    value, slack = printed(figure)
    assert abs(counted(preset(name))[f"params/{what}"] - value) <= slack, source


def test_there_are_many_from_many_families() -> None:
    assert len(ALL) >= 200
    assert len({one.config["model_type"] for one in ALL}) >= 55
    assert len({one.organisation for one in ALL}) >= 30
    assert sum(bool(one.params_published) for one in ALL) >= 150


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_every_preset_is_a_cited_fact(one: Preset) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.\-]*", one.name)
    assert 2017 < one.published < 2030
    assert one.organisation
    assert re.search(
        r"arXiv \d{4}\.\d{5}|model card|Technical Report|README|zenodo|train\.py|Learners|holds it", one.source
    )
    assert not one.params_published or one.params_published["source"]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_preset_holds_what_matters_alone(one: Preset) -> None:
    """No token ids, dropout or rotary frequencies. Lengths (--seq's default), which head an encoder has, the format
    of the published weights, and the groups of experts stay: no count depends on them, but how far tokens are sent."""
    harmless = re.compile("|".join(f"(?:{p})" for p in IGNORABLE_PATTERNS))
    lengths = {"max_position_embeddings", "model_max_length", "seq_length"}
    groups = {"n_group", "topk_group"}
    for block in (one.config, one.config.get("text_config", {})):
        for field in block:
            assert field not in (IGNORABLE - {*lengths, *groups, "architectures", "quantization_config"}), field
            assert not harmless.fullmatch(field) or field == "token_dropout", field  # ESM's, which keeps two masks


def test_names_are_unique_under_every_spelling() -> None:
    meant: dict[str, str] = {}
    for one in ALL:
        for name in (one.name, *one.aliases):
            assert meant.setdefault(spelling(name), one.name) == one.name, name
            assert preset(name).name == one.name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("meta-llama/Meta-Llama-3-70B", "llama3-70b"),
        ("llama-3-70b", "llama3-70b"),
        ("Llama_3 70B", "llama3-70b"),
        ("LLAMA3-70B", "llama3-70b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("gpt-2", "gpt2"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("gpt3", "gpt3-175b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("bigscience/bloom", "bloom-176b"),
        ("google-t5/t5-3b", "t5-3b"),
        ("mistral-7b", "mistral-7b-v0.1"),
        ("EleutherAI/pythia-6.9b", "pythia-6.9b"),
    ],
)
def test_common_spellings(typed: str, name: str) -> None:
    assert preset(typed).name == name


@pytest.mark.parametrize("typed", ["llama-3-71b", "meta-llama/Llama-9", "", "\x1b[31m", "x" * 9999])
def test_an_unknown_name_is_refused_with_a_hint(typed: str) -> None:
    with pytest.raises(NapkinError) as caught:
        preset(typed)
    assert caught.value.status == 2
    assert caught.value.hint
    assert len(caught.value.message) < 200
    assert caught.value.message.isprintable()


def test_a_folder_hides_a_preset_only_with_a_config_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "mine").mkdir()
    assert load_config("gpt2").origin == "preset"
    with pytest.raises(NapkinError, match="no such file"):
        load_config("mine")
    (tmp_path / "gpt2" / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    assert load_config("gpt2").model_type == "llama"


# --- what published files hold besides ------------------------------------------------------------------------------

BESIDES: list[tuple[str, dict[str, Any]]] = [
    ("llama3-8b", {"pretraining_tp": 1, "rope_scaling": {"factor": 8.0}, "torch_dtype": "bfloat16", "use_cache": True}),
    ("smollm-135m", {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"q4": "float16"}}),
    ("phi4-mini", {"full_attn_mod": 1, "interpolate_factor": 1, "mlp_bias": False, "lm_head_bias": False}),
    ("kimi-k2", {"ep_size": 1, "aux_loss_alpha": 0.001, "seq_aux": True, "quantization_config": {"fmt": "e4m3"}}),
    ("nemotron-h-8b", {"attention_head_dim": 128, "time_step_rank": 256, "residual_in_fp32": False}),
    ("falcon-h1-7b", {"mamba_use_mlp": True, "time_step_rank": "auto", "ssm_multipliers": [0.35, 0.25, 0.3]}),
    ("minimax-m2", {"attn_type_list": [1] * 62, "use_mtp": True, "num_mtp_modules": 3, "shared_intermediate_size": 0}),
    (
        "hunyuan-a13b",
        {"moe_topk": [8] * 32, "num_shared_expert": [1] * 32, "use_cla": False, "attention_head_dim": 128},
    ),
    ("starcoder-15b", {"inference_runner": 0, "pad_key_length": True, "num_key_value_heads": 1}),
    ("bart-large", {"_num_labels": 3, "add_bias_logits": False, "normalize_before": False, "num_hidden_layers": 12}),
    ("command-r7b", {"layer_switch": 4, "use_parallel_block": True, "rotary_pct": 1.0}),
    ("gemma2-9b", {"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid", "query_pre_attn_scalar": 224}),
    ("gpt2", {"n_ctx": 1024, "summary_type": "cls_index", "task_specific_params": {"text-generation": {}}}),
    ("t5-small", {"n_positions": 512, "is_encoder_decoder": True, "output_past": True, "scale_decoder_outputs": True}),
    ("jamba-v0.1", {"calc_logits_for_entire_prompt": False, "n_ctx": 262144, "top_k": 50, "is_decoder": False}),
]


@pytest.mark.parametrize(("name", "besides"), BESIDES, ids=[name for name, _ in BESIDES])
def test_fields_that_change_nothing_pass(name: str, besides: dict[str, Any]) -> None:
    one = preset(name)
    fuller = replace(one, config={**one.config, **besides})
    assert counted(fuller)["params/total"] == counted(one)["params/total"]


def test_a_vision_language_file_counts_its_language_model() -> None:
    qwen = preset("qwen2.5-7b")
    flat = {**qwen.config, "vision_config": {"depth": 32}, "image_token_id": 151655, "vision_token_id": 151654}
    for kind in ("qwen2_vl", "qwen2_5_vl"):
        assert counted(replace(qwen, config={**flat, "model_type": kind})) == counted(qwen)
    mistral = preset("mistral-small-24b")
    nested = {"text_config": dict(mistral.config), "vision_config": {}, "spatial_merge_size": 2}
    outer = {"model_type": "mistral3", "image_token_index": 10, "tie_word_embeddings": False, **nested}
    assert counted(replace(mistral, config=outer)) == counted(mistral)


# --- what a config.json may omit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [
        *((kind, True) for kind in words("gemma gemma2 gemma3_text gpt2 gpt_neo gpt_bigcode opt bloom falcon mpt")),
        *((kind, True) for kind in words("starcoder2 cohere cohere2 mamba falcon_mamba bert roberta t5 bart xglm")),
        *((kind, False) for kind in words("llama mistral mixtral qwen2 qwen3 qwen3_moe phi phi3 gpt_neox gptj")),
        *((kind, False) for kind in words("deepseek_v2 deepseek_v3 olmo olmo2 gpt_oss dbrx jamba mamba2 mt5")),
    ],
)
def test_whether_an_omitted_head_is_tied(model_type: str, tied: bool) -> None:
    assert CLASS_DEFAULTS[model_type]["tie_word_embeddings"] is tied


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("llama", "num_key_value_heads", None),  # null: as many as heads, whatever their number
        ("llama", "intermediate_size", 11008),
        ("llama", "vocab_size", 32000),
        ("gpt2", "n_inner", None),
        ("gpt2", "num_attention_heads", 12),
        ("gemma3_text", "num_attention_heads", 8),
        ("gemma3_text", "num_key_value_heads", 4),
        ("gemma3_text", "head_dim", 256),
        ("gemma3_text", "vocab_size", 262208),
        ("gemma2", "vocab_size", 256000),
        ("bert", "type_vocab_size", 2),
        ("t5", "d_kv", 64),
        ("mixtral", "num_local_experts", 8),
        ("qwen2_moe", "shared_expert_intermediate_size", 5632),
        ("deepseek_v3", "n_routed_experts", 256),
        ("deepseek_v3", "q_lora_rank", 1536),
        ("gpt_oss", "head_dim", 64),
        ("mamba", "state_size", 16),
        ("dbrx.attn_config", "kv_n_heads", 1),
    ],
)
def test_class_defaults(model_type: str, field: str, value: Any) -> None:
    assert CLASS_DEFAULTS[model_type][field] == value


def test_width_and_depth_are_never_taken_from_a_default() -> None:
    sizes = {"hidden_size", "num_hidden_layers", "d_model", "n_embd", "n_layer", "n_layers", "num_layers"}
    lists = {"layers_block_type", "hybrid_override_pattern", "attention_types", "encoder_layers", "decoder_layers"}
    for model_type, defaults in CLASS_DEFAULTS.items():
        assert not (sizes | lists) & set(defaults), model_type
        assert not any(isinstance(v, list) and len(v) > 8 for v in defaults.values()), model_type


def test_defaults_are_named_as_the_aliases_say() -> None:
    for model_type, aliases in ALIASES.items():
        assert not set(aliases) & set(aliases.values()), model_type
        assert not set(aliases) & set(CLASS_DEFAULTS.get(model_type, {})), model_type
    assert ALIASES["gpt2"]["n_embd"] == "hidden_size"
    assert ALIASES["t5"]["num_layers"] == "num_hidden_layers"
    assert set(WRAPPERS.values()) <= set(CLASS_DEFAULTS)


def test_nothing_ignorable_is_a_fact_of_some_class() -> None:
    """A field that some class needs must be read by its adapter; lengths are both, how experts are chosen, and which
    layers do not rotate."""
    facts = {field for defaults in CLASS_DEFAULTS.values() for field in defaults} - {"max_position_embeddings"}
    facts |= {"hidden_size", "num_hidden_layers"} | {alias for aliases in ALIASES.values() for alias in aliases}
    facts -= {"n_ctx", "model_max_length", "max_sequence_length", "norm_topk_prob", "n_group", "topk_group"}
    facts -= {"routed_scaling_factor", "scoring_func", "no_rope_layers", "layer_rope_theta"}
    harmless = re.compile("|".join(f"(?:{p})" for p in IGNORABLE_PATTERNS))
    assert not facts & IGNORABLE
    assert not [field for field in facts if harmless.fullmatch(field)]
    # read: refused unless empty, where ProphetNet lacks it, and where it makes a decoder of a stack
    held_to = {"per_layer_config", "add_cross_attention", "is_decoder"}
    assert facts & set(IGNORABLE_WHEN) <= held_to


@pytest.mark.parametrize(
    "field",
    words(
        "vocab_size num_experts head_dim kv_lora_rank sliding_window type_vocab_size num_experts_per_token "
        "rope_head_dim "
        "token_embedding_size shared_expert_intermediate_size layer_types num_mem_tokens eps_layers mlp_bias lora_rank "
        "tie_word_embeddings attention_bias num_nextn_predict_layers hidden_act moe_top_k position_embedding_type"
    ),
)
def test_a_field_that_could_change_a_count_is_not_ignorable(field: str) -> None:
    assert field not in IGNORABLE
    assert not any(re.fullmatch(pattern, field) for pattern in IGNORABLE_PATTERNS)


@pytest.mark.parametrize(
    "field",
    words(
        "bos_token_id eos_token_id image_token_index attention_dropout attn_pdrop hidden_dropout_prob "
        "encoder_layerdrop "
        "rms_norm_eps layer_norm_epsilon rope_theta rope_scaling initializer_range init_std router_aux_loss_coef "
        "router_jitter_noise summary_type torch_dtype transformers_version use_cache architectures _name_or_path"
    ),
)
def test_a_field_without_shape_passes(field: str) -> None:
    assert field in IGNORABLE or any(re.fullmatch(pattern, field) for pattern in IGNORABLE_PATTERNS)


def test_every_file_of_presets_is_shipped() -> None:
    files = sorted((ROOT / "configs" / "models").glob("*.yaml"))
    assert {f.stem for f in files} == {one.name for one in ALL}
    first = yaml.safe_load(files[0].read_text(encoding="utf-8"))
    assert first["config"] == dict(preset(files[0].stem).config)


# --- the command ----------------------------------------------------------------------------------------------------


def ask_texts(name: str, options: dict[str, str]) -> Any:
    """The answer of a command to options given as texts."""
    command = find(name)
    return ask(command, accepted(command, options, "given", lambda key: ""))


def names_of(options: dict[str, Any]) -> list[str]:
    return [row["model"] for row in ask_texts("models", options).rows or ()]


def test_models_lists_them_by_family_and_size() -> None:
    rows = ask_texts("models", {}).rows or []
    assert len(rows) == len(ALL)
    assert [(r["family"], r["params"]) for r in rows] == sorted((r["family"], r["params"]) for r in rows)
    assert {"model", "family", "organisation", "published", "params", "active", "moe"} <= set(rows[0])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("nvidia/Nemotron-H-56B-Base-8K", 56_324_350_464),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120_668_687_360),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549_308_968_960),
        ("zai-org/GLM-5.2", 743_377_000_704),
        ("deepseek-ai/DeepSeek-V4-Pro", 1_572_997_179_491),
        ("deepseek-ai/DeepSeek-V3.1", 671_026_404_352),
        ("MiniMaxAI/MiniMax-M2.5", 228_689_748_992),
    ],
)
def test_a_count_is_that_of_the_class(name: str, parameters: int) -> None:
    """Parameters of the class of transformers 5.23.0 on the meta device, from the published config.json."""
    assert run_line(["params", name, "--json"]).values["params/total"] == parameters


def test_models_filters() -> None:
    assert names_of({"family": "llama3"}) == ["llama3-8b", "llama3-70b"] + [
        n for f in ("llama3.1", "llama3.2", "llama3.3") for n in names_of({"family": f})
    ]
    assert set(names_of({"family": "llama"})) >= {"llama-7b", "llama2-70b", "llama4-scout"}
    assert "tinyllama-1.1b" not in names_of({"family": "llama"})
    big = names_of({"moe": True, "min-params": "600B"})
    assert set(big) == {"deepseek-v3", "deepseek-v3.2", "deepseek-r1", "glm5", "inkling", "kimi-k2", "kimi-k2.6"} | {
        "kimi-k3",
        "deepseek-v4-pro",
        "glm5.2",
        "ling-1t",
    }
    assert "megatron-gpt-1t" in names_of({"moe": False, "min-params": "600B"})
    assert sorted(names_of({"search": "moonshot"})) == words(
        "kimi-k2 kimi-k2.6 kimi-k3 kimi-linear-48b-a3b kimi-vl-a3b moonlight-16b-a3b qwen2.5-72b"  # as Kimi-Dev-72B
    )
    assert names_of({"family": "gpt2", "max-params": "200M"}) == ["gpt2"]
    assert "bloom-7b1" in names_of({"search": "2211.05100"})
    assert names_of({"search": "no such thing"}) == []
    with pytest.raises(NapkinError, match="no family"):
        ask_texts("models", {"family": "lama"})


def test_models_shows_one_with_its_citation() -> None:
    answer = ask_texts("models", {"model": "meta-llama/Meta-Llama-3-70B"})
    values = {term.name: term.value for term in answer.terms}
    assert values["params/total"] == values["params/active"] == 70_553_706_496
    assert values["params/embedding"] == values["params/lm_head"] == 128256 * 8192
    facts = answer.extra["model"]
    assert facts["organisation"] == "Meta"
    assert "arXiv 2407.21783" in facts["source"]
    assert facts["config"]["num_key_value_heads"] == 8
    text = render(answer, "text")
    assert "source: Llama Team" in text
    assert re.search(r"key and value heads +8  num_key_value_heads", text)


@pytest.mark.parametrize("path", ["./llama3-8b", "../x/llama3-8b", "/no/llama3-8b", "~/llama3-8b", "a/b/llama3-8b"])
def test_a_missing_path_is_never_answered_with_a_preset(path: str) -> None:
    outcome = run_line(f"params {path}")
    assert outcome.status == 2
    assert not outcome.out
    assert "No such file" in outcome.err


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_an_id_means_a_preset_only_under_an_organization_that_publishes_it(one: Preset) -> None:
    for name in (one.name, *one.aliases):
        last = name.rpartition("/")[2]
        assert all(preset(f"{organization}/{last}") == one for organization in one.hub)
        with pytest.raises(NapkinError) as problem:
            preset(f"myorg/{last}")
        assert f"write {one.name};" in str(problem.value.hint)


def test_the_presets_of_an_organization_are_not_those_of_another() -> None:
    for name in ("myorg/llama3-8b", "Qwen/Meta-Llama-3-8B", "meta-llama/Qwen2.5-7B", "nvidia/gpt3-175b"):
        found = run_line(f"memory {name} --hardware h100")
        assert found.status == 2
        assert not found.out
    assert run_line("params META-LLAMA/llama-3-8b").status == 0


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Llama-2-chat-70b-hf", "llama2-70b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama2-70b"),
        ("Qwen2.5-Coder-32B", "qwen2.5-32b"),
    ],
)
def test_a_chat_version_is_named_before_or_after_its_size(name: str, found: str) -> None:
    assert model_of_name(name)[0] == found

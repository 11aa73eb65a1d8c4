"""Names of republications: a published model in another format, and what to do about a name that is unknown."""

from __future__ import annotations

import pytest

from napkin.architectures import build
from napkin.errors import NapkinError
from napkin.inputs.launch.names import held_format, model_of
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from napkin.inputs.model_file import load_config
from napkin.inputs.presets import base_of, is_preset, shapeless
from tests.conftest import run_line


@pytest.mark.parametrize(
    ("name", "base", "word", "each"),
    [
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "llama3.2-1b", "nf4-dq", 0.5 + 1 / 64 + 4 / (64 * 256)),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b", "nf4-dq", 0.5 + 1 / 64 + 4 / (64 * 256)),
        (
            "Qwen/Qwen2.5-7B-Instruct-AWQ",
            "qwen2.5-7b",
            "int4",
            0.5 + 20 / 8 / 128,
        ),  # a 16-bit scale, a 4-bit zero point
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "int8", 1 + 24 / 8 / 128),
        ("TheBloke/Llama-2-7B-Chat-GPTQ", "llama2-7b", "int4", 0.5 + 20 / 8 / 128),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "llama3.1-8b", "int4", 0.5 + 20 / 8 / 128),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama3.1-8b", "int4", 0.5 + 16 / 8 / 128),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama3.1-8b", "int8", 1.0),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama3.3-70b", "fp8", 1.0),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama3.1-8b", "fp8", 1.0),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "llama3.3-70b", "nvfp4", 0.5 + 1 / 16),
    ],
)
def test_a_name_states_the_model_and_its_format(name: str, base: str, word: str, each: float) -> None:
    model = build(load_config(name))
    assert model.name == base
    assert model.checkpoint is not None
    assert (model.checkpoint.format, model.checkpoint.kept) == (word, ("lm_head",))
    assert model.checkpoint.each == pytest.approx(each, rel=1e-3)
    assert any(f"weights in {word}" in note for note in model.notes)
    assert model_of(name)[0] == base


def test_a_launch_file_takes_the_same_formats() -> None:
    assert held_format("nvidia/Llama-3.1-8B-Instruct-FP8") == "fp8"
    assert held_format("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8") == "int8"
    assert held_format("meta-llama/Llama-3.1-8B-Instruct") is None


def test_copies_and_tuned_models_of_a_publisher() -> None:
    for name in ("unsloth/Qwen3-4B", "ibm-granite/granite-3.3-8b-instruct", "Qwen/Qwen2-57B-A14B-Instruct"):
        assert is_preset(name)
    for name in ("somebody/Qwen3-4B", "somebody/granite-3.3-8b-instruct", "Qwen/Qwen3-4B-Guard"):
        assert not is_preset(name)
    assert base_of("somebody/my-own-model-AWQ") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("facebook/galactica-6.7b", "`hf download facebook/galactica-6.7b config.json` fetches its shape"),
        ("bartowski/Llama-3.2-3B-Instruct-GGUF", "write llama3.2-3b"),
        ("mlx-community/Qwen2.5-7B-Instruct-8bit", "write qwen2.5-7b"),
        ("somebody/Qwen3-4B", "if it is the same as Qwen's, write qwen3-4b"),
        ("galactica-120b", "`hf download ORG/NAME config.json` makes ORG/NAME one"),
        ("mistrall-7b", "mistral-7b-v0.3"),
    ],
)
def test_a_hint_says_how_to_go_on(name: str, hint: str) -> None:
    with pytest.raises(NapkinError) as problem:
        load_config(name)
    assert hint in (problem.value.hint or "")


@pytest.mark.parametrize("name", ["google/txgemma-9b", "sail/Sailor-7B", "EleutherAI/llemma_7b"])
def test_another_familys_model_is_no_suggestion(name: str) -> None:
    with pytest.raises(NapkinError) as problem:
        load_config(name)
    assert "did you mean" not in (problem.value.hint or "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Qwen/Qwen2.5-7B-Instrct", "did you mean qwen2.5-7b? else `hf download"),
        ("llama3-8bb", "did you mean llama3-8b?"),
        ("gpt-oss-20", "did you mean gpt-oss-20b?"),
        ("quen3-8b", "did you mean qwen3-8b?"),
        ("qwen3-30b", "did you mean qwen3-30b-a3b?"),
        ("bert-bse-uncased", "did you mean bert-base-uncased"),
        ("falcon3-5b", "falcon3-7b"),  # of its version in another size
        ("deepseek", "`napkin models deepseek` lists deepseek-v4-"),  # the newest of many
        ("qwen3", "`napkin models qwen3` lists qwen3-0.6b, "),  # those of its version first
        ("gpt-oss", "did you mean gpt-oss-120b or gpt-oss-20b?"),
        ("magistral", "did you mean Magistral-Small-2506 or Magistral-Small-2509?"),  # aliases
    ],
)
def test_a_slip_gets_the_model_that_is_meant(name: str, hint: str) -> None:
    with pytest.raises(NapkinError) as problem:
        load_config(name)
    assert hint in (problem.value.hint or "")


@pytest.mark.parametrize(
    "name", ["GLM-4.8", "zai-org/GLM-4.8", "Qwen/Qwen3.5-72B", "llama-5-8b", "openai/gpt-oss-40b", "grok-2", "vit-7b"]
)
def test_another_version_is_no_slip(name: str) -> None:
    with pytest.raises(NapkinError) as problem:
        load_config(name)
    assert "did you mean" not in (problem.value.hint or "")
    assert "hf download" in (problem.value.hint or "")


@pytest.mark.parametrize("line", ["--lora-rank 8 --hardware t4 --seq 1024", "--inference --seq 1024"])
def test_a_name_that_does_not_tell_what_stays_in_16_bits_is_an_assumption(line: str) -> None:
    """Unsloth's dynamic 4 bits keep modules in 16 bits that only the file lists; plain 4 bits keep the head alone."""
    name = "unsloth/Llama-3.2-1B-Instruct-{}bnb-4bit"
    dynamic, plain = (run_line(f"memory {name.format(kind)} {line}").out for kind in ("unsloth-", ""))
    assert "assumed: nf4-dq weights in every layer" in dynamic
    assert "in every layer" not in plain


NEAR_MISSES = {
    "Qwen2-70B": "qwen2-72b",
    "llama3-7b": "llama3-8b",
    "gemma-3-9b": "gemma3-12b",
    "llama2-8b": "llama2-7b",
    "Qwen2.5-13B": "qwen2.5-14b",
    "qwen3-7b": "qwen3-8b",
    "llama-3.2-8b": "llama3.2-3b",
    "gemma2-7b": "gemma2-9b",
    "gpt-oss-70b": "gpt-oss-120b",
    "mixtral-8x13b": "mixtral-8x7b",
    "falcon-13b": "falcon-7b",
    "Qwen3-235B-A30B": "qwen3-235b-a22b",
    "Llama-3.1-80B": "llama3.1-70b",
    "internvl3-7b": "internvl3-2b",
    "granite-3.1-13b": "granite3.1-8b",
    "olmo2-70b": "olmo2-13b",
    "qwen2.5-vl-14b": "qwen2.5-vl-7b",
    "qwen2.5-omni-14b": "qwen2.5-omni-7b",
    "codellama-8b": "codellama-7b",
    "yi-13b": "yi-9b",
    "ministral3-7b": "ministral3-8b",
    "kimi-vl-a5b": "kimi-vl-a3b",
    "nemotron-nano-10b-v2": "nemotron-nano-9b-v2",
    "Mistral-Small-70B": "mistral-small-24b",
}
"""Names that no model has → one that the hint names."""


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_means_no_model(name: str) -> None:
    assert model_of(name) == (None, False)
    assert not is_preset(name)
    with pytest.raises(NapkinError) as problem:
        load_config(name)
    assert NEAR_MISSES[name] in (problem.value.hint or "")
    assert NEAR_MISSES[name] in shapeless(name).message


@pytest.mark.parametrize("name", NEAR_MISSES)
@pytest.mark.parametrize(
    "form", ["Qwen/{}", "meta-llama/{}-Instruct", "LLM-Research/{}", "unsloth/{}-bnb-4bit", "{}-AWQ"]
)
def test_no_form_of_a_near_miss_means_one(name: str, form: str) -> None:
    assert model_of(form.format(name)) == (None, False)
    with pytest.raises(NapkinError):
        load_config(form.format(name))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("LLM-Research/Meta-Llama-3.1-8B-Instruct", "llama3.1-8b"),  # a copy on ModelScope
        ("AI-ModelScope/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("ZhipuAI/GLM-4.1V-9B-Thinking", "glm4.1v-9b"),  # the publisher's name there
        ("Shanghai_AI_Laboratory/internlm3-8b-instruct", "internlm3-8b"),
        ("THUDM/chatglm3-6b", "chatglm3-6b"),  # before it was renamed
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3-8b"),  # another's model, by its whole name
        ("Intel/neural-chat-7b-v3-1", "mistral-7b-v0.1"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"),  # stages of one model
        ("ibm-granite/granite-3.3-8b-base", "granite3.3-8b"),
    ],
)
def test_whose_names_are_known(name: str, slug: str) -> None:
    assert load_config(name).name == slug
    assert not is_preset(f"somebody/{name.rpartition('/')[2]}")


def test_a_quantized_name_never_means_the_plain_model() -> None:
    for name in ("Qwen/Qwen2.5-7B-Instruct-GGUF", "Qwen/Qwen2.5-7B-Instruct-3bit", "Qwen/Qwen2.5-7B-Instruct-MLX"):
        with pytest.raises(NapkinError):
            load_config(name)
    for name in ("Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B-AWQ", "tencent/Hunyuan-7B-Instruct-GPTQ-Int4"):
        assert build(load_config(name)).checkpoint is not None


def test_a_launch_file_says_it_too() -> None:
    text = "base_model: unsloth/Llama-3.2-1B-Instruct-unsloth-bnb-4bit\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\n"
    said = reading_of(source_of(text, "a.yaml")).not_modelled
    assert any("keeps some modules in 16 bits" in one.why for one in said)

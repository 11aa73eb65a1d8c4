"""Launch files that leave a value open: what a variable, `auto` or -1 decides is asked, never taken for a default."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin
from tests.test_launch import read
from tests.test_launch_shell import SIZES

PRETRAIN = f"torchrun pretrain_gpt.py {SIZES} --vocab-size 32000 --micro-batch-size 1"
SWIFT = """#!/bin/bash
NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B-Instruct {} --per_device_train_batch_size 1 \\
 --torch_dtype bfloat16 --learning_rate 1e-4 --max_length 2048
"""


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ("--train_type $KIND", "adapter"),
        ("--lora_rank $RANK", "lora-rank"),
        ("--target_modules $WHICH", "lora-targets"),
        ("--quant_bits $BITS", "quantized"),
        ("--gradient_checkpointing $AGAIN", "recompute"),
        ("--sequence_parallel_size $SP", "cp"),
        ("--optim $OPTIM", "optimizer"),
    ],
)
def test_a_value_that_a_variable_decides_is_required_from_the_user(more: str, option: str) -> None:
    options, _ = read(SWIFT.format(more))
    assert option in options
    assert options[option] is None


@pytest.mark.parametrize("word", ["auto", "-1", "${nowhere}"])
def test_an_open_number_is_required_from_the_user(word: str) -> None:
    """Each of the frameworks has a default for these keys, which a key that is there does not mean."""
    llama = "stage: sft\nfinetuning_type: lora\nmodel_name_or_path: Qwen/Qwen3-8B\nbf16: true\n"
    for key, option in (("lora_rank", "lora-rank"), ("cutoff_len", "seq"), ("tensor_model_parallel_size", "tp")):
        options, _ = read(f"{llama}{key}: {word}\n")
        assert options[option] is None
    options, _ = read(
        "actor_rollout_ref:\n  model:\n    path: Qwen/Qwen3-8B\n  actor:\n    ppo_mini_batch_size: 8\n"
        f"  rollout:\n    tensor_model_parallel_size: {word}\n"
    )
    assert options["rollout-tp"] is None


def test_a_feature_that_is_read_and_off_is_not_listed_as_not_modeled() -> None:
    text = (
        "base_model: Qwen/Qwen3-8B\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"
        "fsdp_config:\n  offload_params: {}\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    )
    for word, offload in (("false", False), ("true", True)):
        options, reading = read(text.format(word))
        assert ("offload" in options) == offload
        assert [one.key for one in reading.not_modelled] == ["fsdp_config.auto_wrap_policy"]


def test_fp8_is_listed_as_not_modeled() -> None:
    """IN_8_BITS has the formats of training all weights alone."""
    options, reading = read(
        "base_model: Qwen/Qwen3-8B\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\nfp8: true\n"
        "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    )
    assert options["precision"] == "frozen=bf16,param=fp32,grad=fp32,compute=bf16,state=fp32"
    assert "fp8" in {one.key for one in reading.not_modelled}


def test_megatrons_arguments_in_yaml_keep_their_lines() -> None:
    text = "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: many\n  --micro-batch-size: 1\n"
    with pytest.raises(NapkinError, match=r"file:5: hidden-size: 'many' is not a number"):
        read(text + "  --tensor-model-parallel-size: 1\n")


def test_a_script_is_no_description_of_a_model() -> None:
    """Its sizes stand among other keys, of which a description reads none (transformers' run_clm.py)."""
    line = "deepspeed run_clm.py --model_type gpt2 --n_layer 3 --n_embd 128 --per_device_train_batch_size 4\n"
    with pytest.raises(NapkinError, match=r"starts run_clm\.py, whose options napkin does not know"):
        read(line)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        # what several keys make together is asked if one of them is open: 2 × ? GPUs, ? layers of 64
        (
            "base_model: Qwen/Qwen3-8B\nsequence_len: 8\nmicro_batch_size: 1\ndp_shard_size: 2\n"
            "tensor_parallel_size: ${TP}\nload_in_4bit: ${FOUR}\nadapter: qlora\n",
            ("gpus", "tp", "quantized"),
        ),
        (
            "torchrun pretrain_gpt.py --num-layers $N --hidden-size 64 --num-attention-heads 4 --seq-length 8 "
            "--micro-batch-size 1 --attention-dropout 0 --hidden-dropout $DROP\n",
            ("model", "dropout"),
        ),
        ("n_layer = count()\nn_head = 4\nn_embd = 64\nbatch_size = 8\nblock_size = 64\n", ("model",)),
        ('{"zero_optimization": {"stage": 3, "offload_param": {"device": "auto"}}}', ("offload",)),
    ],
)
def test_a_product_of_keys_is_required_if_one_is_open(text: str, options: tuple[str, ...]) -> None:
    found, _ = read(text)
    assert [found.get(name, "absent") for name in options] == [None] * len(options)


def test_auto_is_no_number_format_of_a_framework() -> None:
    text = "model: {_component_: torchtune.models.llama3.llama3_8b}\nbatch_size: 1\ndtype: auto\n"
    with pytest.raises(NapkinError, match="file:3: dtype: 'auto' is not one of"):
        read(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("base_model: Qwen/Qwen3-8B\nsequence_len: 8\nmicro_batch_size: 1\nbf16: florble\n", "bf16"),
        (
            '{"zero_optimization": {"stage": 3, "offload_param": {"device": "gpu"}}}',
            "zero_optimization.offload_param.device",
        ),
        (
            "[model]\nname='llama3'\nflavor='8B'\n[training]\nseq_len=8\n[activation_checkpoint]\n"
            "mode='selective'\nselective_ac_option='some'\n",
            "activation_checkpoint.selective_ac_option",
        ),
        ("model: {name: mpt_causal_lm}\nglobal_train_batch_size: 8\nmax_duration: 1ba\nprecision: half\n", "precision"),
    ],
)
def test_a_word_that_its_framework_does_not_know_is_an_error(text: str, key: str) -> None:
    """Each was read as the framework's default, or as another word."""
    with pytest.raises(NapkinError, match=rf"{key}: '\w+' is not (one of|a number)"):
        read(text)


@pytest.mark.parametrize(("on", "refused"), [("true", ["use_kt"]), ("false", [])])
def test_experts_that_are_computed_on_the_host_are_refused(on: str, refused: list[str]) -> None:
    """LLaMA-Factory, hparams/model_args.py: KTransformers' AMX backend of mixtures of experts."""
    text = f"stage: sft\nfinetuning_type: lora\nmodel_name_or_path: Qwen/Qwen3-30B-A3B\nuse_kt: {on}\n"
    _, reading = read(f"{text}kt_config:\n  kt_backend: AMXBF16\n")
    assert [one.key for one in reading.refused] == refused


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (
            "python sft.py --model_name_or_path gpt2 --gradient_accumulation_steps 1 "
            "--per_device_trin_batch_size 1 --num_train_epochs 1",
            "micro-batch",
        ),
        (f"{PRETRAIN} --tensor-modle-parallel-size 2", "tp"),
        (f"{PRETRAIN} --tensor-model-parallel-size $TP", "tp"),
    ],
)
def test_what_a_misspelled_or_unset_option_of_a_launch_line_sets_is_required(
    line: str, option: str, tmp_path: Path, napkin: Napkin
) -> None:
    """The program may have an option of that name of its own, so it is asked for rather than refused."""
    file = tmp_path / "run.sh"
    file.write_text(f"{line}\n")
    asked = napkin(f"memory --from {file} --gpus 8 --hardware h100 --seq 1024")
    assert asked.status == 2
    assert f"leaves --{option} open" in asked.err
    assert napkin(f"memory --from {file} --gpus 8 --hardware h100 --seq 1024 --{option} 2").status in (0, 1)


def test_a_misspelled_option_names_the_one_that_is_meant() -> None:
    reading = reading_of(source_of("deepspeed --module openrlhf.cli.train_sft --pretrain gpt2 --zero_tage 3", "run.sh"))
    (said,) = [one for one in reading.not_modelled if one.key == "--zero_tage"]
    assert "did you mean zero_stage?" in said.why
    assert reading.inputs["zero"].value is None

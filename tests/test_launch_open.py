"""Launch files that leave a value open: what a variable, `auto` or -1 decides is asked, never taken for a default."""

from __future__ import annotations

import pytest

from napkin.errors import NapkinError
from tests.test_launch import read

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
def test_what_a_variable_decides_is_asked_and_not_the_default(more: str, option: str) -> None:
    options, _ = read(SWIFT.format(more))
    assert option in options
    assert options[option] is None


@pytest.mark.parametrize("word", ["auto", "-1", "${nowhere}"])
def test_a_number_left_open_is_asked(word: str) -> None:
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


def test_fp8_that_is_not_counted_is_said() -> None:
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
    with pytest.raises(NapkinError, match="of no format that napkin knows"):
        read(line)

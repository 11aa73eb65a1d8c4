"""open-instruct's launch scripts and YAML."""

from __future__ import annotations

from typing import Any

import pytest

from napkin.errors import Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of

TUNED = """#!/bin/bash
python mason.py --cluster a --num_nodes 4 --gpus 8 -- accelerate launch \\
  --mixed_precision bf16 --num_processes 8 --use_deepspeed \\
  --deepspeed_config_file configs/ds_configs/stage3_offloading_accelerate.conf \\
  open_instruct/{program} --model_name_or_path meta-llama/Llama-3.1-8B --max_seq_length 4096 \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --gradient_checkpointing {more}
"""
GROUPED = """#!/bin/bash
uv run open_instruct/grpo_fast.py --model_name_or_path Qwen/Qwen2.5-7B --num_unique_prompts_rollout 48 \\
  --num_samples_per_prompt_rollout 16 --num_mini_batches 2 --max_prompt_token_length 2048 --response_length 6144 \\
  --num_learners_per_node 8 4 --vllm_num_engines 10 --vllm_tensor_parallel_size 2 --deepspeed_stage 3 \\
  --per_device_train_batch_size 1 --total_episodes 76800 {more}
"""
YAML = """model_name_or_path: meta-llama/Llama-2-7b-hf
use_slow_tokenizer: true
max_seq_length: 2048
per_device_train_batch_size: 4
with_tracking: true
"""


def values(text: str) -> dict[str, Any]:
    return {name: one.value for name, one in reading_of(source_of(text, "file")).inputs.items()}


def meant(text: str, **expected: Any) -> None:
    found = values(text)
    names = {name: name.replace("_", "-") for name in expected}
    assert {name: found.get(names[name]) for name in expected} == expected


def test_supervised_tuning_over_nodes() -> None:
    meant(
        TUNED.format(program="finetune.py", more="--num_train_epochs 2 --use_liger_kernel"),
        model="llama3.1-8b",
        task="sft",
        trainer="accelerate",
        gpus=32,  # mason.py starts 8 processes on each of the nodes
        zero=3,
        offload="optimizer,parameters",
        micro_batch=2,
        grad_accum=4,
        seq=4096,
        epochs=2,
        recompute="full",
        loss="fused",
        precision="bf16-mixed",
    )


def test_dpo_with_cached_references_and_simpo_with_none() -> None:
    meant(TUNED.format(program="dpo_tune_cache.py", more="--num_epochs 1"), task="dpo", reference="precomputed")
    meant(TUNED.format(program="dpo_tune_cache.py", more="--loss_type simpo"), task="simpo", reference=None)
    meant(YAML + "loss_type: dpo_norm\nnum_epochs: 1\n", task="dpo", epochs=1, reference="precomputed")


def test_adapters_are_64_wide_on_every_linear_layer() -> None:
    meant(
        YAML + "use_lora: true\nuse_qlora: true\n",
        task="sft",
        adapter="lora",
        lora_rank=64,
        lora_targets="all",
        lora_dropout=0.1,
        quantized="nf4-dq",
        precision="frozen=nf4,param=fp32,grad=fp32,compute=bf16,state=fp32",
    )
    alone = values(TUNED.format(program="finetune.py", more="--use_lora --lora_rank 16"))
    assert alone["precision"] == "frozen=bf16,param=bf16,grad=bf16,compute=bf16,state=fp32,master=fp32"


def test_grpo_learners_and_engines_have_gpus_of_their_own() -> None:
    meant(
        GROUPED.format(more="--pack_length 8192 --beta 0.0 --load_ref_policy False"),
        task="grpo",
        gpus=32,  # 8 + 4 learners, 10 engines of 2
        rollout="separate:20",
        rollout_tp=2,
        samples_per_prompt=16,
        global_batch=24,
        updates=2,
        seq=8192,
        micro_batch=1,
        zero=3,
        reference="none",
        steps=100,
    )
    meant(GROUPED.format(more="--pack_length 16384 --beta 0.01"), micro_batch=2, reference="same")
    meant(GROUPED.format(more="--pack_length 16384 --beta 0.0"), reference="same")  # grpo_fast.py loads it anyway
    trained_by_core = GROUPED.replace("grpo_fast.py", "grpo.py")
    meant(trained_by_core.format(more="--pack_length 16384 --beta 0.0"), reference="none")
    assert values(GROUPED.format(more="--pack_length 9000"))["micro-batch"] is None


def test_its_other_programs_are_named() -> None:
    with pytest.raises(Refused, match="OLMo-core"):
        reading_of(source_of(TUNED.format(program="olmo_core_finetune.py", more=""), "file"))

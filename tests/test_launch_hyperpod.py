"""SageMaker HyperPod's recipes: its own fine-tuning, and verl's settings in its block."""

from __future__ import annotations

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.names import matched_targets
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED
from napkin.inputs.launch.syntax import source_of

RECIPE = """display_name: a recipe
run: {{name: mine, model_type: llm_finetuning_aws}}
trainer: {{devices: 8, num_nodes: 2}}
scale_config: {{4: {{trainer: {{num_nodes: 4}}}}}}
training_config:
  model_config:
    model_name_or_path: meta-llama/Llama-3.1-8B-Instruct
    attn_implementation: sdpa
    peft_config: {peft}
  training_args:
    gradient_checkpointing: true
    max_len: 4096
    micro_train_batch_size: 1
    train_batch_size: 64
    max_epochs: 5
    trainer_type: {task}
    ring_attn_size: 1
    strategy: {{fsdp_config: {{sharding_strategy: {sharding}, cpu_offload: false}}}}
"""
LORA = "{peft_type: lora, r: 16, lora_dropout: 0.05, target_modules: all-linear, use_dora: false}"


def read(text: str) -> Reading:
    """Return the reading of a recipe."""
    return reading_of(source_of(text, "recipe.yaml"))


def values(reading: Reading, *options: str) -> list[object]:
    """Return the values of options."""
    return [reading.value_of(option) for option in options]


def test_lora() -> None:
    reading = read(RECIPE.format(peft=LORA, task="sft", sharding="FULL_SHARD"))
    assert values(reading, "model", "gpus", "task", "seq") == ["llama3.1-8b", 16, "sft", 4096]
    assert values(reading, "micro-batch", "global-batch", "epochs", "zero") == [1, 64, 5, 3]
    assert values(reading, "adapter", "lora-rank", "lora-targets", "lora-dropout") == ["lora", 16, "all", 0.05]
    assert values(reading, "recompute", "attention", "framework") == ["full", "flash", "fsdp"]
    assert reading.inputs["precision"].origin == ASSUMED
    assert reading.inputs["seq"].where == "training_config.training_args.max_len"
    assert [one.key for one in reading.not_modelled] == ["scale_config"]


def test_full_training_asks_for_the_precision_that_no_key_states() -> None:
    reading = read(RECIPE.format(peft="null", task="dpo", sharding="SHARD_GRAD_OP"))
    assert values(reading, "adapter", "task", "zero", "precision") == [None, "dpo", 2, None]
    assert "precision" in reading.inputs


def test_a_batch_that_does_not_divide_is_a_contradiction() -> None:
    text = RECIPE.format(peft=LORA, task="sft", sharding="FULL_SHARD").replace(
        "train_batch_size: 64", "train_batch_size: 60"
    )
    assert any("60 is not a multiple" in one.why for one in read(text).refused)


VERL = """run: {model_type: verl}
trainer: {devices: 8, num_nodes: 2}
training_config:
  trainer: {n_gpus_per_node: 8, nnodes: 2, total_epochs: 3}
"""


def test_verls_settings_in_a_recipe() -> None:
    reading = read(
        f"{VERL}  algorithm: {{adv_estimator: grpo}}\n  data: {{max_prompt_length: 512, max_response_length: 1024}}\n"
        "  actor_rollout_ref: {model: {path: Qwen/Qwen2.5-7B}, actor: {ppo_mini_batch_size: 32, "
        "ppo_micro_batch_size_per_gpu: 2}, rollout: {n: 8}}\n"
    )
    assert values(reading, "trainer", "task", "model", "gpus") == ["verl", "grpo", "qwen2.5-7b", 16]
    assert values(reading, "seq", "samples-per-prompt", "global-batch", "micro-batch") == [1536, 8, 32, 2]


def test_verls_supervised_fine_tuning_in_a_recipe() -> None:
    reading = read(
        f"{VERL}  data: {{max_length: 8192, micro_batch_size_per_gpu: 1, train_batch_size: 64}}\n"
        "  engine: {strategy: fsdp2, model_dtype: fp32}\n"
        "  model: {path: Qwen/Qwen2.5-7B, lora_rank: 64, target_modules: '.*q_proj.*|.*v_proj.*'}\n"
    )
    assert values(reading, "task", "seq", "global-batch", "gpus") == ["sft", 8192, 64, 16]
    assert values(reading, "adapter", "lora-rank", "lora-targets") == ["lora", 64, "q,v"]


def test_other_recipes_and_launch_lines_are_refused() -> None:
    for text in (
        "run: {model_type: 'amazon.nova-micro-v1:0:128k'}\ntraining_config: {max_length: 8192}\n",
        "model: {train_batch_size: 1, max_context_width: 2048}\ntrainer: {devices: 8}\n",
    ):
        with pytest.raises(NapkinError, match="another kind"):
            read(text)


def test_names_anywhere_in_a_module_path() -> None:
    assert matched_targets(".*q_proj.*|.*up_proj.*") == ["q_proj", "up_proj"]
    assert matched_targets(".*layers.3.q_proj.*|.*up_proj.*") is None

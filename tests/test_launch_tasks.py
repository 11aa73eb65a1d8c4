"""Cloud tasks whose commands are launch lines, and TrainingArguments that programs nest in blocks of their own."""

from __future__ import annotations

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED
from napkin.inputs.launch.syntax import source_of


def read(text: str) -> Reading:
    """Return the reading of a file."""
    return reading_of(source_of(text, "task.yaml"))


def values(reading: Reading, *options: str) -> list[object]:
    """Return the values of options."""
    return [reading.value_of(option) for option in options]


ARGUMENTS = "--model_name_or_path $MODEL --per_device_train_batch_size 2 --max_length 4096"
SKYPILOT = f"""envs:
  MODEL: meta-llama/Llama-3.1-8B
resources:
  accelerators: H100:8
num_nodes: 2
setup: |
  python -m pip install --pre trl peft accelerate
run: |
  cd trl
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE train.py \\
    {ARGUMENTS} \\
    --bf16
"""


@pytest.mark.parametrize("stated", ["H100:8", "{H100: 8}"])
def test_skypilot(stated: str) -> None:
    reading = read(SKYPILOT.replace("H100:8", stated))
    assert values(reading, "model", "gpus", "micro-batch", "seq") == ["llama3.1-8b", 16, 2, 4096]
    assert reading.source.place("per_device_train_batch_size").startswith("task.yaml:11")
    assert not reading.not_modelled


def test_dstack() -> None:
    reading = read(f"""type: task
name: mine
env:
  - HF_TOKEN
  - MODEL=Qwen/Qwen2.5-7B
nodes: 2
commands:
  - python3 -m pip install --pre torch --index-url https://example.org
  - accelerate launch --num_processes $DSTACK_GPUS_NUM sft.py
    {ARGUMENTS}
resources:
  gpu: {{name: H100, count: 4}}
""")
    assert values(reading, "model", "gpus", "micro-batch", "task") == ["qwen2.5-7b", 8, 2, "sft"]


NESTED = """model:
  name: Qwen/Qwen3-30B-A3B
  max_seq_length: 4096
lora: {r: 32, lora_dropout: 0.05, target_modules: [q_proj, v_proj], modules_to_save: [lm_head]}
training:
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  num_train_epochs: 2
  gradient_checkpointing: true
  bf16: true
data: {train_file: train.jsonl}
"""


def test_arguments_in_blocks() -> None:
    reading = read(NESTED)
    assert values(reading, "model", "seq", "micro-batch", "grad-accum") == ["qwen3-30b-a3b", 4096, 4, 2]
    assert values(reading, "lora-rank", "lora-targets", "modules-to-save", "recompute") == [
        32,
        "q,v",
        "lm_head",
        "full",
    ]
    assert reading.inputs["adapter"].origin == ASSUMED
    assert reading.inputs["micro-batch"].where == "training.per_device_train_batch_size"


def test_arguments_of_a_program_that_names_the_model() -> None:
    text = "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nmax_steps: 300\nlearning_rate: 1e-5\n"
    reading = read(text + "num_generations: 4\nmax_prompt_length: 512\nmax_completion_length: 256\n")
    assert values(reading, "model", "task", "seq", "samples-per-prompt") == [None, "grpo", 768, 4]
    assert "model" in reading.inputs


def test_a_base_that_is_not_here_leaves_the_defaults_open() -> None:
    reading = read(NESTED.replace("training:\n", "training:\n  extends: DEFAULT_SFT\n"))
    assert values(reading, "micro-batch", "optimizer") == [4, None]
    assert any("was not found" in one.why for one in reading.not_modelled)


def test_keys_of_the_same_name_in_two_blocks_are_both_kept() -> None:
    reading = read(NESTED.replace("  bf16: true", "  bf16: true\n  extra: 1").replace("lora: {", "lora: {extra: 2, "))
    assert {one.key for one in reading.not_modelled} == {"training.extra", "lora.extra"}


@pytest.mark.parametrize("odd", ["5", "[1, {a: b}]", "null", "text"])
def test_an_odd_environment_sets_nothing(odd: str) -> None:
    text = f"python train.py {ARGUMENTS.replace('$MODEL', 'gpt2')} --bf16"
    assert read(f"type: task\nenv: {odd}\ncommands: ['{text}']\n").value_of("micro-batch") == 2

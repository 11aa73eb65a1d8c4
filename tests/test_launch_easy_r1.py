"""EasyR1's YAML and the launch lines that override it; peft's own example of fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

BASE = """data: {max_prompt_length: 1024, max_response_length: 3072, rollout_batch_size: 512}
algorithm: {adv_estimator: grpo, disable_kl: true}
worker:
  actor:
    global_batch_size: 128
    micro_batch_size_per_device_for_update: 4
    dynamic_batching: false
    padding_free: true
    model: {model_path: Qwen/Qwen2.5-7B-Instruct, lora: {rank: 0, target_modules: all-linear}}
    fsdp: {enable_full_shard: true, torch_dtype: bf16}
    offload: {offload_params: true, offload_optimizer: true}
  rollout: {n: 5, tensor_parallel_size: 2, gpu_memory_utilization: 0.7}
trainer: {nnodes: 2, n_gpus_per_node: 8, total_epochs: 15}
"""
LINE = """#!/bin/bash
python3 -m verl.trainer.main config=examples/config.yaml worker.actor.model.model_path=Qwen/Qwen3-8B \\
  worker.actor.model.lora.rank=32 data.max_response_length=7168 trainer.nnodes=1
"""


def values(reading: Reading) -> dict[str, Any]:
    return {name: one.value for name, one in reading.inputs.items()}


def test_a_file_states_prompts_of_an_update() -> None:
    found = values(reading_of(source_of(BASE, "file")))
    expected = {
        "model": "qwen2.5-7b",
        "task": "grpo",
        "gpus": 16,
        "zero": 3,
        "offload": "optimizer,parameters",
        "micro-batch": 4,
        "global-batch": 128,
        "updates": 4,
        "samples-per-prompt": 5,
        "seq": 4096,
        "epochs": 15,
        "precision": "bf16-pure",
        "rollout": "colocated:0.7",
        "rollout-tp": 2,
        "reference": "none",
        "padding": False,
        "recompute": "full",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "adapter" not in found


def test_a_line_overrides_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "config.yaml").write_text(BASE, encoding="utf-8")
    script = tmp_path / "examples" / "run.sh"
    script.write_text(LINE, encoding="utf-8")
    found = values(read_launch(str(script)))
    expected = {"model": "qwen3-8b", "gpus": 8, "seq": 8192, "lora-rank": 32, "micro-batch": 4, "samples-per-prompt": 5}
    assert {name: found.get(name) for name in expected} == expected


def test_without_that_file_the_line_leaves_open_what_is_in_it() -> None:
    found = values(reading_of(source_of(LINE, "run.sh")))
    assert {found[name] for name in ("micro-batch", "global-batch", "samples-per-prompt", "task")} == {None}


def test_a_dynamic_batch_counts_tokens() -> None:
    text = BASE.replace("dynamic_batching: false", "dynamic_batching: true")
    assert values(reading_of(source_of(text, "file")))["micro-batch"] is None


def test_switches_of_pefts_example() -> None:
    """examples/sft/train.py has names of its own for 4 bits, for adapters and for unsloth."""
    line = (
        "python train.py --model_name_or_path mistralai/Mistral-7B-v0.1 --max_length 2048 --packing True --bf16 True "
        "--per_device_train_batch_size 8 --lora_r 8 --lora_target_modules all-linear {more}\n"
    )
    found = values(
        reading_of(
            source_of(
                line.format(more="--use_peft_lora True --use_4bit_quantization True --use_nested_quant True"), "a.sh"
            )
        )
    )
    assert (found["adapter"], found["quantized"]) == ("lora", "nf4-dq")
    unsloth = values(reading_of(source_of(line.format(more="--use_peft_lora True --use_unsloth True"), "a.sh")))
    assert unsloth["trainer"] == "unsloth"
    whole = values(reading_of(source_of(line.format(more="--use_peft_lora False"), "a.sh")))
    assert "adapter" not in whole


def test_a_frozen_language_model_is_refused() -> None:
    line = (
        "deepspeed src/train.py --model_id Qwen/Qwen2.5-VL-3B-Instruct --bf16 True --per_device_train_batch_size 1 "
        "--num_train_epochs 1 --freeze_llm {frozen} --lora_enable {lora} --lora_rank 8\n"
    )
    refused = reading_of(source_of(line.format(frozen="True", lora="False"), "a.sh")).refused
    assert [one.key for one in refused] == ["--freeze_llm"]
    for frozen, lora in (("False", "False"), ("True", "True")):
        assert not reading_of(source_of(line.format(frozen=frozen, lora=lora), "a.sh")).refused


def test_llavas_switches() -> None:
    """Its train.py has adapters of rank 64 on all linear layers, and 4 bits with double quantization."""
    line = (
        "deepspeed llava/train/train_mem.py --model_name_or_path lmsys/vicuna-7b-v1.5 --bf16 True "
        "--model_max_length 2048 --per_device_train_batch_size 16 --num_train_epochs 1 {more}\n"
    )
    found = values(reading_of(source_of(line.format(more="--lora_enable True --bits 4"), "a.sh")))
    assert (found["adapter"], found["lora-rank"], found["lora-targets"], found["quantized"]) == (
        "lora",
        64,
        "all",
        "nf4-dq",
    )
    assert "adapter" not in values(reading_of(source_of(line.format(more=""), "a.sh")))

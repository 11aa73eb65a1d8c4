"""What a line states under a program's own names, or in files that are not here, is read, asked or said."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.commands.command import find
from napkin.commands.launchfile import options_of_launch
from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

LINE = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --num_train_epochs 1 "


def line(more: str) -> Reading:
    return reading_of(source_of(f"{LINE}{more}\n", "run.sh"))


def test_deepspeeds_own_option_names_its_file(tmp_path: Path) -> None:
    """deepspeed.add_config_arguments: --deepspeed_config; without the file, nothing that it sets has a default."""
    reading = line("--batch_size 4 --gradient_accumulation_steps 2 --deepspeed_config ds.json")
    assert [reading.value_of(one) for one in ("zero", "offload", "precision")] == [None, None, None]
    (tmp_path / "run.sh").write_text(
        f"{LINE}--batch_size 4 --gradient_accumulation_steps 2 --deepspeed_config ds.json\n"
    )
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    assert read_launch(str(tmp_path / "run.sh")).value_of("zero") == 2


@pytest.mark.parametrize("name", ["activation_checkpointing", "use_gradient_checkpointing"])
def test_recomputation_under_other_names(name: str) -> None:
    assert line(f"--per_device_train_batch_size 4 --{name}").value_of("recompute") == "full"


def test_fsdps_file_of_training_arguments(tmp_path: Path) -> None:
    """TrainingArguments.fsdp_config is a block or the path of a JSON file."""
    more = "--per_device_train_batch_size 4 --bf16 --fsdp full_shard --fsdp_config fsdp.json\n"
    missing = line(more)
    assert (missing.value_of("zero"), missing.value_of("recompute")) == (3, None)
    assert any("fsdp.json was not found" in one.why for one in missing.not_modelled)
    (tmp_path / "run.sh").write_text(LINE + more)
    (tmp_path / "fsdp.json").write_text(
        '{"activation_checkpointing": true, "transformer_layer_cls_to_wrap": ["Block"]}'
    )
    assert read_launch(str(tmp_path / "run.sh")).value_of("recompute") == "full"


def test_defaults_of_qlora_py() -> None:
    """artidoro/qlora qlora.py: optim paged_adamw_32bit, gradient_checkpointing True."""
    reading = line("--bits 4 --double_quant --lora_r 64 --source_max_len 16 --target_max_len 512")
    assert [reading.value_of(one) for one in ("optimizer", "recompute", "seq")] == ["paged-adamw", "full", 528]


@pytest.mark.parametrize("more", ["--per_device_max_tokens 65536", "--max_context_len 4096", "--ctx_length 4096"])
def test_a_length_of_its_own_is_asked(more: str) -> None:
    reading = line(f"--per_device_train_batch_size 1 {more}")
    assert "seq" in reading.inputs
    assert reading.value_of("seq") is None


def test_a_launchers_file_that_is_not_here_may_start_deepspeed() -> None:
    text = LINE.replace("torchrun --nproc_per_node 8", "accelerate launch --config_file acc.yaml")
    reading = reading_of(source_of(f"{text}--per_device_train_batch_size 1 --bf16\n", "run.sh"))
    assert reading.inputs["precision"].origin == "assumed"


def test_a_jobs_file_with_the_launchers_options() -> None:
    """foundation-model-stack/fms-hf-tuning build/accelerate_launch.py."""
    text = """{"accelerate_launch_args": {"use_fsdp": true, "fsdp_sharding_strategy": 2, "num_processes": 4},
    "model_name_or_path": "bigscience/bloom-560m", "per_device_train_batch_size": 4, "num_train_epochs": 1}"""
    reading = reading_of(source_of(text, "job.json"))
    assert [reading.value_of(one) for one in ("gpus", "zero", "framework")] == [4, 2, "fsdp"]


def test_llama_factorys_old_switch_of_flash_attention() -> None:
    text = "torchrun --nproc_per_node 8 src/train.py --stage sft --finetuning_type full --model_name_or_path "
    reading = reading_of(source_of(f"{text}Qwen/Qwen2.5-7B --flash_attn --cutoff_len 1024\n", "run.sh"))
    assert (reading.value_of("attention"), reading.value_of("seq")) == ("flash", 1024)


def test_nemos_gradients_are_of_the_type_that_is_reduced() -> None:
    """NVIDIA/NeMo megatron_gpt_model.py: grad_reduce_in_fp32 = (grad_sync_dtype == 'fp32')."""
    text = """trainer: {devices: 8, num_nodes: 1, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 8
  tensor_model_parallel_size: 1
  megatron_amp_O2: true
  optim: {name: mcore_distributed_optim, grad_sync_dtype: SYNC}
"""
    for sync in ("bf16", "fp32"):
        reading = reading_of(source_of(text.replace("SYNC", sync), "gpt.yaml"))
        assert f"grad={sync}" in str(reading.value_of("precision"))


def test_a_models_folder_that_is_not_here_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{LINE.replace('Qwen/Qwen2.5-7B', '/data/models/mine')}--bf16\n")
    with pytest.raises(NapkinError, match=r"run\.sh:1: --model_name_or_path: names the model .*not here"):
        options_of_launch([str(tmp_path / "run.sh")], find("memory"), {})


def test_a_batch_of_one_gpu_wins_over_a_batch_of_all() -> None:
    reading = line("--gradient_accumulation_steps 2 --train_batch_size 128 --train_batch_size_per_device 2")
    assert reading.value_of("micro-batch") == 2


def test_gpus_and_stage_under_own_names_are_assumed() -> None:
    text = "python train.py --gpus 4 --zero-stage 2 --model_name_or_path gpt2 --per_device_train_batch_size 2"
    reading = reading_of(source_of(text, "run.sh"))
    for option, value in (("gpus", 4), ("zero", 2)):
        assert (reading.value_of(option), reading.inputs[option].origin) == (value, "assumed")
    several = reading_of(source_of(text.replace("--gpus 4", "--gpus 0,1"), "run.sh"))
    assert several.value_of("gpus") is None


@pytest.mark.parametrize(
    "more",
    [
        "--model_name_or_path ISTA-DASLab/Meta-Llama-3-8B-Instruct-AQLM-2Bit-1x16 --use_lora --lora_r 8 --bf16",
        "--model_name_or_path Qwen/Qwen-7B-Chat --use_lora --q_lora --fp16 --deepspeed ds.json",
    ],
)
def test_an_unknown_format_of_frozen_weights_leaves_the_precision_open(more: str) -> None:
    text = f"torchrun --nproc_per_node 1 train.py --per_device_train_batch_size 1 {more}"
    reading = reading_of(source_of(text, "run.sh"))
    assert (reading.value_of("quantized"), reading.value_of("precision")) == (None, None)


def test_verl_before_2025_had_another_degree_by_default() -> None:
    """trainer/config/ppo_megatron_trainer.yaml: tensor_model_parallel_size 4 then, 1 later."""
    text = """python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer trainer.n_gpus_per_node=8 \\
  actor_rollout_ref.model.path=deepseek-ai/deepseek-llm-7b-chat data.max_prompt_length=128 \\
  data.max_response_length=128 actor_rollout_ref.actor.ppo_MICRO
"""
    older = reading_of(source_of(text.replace("MICRO", "micro_batch_size=16"), "run.sh"))
    assert (older.value_of("tp"), older.value_of("micro-batch")) == (None, None)
    newer = reading_of(source_of(text.replace("MICRO", "micro_batch_size_per_gpu=2"), "run.sh"))
    assert (newer.value_of("tp"), newer.inputs["tp"].origin) == (1, "default")
    assert newer.value_of("micro-batch") == 2


def test_beakers_tasks_are_the_lines_that_they_run() -> None:
    text = f"""version: v2
description: sft
tasks:
  - name: sft
    image: {{beaker: me/train}}
    command: ['/bin/sh', '-c']
    arguments: ['{LINE}--per_device_train_batch_size 8 --max_seq_length $LENGTH && python merge_lora.py --output x']
    envVars: [{{name: LENGTH, value: 512}}]
    resources: {{gpuCount: 8}}
"""
    reading = reading_of(source_of(text, "beaker.yaml"))
    assert [reading.value_of(one) for one in ("gpus", "micro-batch", "seq")] == [8, 8, 512]


def test_a_placeholder_of_dots_is_asked() -> None:
    reading = line("--per_device_train_batch_size ... --max_seq_length 512")
    assert (reading.value_of("micro-batch"), reading.value_of("seq")) == (None, 512)


def test_torchtunes_older_length_is_the_data_sets() -> None:
    text = """model: {_component_: torchtune.models.llama2.llama2_7b}
tokenizer: {_component_: torchtune.models.llama2.llama2_tokenizer, path: x}
dataset: {_component_: torchtune.datasets.alpaca_dataset, max_seq_len: 1024}
optimizer: {_component_: torch.optim.AdamW, lr: 1.0e-5}
batch_size: 2
dtype: bf16
"""
    assert reading_of(source_of(text, "full.yaml")).value_of("seq") == 1024


def test_an_encoder_decoder_has_two_sequences() -> None:
    text = "python train.py --model_name_or_path google/flan-t5-large --per_device_train_batch_size 8 --max_steps 9 "
    reading = reading_of(source_of(f"{text}--max_source_length 1024 --max_target_length 16\n", "run.sh"))
    assert (reading.value_of("seq"), reading.value_of("target-seq")) == (1024, 16)
    decoder = reading_of(
        source_of(
            f"{text}--max_source_length 1024 --max_target_length 16\n".replace("google/flan-t5-large", "gpt2"), "run.sh"
        )
    )
    assert (decoder.value_of("seq"), "target-seq" in decoder.inputs) == (1040, False)


@pytest.mark.parametrize("switch", ["--low_rank_training True", "--enable_lora True", "--do_peft"])
def test_a_switch_of_lora_of_its_own_is_asked(switch: str) -> None:
    reading = line(f"--per_device_train_batch_size 1 --bf16 {switch}")
    assert [reading.value_of(one) for one in ("adapter", "precision")] == [None, None]
    assert "adapter" in reading.inputs


def test_a_fork_of_openrlhf_is_read_by_its_options() -> None:
    text = """python -m mine.cli.train_ppo_naive --pretrain Qwen/Qwen2.5-7B --zero_stage 3 --train_batch_size 128 \\
  --micro_train_batch_size 4 --prompt_max_len 1024 --generate_max_len 3072 --bf16 --advantage_estimator group_norm
"""
    reading = reading_of(source_of(text, "run.sh"))
    assert [reading.value_of(one) for one in ("trainer", "task", "zero", "seq")] == ["openrlhf", "grpo", 3, 4096]
    assert any("is not OpenRLHF's own program" in one.why for one in reading.not_modelled)


@pytest.mark.parametrize(
    ("more", "adapter"), [("--peft_method lora", "lora"), ("--peft_method pissa", None), ("--peft_method none", "none")]
)
def test_the_method_in_one_word(more: str, adapter: str | None) -> None:
    reading = line(f"--per_device_train_batch_size 1 --bf16 {more}")
    assert (reading.value_of("adapter") or "none") == (adapter or "none")
    assert ("adapter" in reading.inputs) is (adapter != "none")


def test_the_model_under_a_programs_own_name() -> None:
    text = (
        "accelerate launch --num_processes 4 -m mine.train --base_model Qwen/Qwen2.5-7B --per_device_train_batch_size 1"
    )
    reading = reading_of(source_of(f"{text} --max_steps 9\n", "run.sh"))
    assert [reading.value_of(one) for one in ("model", "gpus")] == ["qwen2.5-7b", 4]


def test_a_fork_of_verls_sft_trainer() -> None:
    text = """torchrun --nproc_per_node=4 -m mine.trainer.fsdp_sft_trainer data.train_files=x data.max_length=2048 \\
  data.train_batch_size=64 data.micro_batch_size_per_gpu=4 model.partial_pretrain=Qwen/Qwen2.5-7B model.lora_rank=32
"""
    reading = reading_of(source_of(text, "run.sh"))
    assert [reading.value_of(one) for one in ("trainer", "task", "micro-batch", "lora-rank")] == ["verl", "sft", 4, 32]

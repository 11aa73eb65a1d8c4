"""Launch files of forks, older versions and wrappers: keys that only they have, and what their tasks train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator={task} trainer.n_gpus_per_node=8 trainer.nnodes=4 \\
  data.train_batch_size=512 actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B {more}
"""
OPENRLHF = "deepspeed --module openrlhf.cli.{program} --pretrain Qwen/Qwen2.5-7B --train_batch_size 128 {more}\n"
JOB = """name: a-run
compute: {gpus: 16}
image: mosaicml/llm-foundry:latest
command: composer train/train.py /mnt/config/parameters.yaml
parameters:
  variables: {length: 4096}
  max_seq_len: ${variables.length}
  model: {name: hf_causal_lm, pretrained_model_name_or_path: meta-llama/Llama-3.1-8B}
  train_loader: {name: finetuning}
  global_train_batch_size: 32
  device_train_microbatch_size: 2
  fsdp_config: {sharding_strategy: FULL_SHARD, activation_checkpointing: true}
"""
NEMO = """trainer: {devices: 8, precision: bf16%s}
model:
  micro_batch_size: 1
  global_batch_size: 64
  encoder_seq_length: ${subtract:4100,4}
  optim: {name: distributed_fused_adam}
"""
SIZES = """  tensor_model_parallel_size: 8
  pipeline_model_parallel_size: 4
  num_layers: 8
  hidden_size: 1024
  num_attention_heads: 16
"""


def reading(text: str) -> Reading:
    return reading_of(source_of(text, "file"))


def values(text: str) -> dict[str, Any]:
    return {name: one.value for name, one in reading(text).inputs.items()}


def test_forks_of_verl_count_the_samples_of_a_mini_batch() -> None:
    """Search-R1 and PRIME state the samples of a prompt under keys of their own; 512 × 4 samples are 8 × 256."""
    for key in ("actor_rollout_ref.rollout.n_agent", "data.n_samples"):
        found = values(VERL.format(task="grpo", more=f"{key}=4"))
        assert (found["samples-per-prompt"], found["global-batch"], found["updates"]) == (4, 64, 8)
    odd = values(VERL.format(task="grpo", more="actor_rollout_ref.rollout.n_agent=5"))
    assert (odd["samples-per-prompt"], odd["global-batch"]) == (5, None)
    own = values(VERL.format(task="grpo", more="actor_rollout_ref.rollout.n=5"))
    assert (own["samples-per-prompt"], own["global-batch"], own["updates"]) == (5, 256, 2)


def test_a_micro_batch_of_all_ranks_is_assumed_where_its_unit_changed() -> None:
    key = "actor_rollout_ref.actor.ppo_micro_batch_size=64"
    alone, several = (reading(VERL.format(task="gae", more=f"{key} actor_rollout_ref.rollout.n={n}")) for n in (1, 8))
    assert (alone.inputs["micro-batch"].value, alone.inputs["micro-batch"].origin) == (2, "derived")
    assert several.inputs["micro-batch"].origin == "assumed"
    tuned = "torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen2.5-7B "
    assert values(tuned + "data.micro_batch_size=32 data.max_length=512\n")["micro-batch"] == 8


@pytest.mark.parametrize("name", ["reinforce_plus_plus", "remax"])
def test_advantages_without_a_critic_are_as_rloo(name: str) -> None:
    assert values(VERL.format(task=name, more=""))["task"] == "rloo"
    line = OPENRLHF.format(program="train_ppo_ray", more="--advantage_estimator reinforce_baseline")
    assert values(line)["task"] == "rloo"
    assert values(OPENRLHF.format(program="train_ppo_ray", more=""))["task"] == "ppo"


def test_openrlhf_names_the_teacher_and_scores_steps_with_the_language_model() -> None:
    found = values(OPENRLHF.format(program="train_kd", more="--teacher_model Qwen/Qwen2.5-72B"))
    assert (found["task"], found["reference"]) == ("distill", "qwen2.5-72b")
    assert values(OPENRLHF.format(program="train_prm", more=""))["task"] == "sft"  # one sequence, no pairs


def test_teachers_of_other_trainers() -> None:
    tune = (
        "model: {_component_: torchtune.models.qwen2.qwen2_0_5b}\n"
        "teacher_model: {_component_: torchtune.models.qwen2.qwen2_1_5b}\nbatch_size: 8\n"
        "optimizer: {_component_: torch.optim.AdamW}\n"
        "loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}\n"
    )
    assert (values(tune)["task"], values(tune)["reference"]) == ("distill", "qwen2-1.5b")
    trl = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nteacher_model_name_or_path: Qwen/Qwen2.5-7B\nmax_length: 1024\n"
        "per_device_train_batch_size: 2\n"
    )
    assert (values(trl)["task"], values(trl)["reference"]) == ("gkd", "qwen2.5-7b")


def test_a_job_holds_the_training_yaml() -> None:
    found = values(JOB)
    expected = {"gpus": 16, "seq": 4096, "micro-batch": 2, "global-batch": 32, "zero": 3, "recompute": "full"}
    assert {name: found[name] for name in expected} == expected
    assert (found["model"], found["task"]) == ("llama3.1-8b", "sft")


def test_maxtext_shards_over_slices_too() -> None:
    text = "base_config: base.yml\nmodel_name: llama3.1-70b\nper_device_batch_size: 2\nmax_target_length: 8192\n"
    mesh = "dcn_data_parallelism: 4\ndcn_fsdp_parallelism: 8\nici_fsdp_parallelism: 8\n"
    found = values(text + mesh)
    assert (found["dp-shard"], found["gpus"], found["zero"]) == (64, 256, 3)
    rest = values(text + mesh.replace("dcn_fsdp_parallelism: 8", "dcn_fsdp_parallelism: -1"))
    assert rest["dp-shard"] is None
    assert "gpus" not in rest


def test_nemo_without_nodes_asks_where_one_node_does_not_hold_the_layout() -> None:
    found = values(NEMO % "" + SIZES)
    assert (found["gpus"], found["seq"]) == (None, 4096)
    small = reading(NEMO % "" + SIZES.replace("_size: 8", "_size: 2"))
    assert (small.inputs["gpus"].value, small.inputs["gpus"].origin) == (8, "default")


@pytest.mark.parametrize(
    ("block", "task"), [("dpo", "dpo"), ("rm", "rm"), ("ppo", "ppo"), ("reinforce", "rloo"), ("sft", "sft")]
)
def test_nemo_aligner_names_its_task_in_the_trainer(block: str, task: str) -> None:
    """Degrees that such a file leaves out are the checkpoint's."""
    found = values(NEMO % f", num_nodes: 8, {block}: {{max_epochs: 1}}")
    assert found["task"] == task
    assert "tp" not in found


def test_gpt_neox_tasks_and_its_older_gated_mlp() -> None:
    text = (
        '{"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 2048, "pos_emb": "rotary", '
        '"train_micro_batch_size_per_gpu": 4, %s}'
    )
    assert values(text % '"train_impl": "kto"')["task"] == "kto"
    assert values(text % '"train_impl": "reinforce"')["task"] == "rloo"
    assert "task" not in values(text % '"train_impl": "normal"')
    older = reading(text % '"mlp_type": "llama", "activation": "silu"').shape
    assert (older["gated"], older["ffn"]) == (True, 11008)  # 8/3 of 4,096, up to a multiple of 256


def test_nanotrons_older_expert_ranks_are_ranks_of_their_own() -> None:
    text = (
        "model: {model_config: {num_hidden_layers: 2, hidden_size: 64}}\n"
        "tokens: {micro_batch_size: 1, sequence_length: 64, train_steps: 5, batch_accumulation_per_replica: 1}\n"
        "parallelism: {dp: 2, tp: 2, pp: 1, expert_parallel_size: 4%s}\n"
    )
    assert values(text % "")["gpus"] == 16
    assert values(text % ", context_parallel_size: 1")["gpus"] == 4


def test_olmoes_experts_are_as_wide_as_its_mlp() -> None:
    text = (
        "model: {d_model: 2048, n_heads: 16, n_layers: 16, mlp_ratio: 1, activation_type: swiglu, moe_num_experts: 64, "
        "moe_top_k: 8, vocab_size: 50280}\ndevice_train_microbatch_size: 8\nglobal_train_batch_size: 1024\n"
    )
    found = reading(text).shape
    assert (found["experts"], found["top_k"], found["expert_ffn"]) == (64, 8, 1024)


def test_primus_names_a_models_format_next_to_it() -> None:
    overrides = "overrides: {training: {seq_len: 64}}"
    text = f"work_group: a\nmodules: {{pre_trainer: {{framework: torchtitan, model: %s, {overrides}}}}}\n"
    for name in ("llama3.1_70B-fp8.yaml", "llama3.1_70B.yaml", "llama3.1_70B-pretrain.yaml"):
        assert values(text % name)["model"] == "llama3.1-70b"


GRPO = """model_name_or_path: Qwen/Qwen3-0.6B
num_generations: 8
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
max_prompt_length: 512
max_completion_length: 1024
beta: 0.0
"""


@pytest.mark.parametrize(
    ("typed", "prompts"),
    [("--gpus 8", 16), ("--gpus 3", 6), ("--gpus 8 --tp 2 --framework fsdp", 8),
     ("--gpus 8 --samples-per-prompt 4", 32), ("--gpus 8 --global-batch 4", 4),
     ("--gpus 1 --samples-per-prompt 5", None)],
)  # fmt: skip
def test_prompts_of_a_step_follow_from_the_responses_of_a_gpu(
    tmp_path: Path, napkin: Napkin, typed: str, prompts: int | None
) -> None:
    """TRL's batch counts responses: 4 × 4 × GPUs of them are a step, each prompt has `num_generations`."""
    (tmp_path / "grpo.yaml").write_text(GRPO)
    answered = napkin(f"memory --from {tmp_path / 'grpo.yaml'} --hardware h200 --json {typed}")
    if prompts is None:
        assert (answered.status, "--global-batch is missing" in answered.err) == (2, True)
    else:
        assert answered.data["inputs"]["global-batch"]["value"] == prompts, answered.err


def test_a_program_that_is_not_the_trainers_own_is_named() -> None:
    line = OPENRLHF.replace("openrlhf.cli.{program}", "mine.train_sft").format(more="--zero_stage 3")
    line = line.replace("\n", " --micro_train_batch_size 8\n")
    found = reading_of(source_of(line, "run.sh")).not_modelled
    assert [one.key for one in found if "own program" in one.why] == ["mine.train_sft"]
    text = VERL.format(task="grpo", more="custom_reward_function.path=../grade.py")
    assert not [one for one in reading_of(source_of(text, "run.sh")).not_modelled if "own program" in one.why]

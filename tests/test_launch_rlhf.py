"""OpenRLHF's and verl's launch lines: defaults of each program, and batches of all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.syntax import source_of
from tests.conftest import run_line
from tests.test_launch import read

OPENRLHF = "python3 -m openrlhf.cli.{} --pretrain Qwen/Qwen3-8B --train_batch_size 64 {}\n"
VERL = """python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B data.max_prompt_length=512 \\
 data.max_response_length=512 actor_rollout_ref.actor.ppo_mini_batch_size=128 trainer.n_gpus_per_node=8 \\
 actor_rollout_ref.actor.ppo_micro_batch_size={} {}
"""


@pytest.mark.parametrize(
    ("program", "micro", "seq", "epochs"),
    [
        ("train_sft", 8, 2048, 2),
        ("train_dpo", 8, 512, 1),
        ("train_kto", 8, 2048, 1),
        ("train_rm", 1, 512, 1),
        ("train_ppo_ray", 4, 2048, 1),
    ],
)
def test_each_program_of_openrlhf_has_defaults_of_its_own(program: str, micro: int, seq: int, epochs: int) -> None:
    """The parsers of openrlhf/cli/train_*.py; PPO's 1,024 tokens of prompt and of answer."""
    options, _ = read(OPENRLHF.format(program, ""))
    assert [options[name] for name in ("micro-batch", "seq", "epochs")] == [micro, seq, epochs]


def test_ppo_counts_episodes_of_its_prompts() -> None:
    """max_epochs are passes over the samples of a step (openrlhf/trainer/ray/ppo_actor.py)."""
    options, reading = read(OPENRLHF.format("train_ppo_ray", "--max_epochs 2 --num_episodes 5 --generate_max_len 3072"))
    assert (options["epochs"], options["seq"]) == (5, 4096)
    assert "--max_epochs" in {one.key for one in reading.not_modelled}


@pytest.mark.parametrize(
    ("total", "more", "each"),
    [
        (64, "", 8),
        (64, "trainer.nnodes=2", 4),
        (64, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", 16),
        (64, "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4", 32),
        (4, "", None),
        (64, "trainer.nnodes=$NODES", None),
        (64, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", 2),
    ],
)
def test_verls_older_micro_batch_is_of_all_data_parallel_ranks(total: int, more: str, each: int | None) -> None:
    """verl/workers/fsdp_workers.py divides it by the ranks that see different samples."""
    assert read(VERL.format(total, more))[0]["micro-batch"] == each


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", None),
        ("param_offload=True optimizer_offload=True grad_offload=True", "optimizer,parameters"),
        ("optimizer_offload=True", "optimizer"),
        ("optimizer_offload=False grad_offload=True", None),
        ("param_offload=$ALL", None),
    ],
)
def test_what_verls_megatron_leaves_on_the_host_between_phases(more: str, expected: str | None) -> None:
    """verl/workers/engine/megatron/transformer_impl.py: parameters with their gradients, and the optimizer."""
    block = "actor_rollout_ref.actor.megatron"
    keys = " ".join(f"{block}.{one}" for one in ("tensor_model_parallel_size=2", *more.split()))
    assert read(VERL.format(64, keys))[0].get("offload") == expected


def test_fsdp2s_own_offload_in_verl_is_refused() -> None:
    """verl/trainer/config/engine/fsdp.yaml: param/grad/optimizer during train, which differs from optimizer_offload."""
    key = "actor_rollout_ref.actor.fsdp_config.offload_policy"
    assert [one.key for one in read(VERL.format(64, f"{key}=True"))[1].refused] == [key]
    assert not read(VERL.format(64, f"{key}=False"))[1].refused


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--vllm.num_engines 8 --train.colocate_all --ds.enable_sleep", "optimizer"),
        ("--vllm_num_engines 8 --colocate_all_models --deepspeed_enable_sleep", "optimizer"),
        ("--vllm.num_engines 8 --train.colocate_all", None),
        ("--vllm.num_engines 8 --ds.enable_sleep", None),
    ],
)
def test_openrlhf_moves_optimizer_states_between_phases(line: str, expected: str | None) -> None:
    """openrlhf/utils/deepspeed/deepspeed_utils.py, offload_deepspeed_states: not the 16-bit weights."""
    start = "python3 -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Meta-Llama-3-8B --actor_num_gpus_per_node 8"
    assert read(f"{start} {line}\n")[0].get("rollout-offload") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--vllm_mode colocate --offload_optimizer true --offload_model true", "optimizer,parameters"),
        ("--vllm_mode colocate --offload_model true", "parameters"),
        ("--vllm_mode colocate --offload_model false", None),
        ("--vllm_mode server --offload_model true", None),
    ],
)
def test_ms_swift_moves_states_while_a_colocated_engine_generates(line: str, expected: str | None) -> None:
    """docs/source_en/Instruction/Command-line-parameters.md: during inference with vLLM."""
    start = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --use_vllm true --tuner_type full"
    options, _ = read(f"{start} {line}\n")
    assert options.get("rollout-offload") == expected
    assert "offload" not in options


ROLL = """
pretrain: Qwen/Qwen3-8B
adv_estimator: grpo
response_length: 1024
{}
rollout_batch_size: 64
num_return_sequences_in_group: 8
actor_train:
  training_args: {{per_device_train_batch_size: 1, gradient_accumulation_steps: 64}}
  device_mapping: list(range(0,8))
"""


@pytest.mark.parametrize(
    ("more", "seq", "answers"),
    [
        ("", 2048, 1024),
        ("sequence_length: 16384", 16384, None),
        ("prompt_length: 2048\nsequence_length: 16384", 16384, 14336),
    ],
)
def test_rolls_sequence_length_wins_over_its_response_length(more: str, seq: int, answers: int | None) -> None:
    """roll/configs/base_config.py adds prompt and answer only where sequence_length is left out; rlvr_config.py lets
    answers have what the prompt leaves."""
    options, _ = read(ROLL.format(more))
    assert (options["seq"], options.get("max-response-tokens")) == (seq, answers)


GRPO_LINE = "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 16\nnum_generations: 16\nbf16: true\n"


def test_trls_prompts_are_as_long_in_both_readings() -> None:
    """512 tokens by default: the sequence and the longest prompt agree, so that an answer follows."""
    reading = reading_of(source_of(f"{GRPO_LINE}max_completion_length: 4096\n", "grpo.yaml"))
    assert (reading.value_of("seq"), reading.value_of("max-prompt-tokens")) == (4608, 512)


@pytest.mark.parametrize("key", ["vllm_mode: server", "vllm_server_base_url: http://host:8001", "vllm_mode: colocate"])
def test_a_server_that_generates_has_gpus_of_its_own(tmp_path: Path, key: str) -> None:
    """Their number is not in the file: memory asks for it."""
    path = tmp_path / "grpo.yaml"
    path.write_text(f"{GRPO_LINE}max_completion_length: 512\nuse_vllm: true\n{key}\n")
    line = f"memory --from {path} --gpus 8 --hardware h100"
    outcome = run_line(line)
    assert ("leaves --rollout open" in outcome.err) == (key != "vllm_mode: colocate")
    assert "leaves --rollout" not in run_line(f"{line} --rollout separate:2").err


def test_gradients_of_nemo_rls_megatron_are_as_wide_as_they_are_reduced() -> None:
    """NVIDIA-NeMo/RL nemo_rl/models/megatron/setup.py hands grad_reduce_in_fp32 to Megatron-core's buffers."""
    text = """
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 64
  max_total_sequence_length: 4096
  precision: bfloat16
  megatron_cfg:
    enabled: true
    optimizer: {use_precision_aware_optimizer: true}
    distributed_data_parallel_config: {grad_reduce_in_fp32: %s}
sft: {max_num_steps: 10}
"""
    for wide, policy in (("false", "bf16-mixed"), ("true", "param=bf16,grad=fp32,compute=bf16,state=fp32,master=fp32")):
        reading = reading_of(source_of(text % wide, "sft.yaml"))
        assert reading.value_of("precision") == policy
        key = "policy.megatron_cfg.optimizer.use_precision_aware_optimizer"
        assert key in [one.key for one in reading.not_modelled]


def test_trajectories_of_rolls_agents_come_in_groups() -> None:
    """alibaba/ROLL agentic_config.py: rollout_batch_size counts trajectories, a multiple of group_size.

    64 accumulated on each of 16 / (2 · 2) = 4 ranks are 256 trajectories, 32 groups of 8; a step of 512 updates twice.
    """
    text = """
adv_estimator: grpo
pretrain: Qwen/Qwen2.5-7B-Instruct
rollout_batch_size: 512
sequence_length: 8192
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 64}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 2, context_parallel_size: 2}
  device_mapping: list(range(0,16))
actor_infer:
  generating_args: {num_return_sequences: 1}
  device_mapping: list(range(0,16))
train_env_manager: {group_size: 8, num_env_groups: 64}
"""
    reading = reading_of(source_of(text, "agentic.yaml"))
    assert [reading.value_of(one) for one in ("samples-per-prompt", "global-batch", "updates")] == [8, 32, 2]


def test_a_shard_group_of_more_ranks_than_there_are_is_all_of_them() -> None:
    """verl/utils/fsdp_utils.py: create_device_mesh has one dimension when fsdp_size is at least the world size."""
    size = "actor_rollout_ref.actor.fsdp_config.fsdp_size="
    assert "dp-shard" not in read(VERL.format(64, f"{size}32"))[0]
    assert "dp-shard" not in read(VERL.format(64, f"{size}8"))[0]
    assert read(VERL.format(64, f"{size}4"))[0]["dp-shard"] == 4


def test_distillation_of_ms_swift_has_a_teacher() -> None:
    models = "--model Qwen/Qwen2.5-0.5B --teacher_model Qwen/Qwen2.5-7B-Instruct"
    options, reading = read(f"swift rlhf --rlhf_type gkd {models} --max_length 2048 --max_completion_length 512\n")
    assert (options["task"], options["reference"], options["seq"]) == ("gkd", "qwen2.5-7b", 2048)
    assert "--max_completion_length" in [one.key for one in reading.not_modelled]


def test_distillation_of_ms_swift_on_an_engine() -> None:
    """max_length holds the sample with its response; lmbda is the share of steps for which the engine generates."""
    models = "--model Qwen/Qwen2.5-0.5B --teacher_model Qwen/Qwen2.5-7B-Instruct"
    lengths = "--max_length 2048 --max_completion_length 512"
    engine = "--use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --lmbda 0.7"
    options, reading = read(f"swift rlhf --rlhf_type gkd {models} {lengths} {engine}\n")
    expected = {"seq": 2048, "max-prompt-tokens": 1536, "max-response-tokens": 512, "rollout": "colocated:0.4"}
    assert {name: options[name] for name in expected} == expected
    assert options["on-policy"] == 0.7
    assert not {"--lmbda", "--max_completion_length"} & {one.key for one in reading.not_modelled}


def test_a_program_with_ms_swifts_rlhf_options_is_its_fork() -> None:
    line = "torchrun --nproc_per_node=8 scripts/rlhf_ds.py --rlhf_type grpo --train_type full --model Qwen/Qwen2.5-7B"
    sizes = "--max_length 20480 --max_completion_length 10240 --num_generations 8 --deepspeed zero3"
    options, _ = read(f"{line} {sizes} --torch_dtype bfloat16\n")
    fork, _ = read("python $(where)/cli/sft.py --model Qwen/Qwen2.5-7B --tuner_type lora --max_length 2048\n")
    assert [fork[name] for name in ("trainer", "task", "adapter")] == ["ms-swift", "sft", "lora"]
    expected = {"trainer": "ms-swift", "task": "grpo", "gpus": 8, "seq": 30720, "zero": 3, "samples-per-prompt": 8}
    assert {name: options[name] for name in expected} == expected


def test_launchers_of_ms_swift_leave_their_files_open() -> None:
    line = "accelerate launch --config_file fsdp2.json swift/cli/sft.py --model Qwen/Qwen2.5-7B --max_length 2048"
    options, _ = read(f"{line}\n")
    assert (options["gpus"], options["zero"]) == (None, None)


def test_dapos_updates_are_of_the_prompts_that_it_keeps() -> None:
    """recipe/dapo/dapo_ray_trainer.py draws gen_batch_size prompts until train_batch_size are kept: 512 / 128 = 4."""
    sizes = "data.gen_batch_size=1536 data.train_batch_size=512 actor_rollout_ref.rollout.n=8 "
    kept = f"{sizes} algorithm.filter_groups.enable=True"
    assert read(VERL.format(64, kept))[0]["updates"] == 4
    assert read(VERL.format(64, sizes))[0]["updates"] == 12


def test_nemo_rls_ppo_has_a_critic_and_updates_in_each_pass() -> None:
    """64 prompts · 8 responses · 2 passes / 256 responses of an update are 4 updates of 32 prompts."""
    text = """
ppo: {num_prompts_per_step: 64, num_generations_per_prompt: 8, ppo_epochs: 2, max_num_epochs: 1}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 256
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
value: {model_name: Qwen/Qwen3-0.6B, train_micro_batch_size: 4}
cluster: {gpus_per_node: 8, num_nodes: 1}
"""
    reading = reading_of(source_of(text, "ppo.yaml"))
    options = {name: reading.value_of(name) for name in ("task", "critic", "global-batch", "updates")}
    assert options == {"task": "ppo", "critic": "qwen3-0.6b", "global-batch": 32, "updates": 4}


def test_a_reward_model_that_is_trained_too_is_refused() -> None:
    """recipe/prime: the process reward model is updated before or after the policy."""
    _, reading = read(VERL.format(64, "reward_model.model.update=before"))
    assert [one.key for one in reading.refused] == ["reward_model.model.update"]
    assert not read(VERL.format(64, "reward_model.model.update=none"))[1].refused


def test_distillation_of_nemo_rl_has_a_teacher_and_an_engine() -> None:
    """examples/configs/distillation_math.yaml: 128 prompts of one response, trained on in two updates of 64."""
    text = (
        "distillation: {num_prompts_per_step: 128, num_generations_per_prompt: 1}\n"
        "policy:\n  model_name: Qwen/Qwen3-1.7B-Base\n  train_global_batch_size: 64\n  train_micro_batch_size: 1\n"
        "  max_total_sequence_length: 8192\n  generation:\n    vllm_cfg: {gpu_memory_utilization: 0.6}\n"
        "teacher: {model_name: Qwen/Qwen3-4B}\ncluster: {gpus_per_node: 8, num_nodes: 1}\n"
    )
    options = reading_of(source_of(text, "distillation.yaml")).inputs
    expected = {
        "task": "distill",
        "reference": "qwen3-4b",
        "rollout": "colocated:0.6",
        "global-batch": 64,
        "updates": 2,
    }
    assert {name: options[name].value for name in expected} == expected


def test_on_policy_distillation_of_nemo_rl_is_no_grpo() -> None:
    """nemo_rl/algorithms/grpo.py: the estimator "opd" takes the teachers' log-probabilities."""
    text = "grpo:\n  adv_estimator: {name: opd}\npolicy: {model_name: Qwen/Qwen3-8B, train_global_batch_size: 8}\n"
    reading = reading_of(source_of(text, "opd.yaml"))
    assert reading.inputs["task"].value is None
    assert [one.key for one in reading.refused] == ["grpo.adv_estimator.name"]


@pytest.mark.parametrize(
    ("line", "padded"),
    [
        (VERL.format(64, "actor_rollout_ref.model.use_remove_padding=False"), True),
        (VERL.format(64, "actor_rollout_ref.model.use_remove_padding=True"), False),
        (VERL.format(64, ""), None),
        (OPENRLHF.format("train_ppo_ray", "--packing_samples"), False),
        (OPENRLHF.format("train_ppo_ray", ""), None),
    ],
)
def test_a_line_says_whether_sequences_are_padded(line: str, padded: bool | None) -> None:
    options, reading = read(line)
    assert options.get("padding") is padded
    assert not any("padding" in one.key or "packing" in one.key for one in reading.not_modelled)


@pytest.mark.parametrize(
    ("line", "eager"),
    [
        (VERL.format(64, "actor_rollout_ref.rollout.enforce_eager=True"), True),
        (VERL.format(64, "actor_rollout_ref.rollout.enforce_eager=False"), False),
        (VERL.format(64, ""), None),
        (OPENRLHF.format("train_ppo_ray", "--vllm.enforce_eager"), True),
        (ROLL.format("actor_infer: {strategy_args: {strategy_config: {enforce_eager: true}}}"), True),
        (ROLL.format("actor_infer: {strategy_args: {strategy_config: {disable_cuda_graph: true}}}"), True),
    ],
)
def test_a_line_says_whether_the_engine_captures_graphs(line: str, eager: bool | None) -> None:
    options, reading = read(line)
    assert options.get("rollout-eager") is eager
    assert not any("eager" in one.key for one in reading.not_modelled)


@pytest.mark.parametrize(
    ("more", "micro"),
    [
        ("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32", 32),
        ("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=$N", None),
        ("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 "
         "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_line_says_how_many_sequences_a_pass_without_gradients_runs(more: str, micro: int | None) -> None:
    """Sequences unless it packs tokens (verl/workers/config/rollout.py)."""
    options, _ = read(VERL.format(64, more))
    assert options.get("logprob-micro-batch") == micro


@pytest.mark.parametrize(
    ("more", "tokens"), [("", 16384), ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096", 4096)]
)
def test_a_dynamic_batch_packs_tokens(tmp_path: Path, more: str, tokens: int) -> None:
    """verl trainer/config/actor/actor.yaml: use_dynamic_bsz packs ppo_max_token_len_per_gpu tokens, 16,384 by default.
    On the command line --micro-batch wins."""
    text = VERL.format(64, f"actor_rollout_ref.actor.use_dynamic_bsz=True trainer.n_gpus_per_node=8 {more}")
    options, _ = read(text)
    assert (options["micro-batch"], options["micro-batch-tokens"]) == (None, tokens)
    file = tmp_path / "run.sh"
    file.write_text(text)
    line = f"step --from {file} --hardware h100 --response-tokens 200 --rollout colocated:0.5 --recompute full"
    packed, typed, stated = (
        run_line(f"{line} {also} --json").data["inputs"]
        for also in ("", "--micro-batch 2", f"--micro-batch-tokens {2 * tokens}")
    )
    assert packed["micro-batch-tokens"]["value"] == tokens
    assert typed["micro-batch"]["value"] == 2
    assert "micro-batch-tokens" not in typed
    assert stated["micro-batch"]["value"] >= packed["micro-batch"]["value"]


def test_ranks_that_exchange_heads_are_no_ring(tmp_path: Path) -> None:
    """verl's FSDP has Ulysses ranks alone (engine/fsdp.yaml)."""
    file = tmp_path / "run.sh"
    more = "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 trainer.n_gpus_per_node=8"
    file.write_text(VERL.format(64, f"{more} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"))
    found = run_line(f"step --from {file} --hardware h100 --response-tokens 200 --rollout colocated:0.5 --json")
    assert {name: found.data["inputs"][name]["value"] for name in ("cp", "ulysses", "dp")} == {
        "cp": 4,
        "ulysses": 4,
        "dp": 2,
    }


def test_verl_trains_on_no_more_prompts_than_it_draws() -> None:
    """dp_actor.py splits the step's batch: one update; since July 2025 workers/config/actor.py refuses the file."""
    options, reading = read(VERL.format(8, "data.train_batch_size=64"))
    assert options["global-batch"] == 64
    assert "actor_rollout_ref.actor.ppo_mini_batch_size" in [one.key for one in reading.not_modelled]
    assert read(VERL.format(8, "data.train_batch_size=256"))[0]["global-batch"] == 128
    assert read(VERL.format(8, "data.train_batch_size=0"))[0]["global-batch"] == 128  # fully_async_policy: no effect


def test_a_null_estimator_of_verl_is_no_default() -> None:
    """recipe/sppo states null: its program computes no advantages."""
    assert read(VERL.format(8, "algorithm.adv_estimator=null"))[0]["task"] is None
    assert read(VERL.format(8, ""))[0]["task"] == "ppo"


def test_verl_of_neither_time_leaves_recomputation_open() -> None:
    """verl 9fca71d2c (January 2025) recomputes by default; micro-batches of a GPU came at the same time."""
    line = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-3B "
    for key, value in (("ppo_micro_batch_size", None), ("ppo_micro_batch_size_per_gpu", "full")):
        found = reading_of(source_of(f"{line}actor_rollout_ref.actor.{key}=8\n", "run.sh"))
        assert found.value_of("recompute") == value


def test_a_fork_s_own_settings_of_the_data_are_told() -> None:
    """A batch of another size than data.train_batch_size, as GRESO's train-scripts have it."""
    line = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=32 data.seed=1 "
        "data.prompt_key=prompt +data.real_train_batch_size=128 +data.dynamic_filtering=True "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    found = reading_of(source_of(line, "train.sh"))
    told = {one.key for one in found.not_modelled}
    assert {"data.real_train_batch_size", "data.dynamic_filtering"} <= told
    assert not {"data.seed", "data.prompt_key"} & told

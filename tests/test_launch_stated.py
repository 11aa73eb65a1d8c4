"""What a file states is read, or left open: no default takes its place."""

from __future__ import annotations

import pytest

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from napkin.inputs.launch.tables import Tables

ACTOR = "actor_rollout_ref.actor"
VERL = f"""python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 {ACTOR}.ppo_mini_batch_size=32 actor_rollout_ref.rollout.n=8 {{}}
"""
MEGATRON = f"{ACTOR}.strategy=megatron {ACTOR}.megatron.tensor_model_parallel_size=4 "


def verl(more: str) -> Reading:
    return reading_of(source_of(VERL.format(more), "run.sh"))


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        (f"{MEGATRON}{ACTOR}.megatron.sequence_parallel=False", "sp", False),
        (MEGATRON, "sp", True),
        (f"{MEGATRON}{ACTOR}.megatron.use_distributed_optimizer=False", "zero", 0),
        (MEGATRON, "zero", 1),
        (f"{MEGATRON}{ACTOR}.megatron.dtype=float16", "precision", "fp16-mixed"),
        (f"{ACTOR}.fsdp_config.dtype=float16", "precision", "param=fp32,grad=fp32,compute=fp16,state=fp32"),
        (
            f"{ACTOR}.optim.optimizer=AdamW8bit {ACTOR}.optim.optimizer_impl=bitsandbytes.optim",
            "optimizer",
            "adamw-8bit",
        ),
        (f"{ACTOR}.optim.optimizer=SGD", "optimizer", "sgd"),
        ("", "optimizer", "adamw"),
    ],
)
def test_verls_actor(more: str, option: str, value: object) -> None:
    assert verl(more).value_of(option) == value


def test_verls_optimizer_on_the_cpu_is_not_called_irrelevant() -> None:
    key = f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"
    told = verl(f"{MEGATRON}+{key}=True {ACTOR}.optim.lr=1e-6")
    assert key in [one.key for one in told.not_modelled]
    assert f"{ACTOR}.optim.lr" in told.ignored


def test_verl_without_its_hybrid_engine_generates_on_gpus_of_their_own() -> None:
    """verl/experimental/{fully_async_policy,one_step_off_policy}: rollout's pool comes on top of trainer's."""
    apart = "actor_rollout_ref.hybrid_engine=False actor_rollout_ref.rollout.gpu_memory_utilization=0.8 {}"
    pool = "rollout.nnodes=3 rollout.n_gpus_per_node=8 async_training.require_batches=4 rollout.total_rollout_steps=512"
    read = verl(apart.format(pool))
    assert (read.value_of("rollout"), read.value_of("gpus")) == ("separate:24", 16 + 24)
    assert (read.value_of("updates"), read.value_of("samples"), read.value_of("off-policy-steps")) == (4, 512, 1)
    usual = verl(apart.format("rollout.nnodes=2"))  # of 8 GPUs each
    assert (usual.value_of("rollout"), usual.value_of("gpus")) == ("separate:16", 32)
    for unknown in ("", "rollout.nnodes=$NODES"):
        asked = verl(apart.format(unknown))
        assert asked.inputs["rollout"].value is None
        assert asked.inputs["gpus"].value is None
    assert verl("actor_rollout_ref.rollout.gpu_memory_utilization=0.8").value_of("rollout") == "colocated:0.8"


def test_a_default_does_not_replace_a_key_that_no_rule_has_read() -> None:
    source = source_of("dropout: 0.5\nwidth: 8\n", "own.yaml")
    reading = Reading(source, Tables("own", "own", "", {}, {}, frozenset()))
    reading.default("dropout", 0.1, "dropout")
    assert reading.inputs["dropout"].value is None
    source.get("width")  # a rule has looked at it
    reading.default("hidden", 16, "width")
    reading.default("layers", 2, "depth")
    assert (reading.value_of("hidden"), reading.value_of("layers")) == (16, 2)


ROLL = """adv_estimator: grpo
pretrain: Qwen/Qwen2.5-7B
actor_train:
  training_args: {optim: adamw_8bit}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
"""


def test_rolls_optimizer() -> None:
    assert reading_of(source_of(ROLL, "rlvr.yaml")).value_of("optimizer") == "adamw-8bit"
    usual = ROLL.replace("optim: adamw_8bit", "learning_rate: 1.0e-6")
    assert reading_of(source_of(usual, "rlvr.yaml")).value_of("optimizer") == "adamw"


LINGUA = """name: small
steps: 100
optim: {lr: 3e-3}
distributed: {fsdp_type: full_shard, compile: true, model_dtype: bf16}
{}model: {dim: 2048, n_layers: 25, n_heads: 16}
data: {batch_size: 4, seq_len: 4096}
"""


@pytest.mark.parametrize("kind", ["", "model_type: minGRU\n"])
def test_a_block_of_sizes_does_not_make_a_trainers_file_a_description_of_a_model(kind: str) -> None:
    with pytest.raises(Refused, match="Lingua's configuration"):
        reading_of(source_of(LINGUA.replace("{}", kind), "gru.yaml"))


def test_a_wrapped_block_has_the_same_format_inside_and_out() -> None:
    with pytest.raises(NapkinError, match="no format that napkin knows"):
        reading_of(source_of("model_type: own\nmodel: {dim: 64, n_layers: 2, n_heads: 4}\n", "own.yaml"))


def test_torchtitans_registry_sets_what_a_line_in_tokens_omits() -> None:
    line = "MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --parallelism.tensor_parallel_degree=2 --training.steps 20 {}"
    with pytest.raises(Refused, match="names a function that makes its configuration"):
        reading_of(source_of(line.format("--training.num_tokens_per_microbatch_per_dp_rank 8192"), "run.sh"))

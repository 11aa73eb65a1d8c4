"""SkyRL's, prime-rl's and AReaL's configurations, with the defaults of their own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

SKYRL = """: "${{NUM_GPUS:=4}}"
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \\
  trainer.algorithm.advantage_estimator=grpo trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct \\
  trainer.placement.policy_num_gpus_per_node=$NUM_GPUS trainer.placement.policy_num_nodes=2 \\
  trainer.train_batch_size=1024 trainer.policy_mini_batch_size=256 trainer.micro_train_batch_size_per_gpu=8 \\
  trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1024 \\
  generator.n_samples_per_prompt=5 {more}
"""


def skyrl(more: str = "") -> Reading:
    return reading_of(source_of(SKYRL.format(more=more), "run.sh"))


def values(reading: Reading, *names: str) -> list[Any]:
    return [reading.value_of(name) for name in names]


def test_skyrl_counts_prompts_and_shares_its_gpus() -> None:
    """config.py: policy_mini_batch_size counts prompts; train_batch_size / policy_mini_batch_size updates a step."""
    found = skyrl()
    assert found.format.name == "skyrl"
    wanted = {
        "model": "qwen2.5-1.5b", "task": "grpo", "gpus": 8, "framework": "fsdp", "zero": 3, "precision": "amp-bf16",
        "micro-batch": 8, "global-batch": 256, "updates": 4, "samples-per-prompt": 5, "seq": 512 + 1024,
        "recompute": "full", "rollout": "colocated:0.8", "rollout-offload": "optimizer,parameters",
        "reference": "same", "optimizer": "adamw", "padding": False,
    }  # fmt: skip
    assert {name: found.value_of(name) for name in wanted} == wanted
    assert found.inputs["gpus"].origin == "default"  # NUM_GPUS of the environment


def test_skyrls_engines_apart_come_on_top() -> None:
    apart = "trainer.placement.colocate_all=false generator.inference_engine.num_engines=3 "
    wide = skyrl(apart + "generator.inference_engine.tensor_parallel_size=2")
    assert values(wide, "gpus", "rollout", "rollout-tp") == [8 + 3 * 2, "separate:6", 2]
    older = (
        "trainer.placement.colocate_all=false generator.num_inference_engines=4 generator.gpu_memory_utilization=0.7"
    )
    assert values(skyrl(older), "gpus", "rollout") == [12, "separate:4"]
    own = apart + "trainer.placement.colocate_policy_ref=false trainer.placement.ref_num_gpus_per_node=2"
    assert values(skyrl(own), "gpus") == [8 + 3 + 2]


def test_skyrls_megatron() -> None:
    """config.py: full recomputation in DEFAULT_TRANSFORMER_CONFIG_KWARGS, sequence parallelism with tp."""
    m = "trainer.policy.megatron_config"
    found = skyrl(f"trainer.strategy=megatron {m}.tensor_model_parallel_size=2 {m}.pipeline_model_parallel_size=2")
    assert values(found, "framework", "tp", "pp", "sp", "zero", "recompute") == ["megatron-core", 2, 2, True, 1, "full"]
    part = f"trainer.strategy=megatron {m}.transformer_config_kwargs.recompute_granularity=selective"
    assert values(skyrl(part), "recompute") == ["selective"]
    assert values(skyrl("trainer.strategy=megatron trainer.gradient_checkpointing=false"), "recompute") == ["none"]
    many = skyrl(f"trainer.strategy=megatron {m}.tensor_model_parallel_size=16")
    assert [one.why for one in many.refused] == ["8 GPUs, but tp 16 needs 16"]


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("trainer.policy.model.lora.rank=32", "lora-rank", 32),
        ("trainer.policy.model.lora.rank=32", "reference", "adapters-off"),
        ("trainer.policy.model.lora.rank=0", "adapter", None),
        ("trainer.algorithm.use_kl_loss=false", "reference", "none"),
        ("trainer.algorithm.advantage_estimator=gae", "task", "ppo"),
        ("trainer.algorithm.advantage_estimator=reinforce++", "task", "rloo"),
        ("trainer.policy.sequence_parallel_size=4", "cp", 4),
        ("trainer.policy.fsdp_config.reshard_after_forward=false", "zero", 2),
        ("trainer.policy.fsdp_config.cpu_offload=true", "offload", "optimizer,parameters"),
        ("trainer.max_tokens_per_microbatch=8192", "micro-batch", None),
        ("generator.max_turns=4 generator.max_input_length=8192", "seq", 8192 + 1024),
        ("trainer.fully_async.enabled=true", "off-policy-steps", 4),
    ],
)
def test_a_key_of_skyrl(more: str, option: str, value: object) -> None:
    assert skyrl(more).value_of(option) == value


PRIME = """max_steps = 200
seq_len = 8192
[deployment]
num_train_gpus = 2
num_infer_gpus = 6
[model]
name = "Qwen/Qwen3-1.7B"
[orchestrator]
batch_size = 512
group_size = 16
[orchestrator.train.sampling]
max_completion_tokens = 1024
[trainer.model]
{more}
[inference.vllm]
tensor_parallel_size = 2
"""
OLDER = """inference_gpu_ids = [0, 1]
trainer_gpu_ids = [2, 3]
[model]
name = "Qwen/Qwen3-4B-Instruct-2507"
[trainer.model.experimental.lora]
rank = 8
[orchestrator]
batch_size = 512
rollouts_per_example = 16
seq_len = 4096
[orchestrator.sampling]
max_tokens = 512
"""


def toml(text: str) -> Reading:
    return reading_of(source_of(text, "rl.toml"))


def test_prime_rl_counts_samples_and_adds_the_engines_gpus() -> None:
    """orchestrator.py: batch_size samples a step, group_size of each prompt."""
    found = toml(PRIME.format(more=""))
    wanted = {
        "model": "qwen3-1.7b", "task": "grpo", "gpus": 2 + 6, "rollout": "separate:6", "rollout-tp": 2,
        "global-batch": 512 // 16, "samples-per-prompt": 16, "seq": 8192, "max-response-tokens": 1024, "steps": 200,
        "zero": 3, "precision": "amp-bf16", "recompute": "full", "offload": "optimizer,activations", "micro-batch": 1,
    }  # fmt: skip
    assert {name: found.value_of(name) for name in wanted} == wanted


def test_prime_rl_of_2025_recomputes_and_moves_nothing_by_default(napkin: Napkin, tmp_path: Path) -> None:
    found = toml(OLDER)
    assert found.format.name == "prime-rl"
    assert values(found, "gpus", "rollout", "recompute", "offload", "compile", "lora-rank") == [
        4, "separate:2", "none", None, False, 8,
    ]  # fmt: skip
    shared = toml(OLDER.replace("[0, 1]", "[2, 3]"))
    assert values(shared, "gpus", "rollout") == [2, "colocated:0.9"]
    path = tmp_path / "rl.toml"
    path.write_text(OLDER)
    assert napkin(f"memory --from {path} --hardware h100").status == 0


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("cp = 2", "cp", 2),
        ("reshard_after_forward = false", "zero", 2),
        ('optimization_dtype = "bfloat16"', "precision", "bf16-pure"),
        ("ac = { freq = 2 }", "recompute", "every:2"),
        ('ac = "None"', "recompute", "none"),  # TOML has no null
        ('compile = "None"', "compile", False),
        ('lora = "None"', "adapter", None),
        ('ac_offloading = "None"', "offload", "optimizer"),
        ("optim_cpu_offload = false", "offload", None),
        ("dp_replicate = 2", "dp-shard", 1),
        ('quantization = { type = "fp8" }', "precision", None),
        ("[inference.model]\nenforce_eager = true", "rollout-eager", True),  # 2025
    ],
)
def test_a_key_of_prime_rl(more: str, option: str, value: object) -> None:
    assert toml(PRIME.format(more=more)).value_of(option) == value


def test_prime_rl_of_neither_time_leaves_open_what_changed() -> None:
    """c5afcaa2e (June 2026) recomputes, offloads and compiles by default; [wandb] was there before and after it."""
    text = PRIME.format(more="").replace("[inference.vllm]", "[inference.parallel]")
    changed = ("recompute", "offload", "compile", "off-policy-steps")
    assert values(toml(text), *changed) == [None] * 4
    assert values(toml(text + "[wandb]\nname = 'a'\n"), *changed) == [None] * 4
    assert values(toml(text + "[monitors.wandb]\nname = 'a'\n"), *changed) == [
        "full", "optimizer,activations", True, 8,
    ]  # fmt: skip
    own = '[[orchestrator.train.source]]\nname = "a"\n[orchestrator.train.source.algo]\ntype = "opd"\n'
    assert toml(text + own).value_of("task") is None


def test_prime_rls_fine_tuning() -> None:
    text = '[model]\nname = "Qwen/Qwen3-0.6B"\n[data]\nbatch_size = 64\nmicro_batch_size = 2\nseq_len = 1024\n'
    found = toml(text)
    assert values(found, "task", "global-batch", "micro-batch", "seq", "gpus") == ["sft", 64, 2, 1024, None]
    assert values(toml(text + "[deployment]\nnum_train_gpus = 8\n"), "gpus") == [8]
    nodes = '[deployment]\ntype = "multi_node"\nnum_train_nodes = 3\n'
    assert values(toml(text + nodes), "gpus") == [3 * 8]


AREAL = """experiment_name: a
trial_name: b
total_train_epochs: 10
cluster: {{n_nodes: 1, n_gpus_per_node: 8}}
{engines}
gconfig: {{n_samples: 4, max_new_tokens: 1024}}
actor:
  {backend}
  path: Qwen/Qwen2.5-1.5B-Instruct
  dtype: bfloat16
  gradient_checkpointing: true
  mb_spec: {{max_tokens_per_mb: 10240}}
  kl_ctl: {kl}
  ppo_n_minibatches: {parts}
ref: {{path: "${{actor.path}}"}}
train_dataset: {{batch_size: 256, max_length: 512, type: rl}}
"""
NEWER = "rollout: {backend: 'sglang:d2t2', max_head_offpolicyness: 2}"


def areal(engines: str = NEWER, backend: str = "backend: 'fsdp:d4'", kl: float = 0, parts: int = 4) -> Reading:
    text = AREAL.format(engines=engines, backend=backend, kl=kl, parts=parts)
    return reading_of(source_of(text, "run.yaml"))


def test_areals_engines_have_gpus_of_their_own() -> None:
    """alloc_mode.py: d × t × p (× c) GPUs each; an update takes batch_size / ppo_n_minibatches prompts."""
    found = areal()
    wanted = {
        "model": "qwen2.5-1.5b", "task": "grpo", "gpus": 4 + 2 * 2, "rollout": "separate:4", "rollout-tp": 2, "dp": 4,
        "framework": "fsdp", "zero": 3, "global-batch": 256 // 4, "updates": 4, "samples-per-prompt": 4,
        "seq": 512 + 1024, "off-policy-steps": 2, "precision": "bf16-pure", "recompute": "full", "reference": "none",
        "micro-batch": None, "epochs": 10,
    }  # fmt: skip
    assert {name: found.value_of(name) for name in wanted} == wanted
    assert areal(kl=0.1).value_of("reference") == "same"
    uneven = areal(parts=3)
    assert [one.key for one in uneven.refused] == ["actor.ppo_n_minibatches"]


@pytest.mark.parametrize(
    ("engines", "backend", "expected"),
    [
        ("allocation_mode: sglang.d4p1t1+d4p1t1", "{}", [8, "separate:4", "fsdp", 1, None]),
        ("allocation_mode: sglang:d2t2+megatron:d2p2t2e2", "{}", [4 + 8, "separate:4", "megatron-core", 2, 2]),
        ("allocation_mode: vllm[r]:d1+d1p4", "{}", [1 + 4, "separate:1", "megatron-core", None, None]),
        (NEWER, "backend: 'megatron:(attn:d4t2|ffn:d2e4)'", [4 * 2 + 4, "separate:4", "megatron-core", 2, 4]),
        (NEWER, "backend: 'megatron:(attn:d4t2|ffn:d4e4)'", [None, None, None, None, None]),
        (NEWER, "backend: 'archon:d4'", [4 + 4, "separate:4", "fsdp", None, None]),
    ],
)
def test_sizes_of_areals_engines(engines: str, backend: str, expected: list[object]) -> None:
    own = "" if backend == "{}" else backend
    assert values(areal(engines, own), "gpus", "rollout", "framework", "tp", "ep") == expected


@pytest.mark.parametrize(("backend", "eager"), [("sglang:d2t2", False), ("vllm:d2t2", True)])
def test_the_engine_that_generates_says_whether_it_captures_graphs(backend: str, eager: bool) -> None:
    """Files have the settings of both (areal/api/cli_args.py, vLLMConfig and SGLangConfig)."""
    both = f"rollout: {{backend: '{backend}'}}\nsglang: {{disable_cuda_graph: false}}\nvllm: {{enforce_eager: true}}"
    assert areal(both).value_of("rollout-eager") is eager


def test_areals_other_tasks_are_told_by_the_data() -> None:
    for kind, task in (("sft", "sft"), ("rw", "rm"), ("dpo", "dpo")):
        text = "experiment_name: a\ntrial_name: b\nactor: {path: gpt2, backend: 'fsdp:d8'}\ncluster: {n_nodes: 1}\n"
        text += f"train_dataset: {{batch_size: 64, max_length: 2048, type: {kind}}}\n"
        found = reading_of(source_of(text, "run.yaml"))
        assert values(found, "task", "gpus", "global-batch", "seq", "rollout") == [task, 8, 64, 2048, None]

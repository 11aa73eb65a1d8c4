"""Modalities' configurations, whose components name each other, oat's launch lines, and VeOmni's
configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from napkin.errors import Refused
from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of
from tests.conftest import Napkin

MODALITIES = """
settings:
  cuda_env: {world_size: "${cuda_env:WORLD_SIZE}"}
  step_profile:
    gradient_accumulation_steps: 3
    local_train_micro_batch_size: 4
    sequence_length: 2048
  training_target: {num_target_steps: 500}
app_state:
  component_key: app_state
  variant_key: raw
  config:
    model: {instance_key: trained, pass_type: BY_REFERENCE}
trained:
  component_key: model
  variant_key: model_initialized
  config:
    model: {instance_key: sharded, pass_type: BY_REFERENCE}
sharded:
  component_key: model
  variant_key: fsdp2_wrapped
  config:
    model: {instance_key: inner, pass_type: BY_REFERENCE}
    mixed_precision_settings: {param_dtype: BF_16, reduce_dtype: BF_16}
recomputed:
  component_key: model
  variant_key: activation_checkpointed
  config:
    model: {instance_key: plain, pass_type: BY_REFERENCE}
    ac_variant: full_activation_checkpointing
    layers_fqn: transformer.h
plain:
  component_key: model
  variant_key: gpt2
  config:
    poe_type: NOPE
    sequence_length: ${settings.step_profile.sequence_length}
    vocab_size: 50304
    n_layer: 4
    n_head_q: 8
    n_head_kv: 2
    n_embd: 512
    ffn_hidden: 2048
    dropout: 0.0
    bias: false
    attention_config:
      qkv_transforms: [{type_hint: RotaryTransform, config: {n_embd: 512, n_head: 8}}]
    attention_implementation: dao_flash
    activation_type: swiglu
    use_weight_tying: false
    attention_norm_config: {norm_type: pytorch_rms_norm}
    ffn_norm_config: {norm_type: pytorch_rms_norm}
    lm_head_norm_config: {norm_type: pytorch_rms_norm}
device_mesh:
  component_key: device_mesh
  variant_key: default
  config:
    data_parallel_shard_degree: 4
    data_parallel_replicate_degree: 2
    world_size: ${settings.cuda_env.world_size}
optimizer:
  component_key: optimizer
  variant_key: adam_w
  config:
    wrapped_model: {instance_key: trained, pass_type: BY_REFERENCE}
"""
OAT = """python -m oat.experiment.run_math_rl --critic_type drgrpo --gpus 8 {place} --vllm_gpu_ratio 0.35 \\
  --pretrain Qwen/Qwen2.5-1.5B --zero-stage 2 --beta 0 --gradient-checkpointing --num_samples 8 \\
  --prompt_max_length 1024 --generate_max_length 3072 --train_batch_size 128 --train_batch_size_per_device 1 \\
  --rollout_batch_size 64 --rollout_batch_size_per_device 8 --pi_buffer_maxlen_per_device 128 {more}
"""


def reading(text: str, name: str = "file") -> Reading:
    return reading_of(source_of(text, name))


def values(found: Reading, *options: str) -> list[Any]:
    return [found.value_of(option) for option in options]


def modalities(*changes: tuple[str, str]) -> Reading:
    text = MODALITIES.replace("instance_key: inner", "instance_key: plain")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return reading(text, "run.yaml")


def test_modalities_components_are_read_from_the_trained_model_inwards(napkin: Napkin, tmp_path: Path) -> None:
    found = modalities()
    assert found.format.name == "modalities"
    assert values(found, "gpus", "dp-shard", "zero", "micro-batch", "grad-accum", "seq", "steps", "precision") == [
        8, 4, 3, 4, 3, 2048, 500, "amp-bf16",
    ]  # fmt: skip
    assert values(found, "recompute", "attention", "optimizer", "task") == ["none", "flash", "adamw", "pretrain"]
    assert found.shape["ffn"] == 1536  # two thirds of 2,048 is 1,365, and the next multiple of 256 is 1,536
    layer = 512 * (512 + 2 * 128 + 512) + 3 * 512 * 1536 + 2 * 512
    path = tmp_path / "run.yaml"
    path.write_text(MODALITIES.replace("instance_key: inner", "instance_key: plain"))
    answer = napkin(f"params --from {path} --json")
    assert answer.status == 0
    assert answer.values["params/total"] == 4 * layer + 2 * 50304 * 512 + 512


def test_a_modalities_component_counts_only_around_the_trained_model() -> None:
    """A component that nothing names changes nothing; in between, it does."""
    inner = ("config:\n    model: {instance_key: plain, pass_type: BY_REFERENCE}\n    mixed",
             "config:\n    model: {instance_key: recomputed, pass_type: BY_REFERENCE}\n    mixed")  # fmt: skip
    assert values(modalities(), "recompute") == ["none"]
    assert values(modalities(inner), "recompute") == ["full"]
    every = ("ac_variant: full_activation_checkpointing",
             "ac_variant: selective_layer_activation_checkpointing\n    ac_fun_params: {ac_freq: 3}")  # fmt: skip
    assert values(modalities(inner, every), "recompute") == ["every:3"]
    other = modalities(inner, ("variant_key: activation_checkpointed", "variant_key: quantized"))
    assert [one.key for one in other.refused] == ["recomputed.variant_key"]


@pytest.mark.parametrize(
    ("old", "new", "option", "value"),
    [
        ("data_parallel_shard_degree: 4", "data_parallel_shard_degree: -1", "gpus", None),
        ("data_parallel_shard_degree: 4", "data_parallel_shard_degree: ${cuda_env:WORLD_SIZE}", "gpus", None),
        ("param_dtype: BF_16", "param_dtype: FP_32", "precision", "fp32"),
        ("    mixed_prec", "    reshard_after_forward: false\n    mixed_prec", "zero", 2),
        ("dao_flash", "manual", "attention", "eager"),
        ("num_target_steps: 500", "num_target_tokens: 1000000", "tokens", 1_000_000),
        ("variant_key: model_initialized", "variant_key: compiled", "compile", True),
        ("variant_key: adam_w", "variant_key: lion", "optimizer", None),
    ],
)
def test_a_key_of_modalities(old: str, new: str, option: str, value: object) -> None:
    assert modalities((old, new)).value_of(option) == value


def test_tensor_parallel_of_modalities_needs_its_component() -> None:
    found = modalities(("data_parallel_replicate_degree: 2", "tensor_parallel_degree: 2"))
    assert values(found, "tp", "sp", "gpus") == [2, True, 8]
    assert [one.key for one in found.refused] == ["device_mesh.config.tensor_parallel_degree"]


def test_modalities_other_files_are_refused() -> None:
    with pytest.raises(Refused, match="Modalities' configuration of other work"):
        reading("settings: {model_path: a}\nmodel_raw: {component_key: model, variant_key: gpt2}\n", "gen.yaml")


def test_oat_counts_samples_and_shares_its_gpus() -> None:
    """args.py: train_batch_size counts samples; interface.py: one half of the GPUs, unless collocated."""
    found = reading(OAT.format(place="--collocate", more=""))
    assert found.format.name == "oat"
    assert values(found, "task", "gpus", "rollout", "global-batch", "updates", "seq", "zero", "reference") == [
        "grpo", 8, "colocated:0.35", 16, 4, 4096, 2, "none",
    ]  # fmt: skip
    assert values(found, "recompute", "precision", "attention") == ["full", "bf16-mixed", "flash"]
    apart = reading(OAT.format(place="", more=""))
    assert values(apart, "gpus", "rollout") == [8, "separate:4"]


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("--critic_type ppo", "task", "ppo"),
        ("--beta 0.1", "reference", "same"),
        ("--lora_rank 16", "lora-rank", 16),
        ("--lora_rank 16", "precision", "frozen=bf16,param=bf16,grad=bf16,compute=bf16,state=fp32,master=fp32"),
        ("--lora_rank $1", "adapter", None),
        ("--no-bf16", "precision", "fp32"),
        ("--no-flash_attn", "attention", "eager"),
        ("--adam_offload", "offload", "optimizer"),
        ("--train_batch_size 100", "global-batch", None),
        ("--num_groups 2", "gpus", 16),
    ],
)
def test_a_key_of_oat(more: str, option: str, value: object) -> None:
    assert reading(OAT.format(place="--collocate", more=more)).value_of(option) == value


def test_oat_offline_trains_and_online_preference_learning_is_refused() -> None:
    line = "deepspeed --module oat.experiment.run_offline --gpus 4 --algo SFT --pretrain Qwen/Qwen2.5-1.5B "
    found = reading(line + "--chat_data d --max_model_len 4096 --train_batch_size_per_device 2\n")
    assert values(found, "task", "gpus", "seq", "global-batch", "zero") == ["sft", 4, 4096, 128, 2]
    online = reading("python -m oat.experiment.main --gpus 8 --dap-algo DPO --pretrain Qwen/Qwen2.5-1.5B\n")
    assert [one.option for one in online.refused] == ["task"]


VEOMNI = """
model: {{model_path: Qwen/Qwen3-8B-Base, {model}}}
data: {{train_path: tulu, data_type: conversation, max_seq_len: 4096, {data}}}
train:
  accelerator: {{ulysses_size: 2, dp_shard_size: 4, dp_replicate_size: 1, {accelerator}}}
  micro_batch_size: 2
  global_batch_size: 16
  num_train_epochs: 3
  {train}
"""


def veomni(**more: str) -> Reading:
    blocks = dict.fromkeys(("model", "data", "accelerator", "train"), "")
    return reading(VEOMNI.format(**{**blocks, **more}), "run.yaml")


def test_veomni_fills_rows_and_shards_over_what_ulysses_leaves() -> None:
    """arguments_types.py: dp = world / ulysses, dyn_bsz fills rows; trainer/base.py: fp32 weights under mixed
    precision."""
    found = veomni()
    assert found.format.name == "veomni"
    assert values(found, "model", "task", "gpus", "cp", "ulysses", "zero", "micro-batch", "global-batch", "seq") == [
        "qwen3-8b", "sft", 8, 2, 2, 3, 2, 16, 4096,
    ]  # fmt: skip
    assert values(found, "epochs", "packing", "precision", "recompute", "loss") == [
        3, True, "amp-bf16", "full", "fused",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("block", "more", "option", "value"),
    [
        ("train", "max_steps: 50", "steps", 150),  # of each epoch
        ("train", "gradient_checkpointing: {enable: false}", "recompute", "none"),
        ("train", "dyn_bsz: false", "packing", False),
        ("train", "optimizer: {type: muon}", "optimizer", "muon"),
        ("accelerator", "fsdp_config: {mixed_precision: {enable: false}}", "precision", "bf16-pure"),
        ("accelerator", "fsdp_config: {reshard_after_forward: false}", "zero", 2),
        ("accelerator", "fsdp_config: {fsdp_mode: ddp}", "zero", 0),
        ("accelerator", "fsdp_config: {offload: true}", "offload", "optimizer,parameters"),
        ("accelerator", "ep_size: 4", "ep", 4),
        ("model", "lora_config: {rank: 16, lora_modules: [q_proj]}", "lora-rank", 16),
        ("model", "ops_implementation: {attn_implementation: eager}", "attention", "eager"),
    ],
)
def test_a_key_of_veomni(block: str, more: str, option: str, value: object) -> None:
    assert veomni(**{block: more}).value_of(option) == value


def test_veomni_flat_and_of_other_data() -> None:
    flat = "model: {model_path: Qwen/Qwen3-8B}\ndata: {max_seq_len: 2048}\ntrain: {data_parallel_mode: %s}\n"
    assert values(reading(flat % "fsdp2"), "zero", "recompute", "precision") == [3, "full", "amp-bf16"]
    assert values(reading(flat % "ddp"), "zero") == [0]
    other = reading(VEOMNI.format(model="", data="", accelerator="", train="").replace("conversation", "diffusion"))
    assert [(one.key, one.option) for one in other.refused] == [("data.data_type", "task")]

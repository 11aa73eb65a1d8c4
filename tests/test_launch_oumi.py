"""oumi's configurations, written by hand from its parameter classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from napkin.errors import NapkinError
from napkin.inputs.launch.read import read_launch, reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.stated import ASSUMED, DEFAULT
from napkin.inputs.launch.syntax import source_of

TRAINED = """training:
  trainer_type: "TRL_SFT"
  per_device_train_batch_size: 2
  num_train_epochs: 3
  optimizer: "adamw_torch_fused"
"""


def read(text: str) -> Reading:
    """Return the reading of a configuration of Llama 3.1 8B with these further blocks."""
    model = """model:
  model_name: "meta-llama/Llama-3.1-8B-Instruct"
  model_max_length: 8192
  torch_dtype_str: "bfloat16"
data: {train: {datasets: [{dataset_name: "yahma/alpaca-cleaned"}]}}
"""
    return reading_of(source_of(model + text, "train.yaml"))


def values(reading: Reading, *options: str) -> list[object]:
    """Return the values of options."""
    return [reading.value_of(option) for option in options]


def test_full_training_under_fsdp() -> None:
    reading = read(f"{TRAINED}  enable_gradient_checkpointing: True\nfsdp: {{enable_fsdp: True, cpu_offload: True}}\n")
    assert values(reading, "model", "task", "trainer", "seq") == ["llama3.1-8b", "sft", "trl", 8192]
    assert values(reading, "framework", "zero", "offload", "recompute") == ["fsdp", 3, "optimizer,parameters", "full"]
    assert values(reading, "micro-batch", "grad-accum", "epochs", "optimizer-form") == [2, 1, 3, "fused"]
    assert reading.value_of("precision") == "bf16-pure"  # weights in bf16, and no autocast unless a key sets it
    assert not reading.not_modelled
    assert not reading.refused


def test_what_is_left_out_has_oumis_defaults() -> None:
    """Not TRL's: no recomputation, no bf16 autocast (training_params.py)."""
    reading = read("training: {trainer_type: TRL_SFT, max_steps: 100, num_train_epochs: 3}\n")
    assert values(reading, "micro-batch", "recompute", "steps", "epochs") == [8, "none", 100, None]
    assert {reading.inputs[one].origin for one in ("micro-batch", "recompute", "optimizer")} == {DEFAULT}
    assert reading.value_of("loss") == "torch"


def test_autocast_of_fsdp_widens_the_weights() -> None:
    reading = read(f"{TRAINED}fsdp: {{enable_fsdp: True, mixed_precision: bf16, sharding_strategy: SHARD_GRAD_OP}}\n")
    assert values(reading, "zero", "precision") == [2, "amp-bf16"]


PEFT = "peft: {lora_r: 64, lora_target_modules: [q_proj, v_proj], q_lora: %s}\n"


def test_peft_has_no_effect_without_its_switch() -> None:
    off = read(TRAINED + PEFT % "True")
    assert values(off, "adapter", "quantized", "lora-rank", "precision") == [None, None, None, "bf16-pure"]
    on = read(TRAINED + "  use_peft: True\n" + PEFT % "False")
    assert values(on, "adapter", "quantized", "lora-rank", "lora-targets") == ["lora", None, 64, "q,v"]
    bare = read(TRAINED + "  use_peft: True\n")
    assert values(bare, "lora-rank", "lora-dropout") == [8, 0.0]


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ("bnb_4bit_quant_type: nf4", "nf4"),
        ("bnb_4bit_quant_type: nf4, use_bnb_nested_quant: True", "nf4-dq"),
        ("lora_alpha: 8", "int4"),  # bitsandbytes' fp4, oumi's default
        ("q_lora_bits: 8", "int8"),
    ],
)
def test_quantized_weights(more: str, held: str) -> None:
    reading = read(TRAINED + f"  use_peft: True\npeft: {{q_lora: True, {more}}}\n")
    assert reading.value_of("quantized") == held


def test_deepspeed() -> None:
    block = (
        "deepspeed: {enable_deepspeed: True, zero_stage: ZERO_3, precision: BF16, offload_optimizer: {device: CPU}}\n"
    )
    reading = read(TRAINED + block)
    assert values(reading, "framework", "zero", "offload", "precision") == ["deepspeed", 3, "optimizer", "bf16-mixed"]
    off = read(TRAINED + block.replace("enable_deepspeed: True", "enable_deepspeed: False"))
    assert values(off, "framework", "zero") == [None, None]


def test_tasks() -> None:
    pairs = read(TRAINED.replace("TRL_SFT", "TRL_DPO"))
    assert pairs.value_of("task") == "dpo"
    group = read(
        TRAINED.replace("TRL_SFT", "TRL_GRPO")
        + "  grpo: {num_generations: 8, max_prompt_length: 512, max_completion_length: 1024, use_vllm: True}\n"
    )
    assert values(group, "task", "samples-per-prompt", "seq") == ["grpo", 8, 1536]
    assert read(TRAINED.replace("TRL_SFT", "HF")).inputs["task"].origin == ASSUMED
    rest = read(TRAINED.replace("TRL_SFT", "VERL_GRPO") + "  verl_config_overrides: {data: {train_batch_size: 64}}\n")
    assert [one.key for one in rest.refused] == ["training.trainer_type"]


def test_frozen_parts() -> None:
    assert read_with("freeze_layers: [visual]").value_of("freeze") == "vision"
    assert [one.key for one in read_with("freeze_layers: [lm_head]").refused] == ["model.freeze_layers"]


def read_with(key: str) -> Reading:
    """Return the reading of a configuration with one more key of the model."""
    return reading_of(source_of(f"model: {{model_name: Qwen/Qwen2-VL-2B-Instruct, {key}}}\n{TRAINED}", "train.yaml"))


def test_a_configuration_of_inference_is_refused() -> None:
    text = "model: {model_name: meta-llama/Llama-3.1-8B-Instruct}\ngeneration: {max_new_tokens: 64}\nengine: VLLM\n"
    with pytest.raises(NapkinError, match="evaluation or inference"):
        reading_of(source_of(text, "infer.yaml"))


def test_its_launch_line(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(f"model: {{model_name: Qwen/Qwen3-8B, model_max_length: 4096}}\n{TRAINED}")
    script = tmp_path / "run.sh"
    script.write_text("oumi distributed torchrun -m oumi train -c own.yaml --training.max_steps 20\n")
    assert values(read_launch(str(script)), "model", "seq", "steps", "epochs") == ["qwen3-8b", 4096, 20, None]

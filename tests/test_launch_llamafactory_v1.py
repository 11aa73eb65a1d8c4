"""LLaMA-Factory's v1 configuration, with the defaults of src/llamafactory/v1."""

from __future__ import annotations

import pytest

from napkin.inputs.launch.read import reading_of
from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.syntax import source_of

FULL = """model: Qwen/Qwen3-0.6B
model_class: llm
kernel_config: {name: auto}
quant_config: null
dist_config: {name: fsdp2, dcp_path: null}
train_dataset: data/v1_sft_demo.yaml
output_dir: outputs/a
micro_batch_size: 2
max_steps: 10
"""
LORA = FULL + "peft_config: {name: lora, target_modules: all}\n"


def read(text: str) -> Reading:
    return reading_of(source_of(text, "v1.yaml"))


def test_defaults() -> None:
    """config/{training,model}_args.py; core/model_engine.py widens fully trained weights to fp32."""
    reading = read(FULL)
    expected = {
        "trainer": "llama-factory",
        "model": "qwen3-0.6b",
        "task": "sft",
        "framework": "fsdp",
        "zero": 3,
        "micro-batch": 2,
        "grad-accum": 1,
        "seq": 2048,
        "steps": 10,
        "recompute": "full",
        "precision": "amp-bf16",
        "optimizer": "adamw",
        "loss": "torch",
    }
    assert {name: reading.value_of(name) for name in expected} == expected
    assert reading.inputs["task"].origin == "assumed"  # `llamafactory-cli dpo` takes the same file
    assert "gpus" not in reading.inputs
    assert not reading.refused


def test_lora() -> None:
    """plugins/model_plugins/peft.py, LoraParams."""
    names = ("adapter", "lora-rank", "lora-targets", "lora-dropout", "precision")
    policy = "frozen=bf16,param=fp32,grad=fp32,compute=bf16,state=fp32"
    assert [read(LORA).value_of(one) for one in names] == ["lora", 8, "all", 0.05, policy]
    assert read(LORA.replace("target_modules: all", "target_modules: all, r: 16")).value_of("lora-rank") == 16


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("global_batch_size: 64", "global-batch", 64),
        ("batching_strategy: dynamic_padding_free", "micro-batch", None),
        ("batching_strategy: padding_free", "micro-batch", 2),
        ("bf16: false", "precision", "fp32"),
        ("enable_activation_checkpointing: false", "recompute", "none"),
        ("cp_size: 2", "cp", 2),
        ("optim_config: {name: muon}", "optimizer", "muon"),
        ("optim_config: {name: other}", "optimizer", None),
        ("flash_attn: eager", "attention", "eager"),
        ("pref_loss: orpo", "task", None),
    ],
)
def test_keys(more: str, option: str, value: object) -> None:
    assert read(f"{FULL}{more}\n").inputs[option].value == value


@pytest.mark.parametrize(
    ("text", "quantized"),
    [
        ("{name: bnb, quantization_bit: 4}", "nf4-dq"),
        ("{name: bnb, quantization_bit: 4, double_quantization: false}", "nf4"),
        ("{name: bnb, quantization_bit: 8}", "int8"),
        ("{name: bnb}", "nf4-dq"),  # quantization_bit is not specified, default to 4-bit
    ],
)
def test_quantized_weights(text: str, quantized: str) -> None:
    reading = read(LORA.replace("quant_config: null", f"quant_config: {text}"))
    assert reading.value_of("quantized") == quantized
    assert str(reading.value_of("precision")).startswith(f"frozen={quantized.removesuffix('-dq')},param=fp32")


def test_backends() -> None:
    away = read(FULL.replace("dcp_path: null", "offload_params: true, reshard_after_forward: false"))
    assert [away.value_of(one) for one in ("zero", "offload")] == [2, "optimizer,parameters"]
    deepspeed = read(FULL.replace("name: fsdp2, dcp_path: null", "name: deepspeed, config_file: mine.json"))
    assert deepspeed.value_of("framework") == "deepspeed"
    assert deepspeed.inputs["zero"].value is None
    assert read(FULL.replace("name: fsdp2", "name: fsdpturbo")).refused
    assert read(FULL.replace("dist_config: {name: fsdp2, dcp_path: null}", "")).value_of("zero") == 0
    assert read(LORA.replace("name: lora", "name: freeze")).refused

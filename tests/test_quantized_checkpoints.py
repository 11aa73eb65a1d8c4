"""What a quantized checkpoint says of its weights: their format, scales and exceptions, if it is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_line

HIDDEN, INNER, LAYERS, ROWS = 256, 512, 2, 1000
SHAPE = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": ROWS, "tie_word_embeddings": False,
}  # fmt: skip
ATTENTION, MLP = 4 * HIDDEN**2, 3 * HIDDEN * INNER
OTHERS = 2 * ROWS * HIDDEN + (2 * LAYERS + 1) * HIDDEN
"""Tables and norms, in 16 bits."""
INT4, GROUPS = {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 32}, 0.5 + 2 / 32


def in_int4(*ignored: str) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": INT4}}, "ignore": list(ignored)}


def served(folder: Path, quantization: object, line: str = "memory {} --inference --seq 8", more: str = "") -> Any:
    path = folder / "config.json"
    path.write_text(json.dumps({**SHAPE, "quantization_config": quantization}))
    return run_line(f"{line.format(path)} {more} --json")


@pytest.mark.parametrize(
    ("quantization", "narrow", "each"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, LAYERS * (ATTENTION + MLP), 0.5 + 2.5 / 128),
        ({"quant_method": "awq", "bits": 8, "group_size": -1}, LAYERS * (ATTENTION + MLP), 1),
        ({"quant_method": "gptq", "bits": "4", "group_size": "128"}, LAYERS * (ATTENTION + MLP), 0.5 + 2.5 / 128),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 64}, LAYERS * (ATTENTION + MLP), 0.25 + 2.25 / 64),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
            LAYERS * (ATTENTION + MLP),
            0.5 + 4 / 64,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, LAYERS * (ATTENTION + MLP), 0.5 + 4 / 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, LAYERS * (ATTENTION + MLP), 1),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, LAYERS * (ATTENTION + MLP), 1 + 4 / 128**2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, LAYERS * (ATTENTION + MLP), 0.5 + 1 / 16),
        ({"producer": {"name": "modelopt"}, "quant_algo": "FP8"}, LAYERS * (ATTENTION + MLP), 1),
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}, LAYERS * MLP, 1),
        (in_int4("model.layers.0.mlp", "lm_head"), LAYERS * ATTENTION + MLP, GROUPS),
        (in_int4("re:.*mlp\\.(gate|up)_proj"), LAYERS * (ATTENTION + HIDDEN * INNER), GROUPS),
        (in_int4("model.layers.*.mlp.down_proj"), LAYERS * (ATTENTION + 2 * HIDDEN * INNER), GROUPS),
        (in_int4("down"), LAYERS * (ATTENTION + MLP), GROUPS),  # no module is called so
    ],
)
def test_weights_are_as_the_checkpoint_stores_them(
    tmp_path: Path, quantization: dict[str, Any], narrow: int, each: float
) -> None:
    whole = LAYERS * (ATTENTION + MLP)
    bytes_of = narrow * each + 2 * (whole - narrow + OTHERS)
    assert served(tmp_path, quantization).data["values"]["memory/parameters"] == pytest.approx(bytes_of, abs=1)


def test_published_sizes_of_checkpoints() -> None:
    """OpenAI, gpt-oss model card, arXiv:2508.10925, table 1: 12.8 and 60.8 GiB."""
    for model, published in (("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)):
        found = run_line(f"memory {model} --inference --json").data["values"]["memory/parameters"]
        assert round(found / 2**30, 1) == published


def test_an_option_comes_before_the_checkpoint(tmp_path: Path) -> None:
    plain = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    everything = 2 * (LAYERS * (ATTENTION + MLP) + OTHERS)
    found = served(tmp_path, plain, more="--dtype bf16").data
    assert found["values"]["memory/parameters"] == everything
    assert served(tmp_path, plain).data["inputs"]["dtype"]["origin"] == "model file"
    as_served = "serve {} --hardware h100 --gpus 1 --prompt-tokens 8 --response-tokens 8"
    assert served(tmp_path, plain, as_served).data["inputs"]["dtype"]["value"] == "int4"


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "hqq"},
        {"bits": 4},
        {"quant_method": "gptq", "bits": "four"},
        {"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": INT4}, "1": {"weights": {}}}},
        in_int4("re:(a+)+$"),
        in_int4("re:.*.*.*.*.*x"),
        in_int4("re:("),
        in_int4("*" * 40),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, quantization: dict[str, Any]) -> None:
    refused = served(tmp_path, quantization)
    assert refused.status == 3
    assert "stores weights" in refused.err
    assert "--dtype" in refused.err
    assert served(tmp_path, quantization, more="--dtype int4").status == 0
    assert served(tmp_path, quantization, "params {}").status == 0


LORA = "memory {} --seq 8 --lora-rank 4"


def test_adapters_are_trained_on_the_weights_as_they_are_stored(tmp_path: Path) -> None:
    """peft adds LoRA to layers of GPTQ, AWQ and bitsandbytes; other formats are read as 16 bits."""
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    four, said, sixteen = (served(tmp_path, gptq, LORA, more) for more in ("", "--quantized int4", "--quantized none"))
    assert four.data["values"]["memory/parameters"] == said.data["values"]["memory/parameters"]
    assert four.data["inputs"]["quantized"]["value"] == "int4"
    assert four.data["inputs"]["quantized"]["origin"] == "default"
    fp8 = served(tmp_path, {"quant_method": "fp8"}, LORA)
    assert fp8.data["values"]["memory/parameters"] == sixteen.data["values"]["memory/parameters"]
    assert sixteen.data["values"]["memory/parameters"] > 2 * LAYERS * (ATTENTION + MLP)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SHAPE, "quantization_config": gptq}))
    assert "int4 weights, as the file" in run_line(LORA.format(path)).out
    assert run_line(f"flops {path} --lora-rank 4").status == 0


@pytest.mark.parametrize(
    ("exceptions", "narrow"),
    [
        (["lm_head"], LAYERS * (ATTENTION + MLP)),
        (["self_attn"], LAYERS * MLP),
        (["model.layers.0.mlp", "model.layers.1.self_attn.o_proj"], LAYERS * (ATTENTION + MLP) - MLP - HIDDEN**2),
    ],
)
def test_adapters_are_trained_next_to_the_exceptions_of_a_checkpoint(
    tmp_path: Path, exceptions: list[str], narrow: int
) -> None:
    """Unsloth's copies leave modules of some layers in 16 bits: 2 bytes each; LoRA of rank 4 on q and v in fp32."""
    quantization = {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": exceptions}
    more = "--lora-targets q,v --precision frozen=bf16,param=fp32"
    found = served(tmp_path, quantization, LORA, more).values["memory/parameters"]
    whole = LAYERS * (ATTENTION + MLP)
    adapters = LAYERS * 2 * 4 * (HIDDEN + HIDDEN)
    assert found == pytest.approx(narrow * 0.5625 + 2 * (whole - narrow + OTHERS) + 4 * adapters, abs=1)

"""What adapters next to a frozen network keep for backward, against peft's own (tools/saved_bytes.py --lora)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.footprint import memory as footprint
from napkin.footprint.prepared import prepare
from napkin.operations.adapters.targets import resolved
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizer_names import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import model_of
from .test_memory import memory

ROWS = json.loads((Path(__file__).parent / "data" / "lora_bytes.json").read_text(encoding="utf-8"))["rows"]
POLICY = {"bf16": "bf16-pure", "fp32": "fp32", "autocast": "amp-bf16"}
RANK = 4
SAVED = "memory/activations/saved"


@pytest.mark.parametrize(
    ("model_type", "targets", "mode", "sequences", "lengths", "saved", "casts", "config"),
    ROWS,
    ids=["/".join(row[:3]) for row in ROWS],
)
def test_adapters_keep_what_hooks_counted(
    model_type: str,
    targets: str,
    mode: str,
    sequences: int,
    lengths: list[int],
    saved: int,
    casts: int,
    config: dict[str, Any],
) -> None:
    precision, attention, *_ = mode.split("/")
    model = model_of(config)
    implementation = implementation_of("hf", model.family)
    tuning = resolved(
        Tuning("lora", RANK, 0.0, library="transformers"), tuple(targets.split(",")), model, implementation
    )
    implementation = replace(implementation, tuning=tuning)
    length, target = lengths
    layout = Layout(seq=length, micro=sequences, target=target)
    policy = POLICIES[POLICY[precision]]
    setup = Setup(implementation, layout, policy, find("adamw")[0], "foreach", attention, 0.0, woken=True)
    rank = footprint.rank_of(prepare(model, setup), 0)
    assert (rank.saved, rank.casts) == (saved, casts)


def test_experts_in_batched_matmuls_keep_their_merged_weights() -> None:
    """Llama 4 Scout: 16 experts of 5,120 × 16,384 in each of 48 layers, in bf16, and what the batched matmul reads: 128
    tokens for each expert."""
    line = "--seq 128 --lora-rank 4 --lora-targets"
    alone = memory(f"{line} q_proj", "llama4-scout").values[SAVED]
    both = memory(f"{line} q_proj,experts.gate_up_proj", "llama4-scout").values[SAVED]
    assert both - alone == 48 * (16 * 5120 * 16384 * 2 + 16 * 128 * 5120 * 2)


def test_a_router_with_an_adapter_keeps_its_input_and_its_rows() -> None:
    """Llama 4's router is a linear layer of 16 outputs whose input next layers' experts read too: what it adds is the
    thin matrix' output of 4 elements for each of 128 tokens."""
    line = "--seq 128 --lora-rank 4 --lora-targets"
    alone = memory(f"{line} q_proj", "llama4-scout").values[SAVED]
    both = memory(f"{line} q_proj,router", "llama4-scout").values[SAVED]
    inputs = 128 * 5120 * 2
    assert both - alone == 48 * (128 * 4 * 2 + inputs)


def test_autocast_casts_each_frozen_weight_and_keeps_it() -> None:
    """Autocast caches its copies of trained weights only; a frozen fp32 weight is cast in its call and saved for the
    gradient of its input: 2 bytes for each of Llama's 32 layers' linear weights and the head's, but for the first
    query, key and value, whose input needs none."""
    line = "--seq 128 --lora-rank 4 --lora-targets q_proj --precision"
    saved = {precision: memory(f"{line} {precision}").values[SAVED] for precision in ("bf16-pure", "amp-bf16")}
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    weights = 2 * (32 * layer + 4096 * 128256 - 4096 * (4096 + 2 * 1024))
    assert saved["amp-bf16"] - saved["bf16-pure"] > weights


def test_a_parameter_that_two_targets_name_has_one_adapter() -> None:
    """peft adapts a tensor once: Mixtral's w1 and w3 are its fused tensor, at twice the rank."""
    line = "--seq 64 --lora-rank 4 --lora-targets"
    once, twice = (
        memory(f"{line} {targets}", "mixtral-8x7b").values["memory/gradients"]
        for targets in ("w1,w3", "w1,w3,mlp.experts.gate_up_proj")
    )
    assert once == twice == 2 * 32 * 8 * 8 * (4096 + 2 * 14336)


def test_every_linear_layer_is_every_part_of_a_fused_projection_too() -> None:
    """LitGPT runs q, k and v as one projection, whose parts have adapters of their own: r·(in + out) each, in bf16."""
    line = "--seq 64 --framework litgpt --precision bf16-pure --lora-rank 8"
    attention = 2 * (4096 + 4096) + 2 * (4096 + 1024)
    assert memory(line).values["memory/gradients"] == 2 * 32 * 8 * (attention + 3 * (4096 + 14336))


def test_fp32_adapters_of_experts_are_cast_to_the_weights_type() -> None:
    """Mixtral, fp32 matrices of rank 4 next to 16-bit experts: each layer keeps what 2 · 128 rows read, the merged
    tensor of 8 experts, and the 16-bit casts of both matrices, which the sum saves (peft 0.21, ParamWrapper)."""
    line = "--seq 128 --precision frozen=bf16,param=fp32 --lora-rank 4 --lora-targets"
    alone = memory(f"{line} q_proj", "mixtral-8x7b").values[SAVED]
    both = memory(f"{line} q_proj,experts.gate_up_proj", "mixtral-8x7b").values[SAVED]
    wide = 2 * 14336
    assert both - alone == 32 * 2 * (2 * 128 * 4096 + 8 * 4096 * wide + 8 * 4 * (4096 + wide))


SMALL = {
    "model_type": "llama", "vocab_size": 97, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": False, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 104, "max_position_embeddings": 64,
}  # fmt: skip
UNWOKEN = [
    ("q_proj,v_proj", "bf16", "eager", 1468932, 0),
    ("q_proj,v_proj", "autocast", "flash", 760748, 3072),
    ("down_proj", "bf16", "eager", 1084420, 0),
    ("lm_head", "bf16", "flash", 64004, 0),
    ("lm_head", "autocast", "eager", 64004, 776),
    ("o_proj,lm_head", "autocast", "flash", 693652, 3080),
    ("embed_tokens", "bf16", "eager", 1464324, 0),
]
"""Bytes that autograd saved on peft 0.21.2 and transformers 5.23.0, if nothing makes the embedding's output require
a gradient: 2 sequences of 64 tokens, adapters of rank 4."""


@pytest.mark.parametrize(("targets", "precision", "attention", "saved", "casts"), UNWOKEN)
def test_nothing_is_kept_where_no_gradient_passes(
    targets: str, precision: str, attention: str, saved: int, casts: int
) -> None:
    model = model_of(SMALL)
    implementation = implementation_of("hf", model.family)
    tuning = resolved(
        Tuning("lora", RANK, 0.0, library="transformers"), tuple(targets.split(",")), model, implementation
    )
    implementation = replace(implementation, tuning=tuning)
    policy = POLICIES[POLICY[precision]]
    setup = Setup(implementation, Layout(seq=64, micro=2), policy, find("adamw")[0], "foreach", attention, 0.0)
    rank = footprint.rank_of(prepare(model, setup), 0)
    assert (rank.saved, rank.casts) == (saved, casts)


def test_adapters_of_the_head_alone_keep_no_layer() -> None:
    """Llama 3 8B, LoRA on the head: the fp32 logits of 4,096 tokens, and of each token the head's input, the adapter's
    8 numbers, the label padded and the loss' weight; not 20 GB of layers."""
    saved = memory("--seq 4096 --precision bf16-pure --lora-rank 8 --lora-targets lm_head").values[SAVED]
    assert saved == 4096 * 128256 * 4 + 4096 * (4096 + 8) * 2 + 4097 * 8 + 4


def test_llm_int8_keeps_the_inputs_of_frozen_layers() -> None:
    """bitsandbytes' MatMul8bitLt refers to its input, though the weight is frozen: of a Llama layer with an adapter on
    q alone, what NF4 leaves out are the inputs of gate and up, one tensor, and of down. The others are kept anyway:
    the adapter reads the first norm's output, and attention keeps its own, which o reads."""
    hidden, inner, tokens, layers = 64, 96, 32, 3
    fields = {
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    model = model_of(fields)
    saved = {}
    for stored in ("int8", "nf4"):
        implementation = implementation_of("hf", model.family)
        tuning = Tuning("lora", RANK, 0.0, quantized=stored, library="transformers")
        implementation = replace(implementation, tuning=resolved(tuning, ("q_proj",), model, implementation))
        setup = Setup(implementation, Layout(seq=tokens), POLICIES["bf16-pure"], find("adamw")[0], "foreach", "flash")
        saved[stored] = footprint.rank_of(prepare(model, setup), 0).saved
    assert saved["int8"] - saved["nf4"] == layers * tokens * 2 * (hidden + inner)

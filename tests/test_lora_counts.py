"""Parameters that LoRA trains, against peft's own counts (tests/data/lora_counts.json, tools/lora_counts.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napkin.architectures import implementation_of
from napkin.errors import NapkinError
from napkin.footprint.prepared import stack_of_step
from napkin.footprint.rank_weights import weights_on_a_rank
from napkin.footprint.states import gathered
from napkin.operations.lora_targets import resolved
from napkin.operations.tuning import Tuning
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizers import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup
from tests.conftest import model_of
from tests.test_memory import memory

RANK = 4
ROWS = json.loads((Path(__file__).parent / "data" / "lora_counts.json").read_text(encoding="utf-8"))["rows"]


def trained(fields: dict[str, Any], *targets: str) -> int:
    """Return the elements of LoRA's matrices at rank 4."""
    model = model_of(fields)
    implementation = implementation_of("hf", model.family)
    tuning = resolved(Tuning("lora", RANK, 0.0), targets, model, implementation)
    setup = Setup(
        replace(implementation, tuning=tuning),
        Layout(seq=8),
        POLICIES["bf16-pure"],
        find("adamw")[0],
        "foreach",
        "eager",
    )
    stack = stack_of_step(model, setup)
    counts, layers = zip(*((n, layer) for _, n, layer in stack.kinds()), strict=True)
    held = weights_on_a_rank(model, stack, setup, layers)
    ends = [(1, one) for one in (held.before, held.after, held.shared) if one is not None]
    return int(gathered([*zip(counts, held.layers, strict=True), *ends]).all)


@pytest.mark.parametrize(("model_type", "counts", "fields"), ROWS, ids=[row[0] for row in ROWS])
def test_targets_train_what_peft_trains(model_type: str, counts: dict[str, int], fields: dict[str, Any]) -> None:
    assert {choice: trained(fields, *choice.lower().split(",")) for choice in counts} == counts


QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "intermediate_size": 96,
    "vocab_size": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def test_names_of_transformers_4_stand_for_experts_in_one_tensor() -> None:
    """Two layers of 8 experts: down has r·(f + h) each, the fused gate and up twice the rank, 2r·(h + 2f)."""
    down, fused = 8 * RANK * (32 + 64), 8 * 2 * RANK * (64 + 2 * 32)
    assert trained(QWEN3_MOE, "down_proj") == 2 * down
    assert trained(QWEN3_MOE, "experts.gate_up_proj") == fused  # the parameter by its own name, at the rank given
    assert trained(QWEN3_MOE, "gate_proj", "up_proj", "down_proj") == 2 * (down + fused)
    assert trained(QWEN3_MOE, "gate") == 2 * RANK * (8 + 64)
    with pytest.raises(NapkinError, match="gate_up_proj holds gate_proj and up_proj"):
        trained(QWEN3_MOE, "gate_proj")


def test_the_default_is_peft_s() -> None:
    assert trained(QWEN3_MOE | {"model_type": "mixtral", "num_local_experts": 8}, "default") == 2 * RANK * (
        64 + 64 + 64 + 32
    )
    with pytest.raises(NapkinError, match="peft has none for qwen3_moe"):
        trained(QWEN3_MOE, "default")


def test_a_name_that_a_path_has_is_no_short_name() -> None:
    """Gemma 3n has per_layer_projection in each layer, and once per_layer_model_projection, called so for short."""
    values = memory("--seq 64 --lora-rank 4 --lora-targets per_layer_projection", "gemma3n-e2b").values
    assert values["memory/gradients"] == 2 * 30 * 4 * (256 + 2048)


def test_frozen_experts_keep_no_inputs() -> None:
    """Next to LoRA on q alone, experts in one tensor keep nothing of what grouped matmuls read (torch saves it for the
    gradient of the weight only); LoRA on them keeps that and the weight that it has been added to."""
    line = "--seq 128 --lora-rank 4 --lora-targets"
    alone = memory(f"{line} q_proj", "mixtral-8x7b").values["memory/activations/saved"]
    both = memory(f"{line} q_proj,experts.down_proj", "mixtral-8x7b").values["memory/activations/saved"]
    hidden, merged = 2 * 128 * 14336 * 2, 8 * 14336 * 4096 * 2
    assert both - alone == 32 * (hidden + merged)


def test_no_targets_and_all_are_every_linear_layer_as_peft_takes_them() -> None:
    """Mixtral's experts are tensors that peft adapts under all-linear too: 2 layers of 8 experts, and the router."""
    config = QWEN3_MOE | {"model_type": "mixtral", "num_local_experts": 8, "intermediate_size": 32}
    attention = RANK * ((64 + 64) + 2 * (64 + 32) + (64 + 64))
    experts = 8 * (2 * RANK * (64 + 2 * 32) + RANK * (32 + 64)) + RANK * (8 + 64)
    assert trained(config) == trained(config, "all") == trained(config, "all-linear") == 2 * (attention + experts)

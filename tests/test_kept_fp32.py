"""Weights that loading a checkpoint in 16 bits leaves in fp32, and what goes with them."""

from __future__ import annotations

from typing import Any

from napkin.architectures import implementation_of
from napkin.counting.params import params
from napkin.footprint.memory import rank_of
from napkin.footprint.prepared import prepare
from napkin.record import replace
from napkin.training.layout import Layout
from napkin.training.optimizers import find
from napkin.training.precision import POLICIES
from napkin.training.setup import Setup

from .conftest import model


def test_weights_that_loading_keeps_in_fp32_count_so() -> None:
    """transformers 5.23 keeps T5's `wo` in fp32 where it loads a model in fp16, in bf16 not; the router of a mixture of
    ERNIE 4.5 in both. Each brings 2 bytes more of parameter and gradient, and 4 of Adam's states."""
    t5: dict[str, Any] = {
        "model_type": "t5",
        "d_model": 32,
        "d_ff": 48,
        "d_kv": 8,
        "num_heads": 4,
        "num_layers": 3,
        "vocab_size": 100,
        "feed_forward_proj": "relu",
    }
    ernie: dict[str, Any] = {
        "model_type": "ernie4_5_moe",
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 2,
        "moe_layer_start_index": 0,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "moe_num_experts": 6,
        "moe_k": 2,
        "vocab_size": 100,
        "max_position_embeddings": 64,
    }
    for fields, in_fp16, in_bf16 in ((t5, 2 * 3 * 32 * 48, 0), (ernie, 2 * 32 * 6, 2 * 32 * 6)):
        of = model(**fields)
        count = params(of)["params/total"].value
        for kind, wide in (("fp16", in_fp16), ("bf16", in_bf16)):
            pure = replace(POLICIES["bf16-pure"], param=kind, grad=kind, compute=kind, state=kind)
            code = implementation_of("hf", of.family)
            setup = Setup(code, Layout(seq=32), pure, find("sgd-momentum")[0], "foreach", "eager")
            rank = rank_of(prepare(of, setup), 0)
            fixed = 2 * 6 * 2 if fields is ernie else 0  # the routers' biases, which no gradient reaches, in fp32
            assert rank.parameters == 2 * (count + wide) + fixed
            trained = count - 2 * 6 if fields is ernie else count
            assert rank.gradients == rank.optimizer == 2 * (trained + wide)

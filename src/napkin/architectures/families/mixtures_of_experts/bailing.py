"""Ling and Ring, 1.x (arXiv 2503.05139) and 2.0 (arXiv 2510.22115), whose code comes with their weights.

Fields and arrangements are those of inclusionAI's modeling_bailing_moe.py and modeling_bailing_moe_v2.py (Ling-lite,
Ling-mini-2.0); files of both have the model_type `bailing_moe`, and score_function tells them apart.
"""

from __future__ import annotations

from napkin.architectures.blocks import RMS, Routing
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads
from napkin.architectures.mixture import SIGMOID, counted
from napkin.architectures.record import Architecture, like
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROUTER
from napkin.record import replace


def _scored(config: Config, routing: Routing) -> Routing:
    """Read how experts are scored; 2.0's sigmoids come with a bias for balance."""
    score = config.text("score_function", known=("softmax", "sigmoid"))
    config.must_be("moe_router_enable_expert_bias", score == "sigmoid")
    config.must_be("multi_gate", False)
    return replace(routing, score=score, balanced="buffer" if score == "sigmoid" else "")


BAILING_MOE = Architecture(
    "bailing_moe",
    Decoder(
        bias="use_qkv_bias",
        out_bias="use_bias",
        fused=True,
        qk_norm=NormedHeads(RMS, switch="use_qk_norm"),
        experts=replace(
            SIGMOID,
            experts="num_experts",
            shared=counted("num_shared_experts"),
            score="softmax",
            balanced="",
            routing=_scored,
        ),
        predicts=True,
        only=(("use_sliding_window", (False,)), ("use_rmsnorm", (True,)), ("norm_head", (False,))),
        ignored=(
            *("max_window_layers", "sliding_window", "norm_softmax", "router_dtype", "rotary_dim", "embedding_dropout"),
            *("output_dropout", "moe_router_topk_scaling_factor", "router_type", "moe_shared_expert_intermediate_size"),
        ),
    ),
    implementation=FP32_ROUTER,
    defaults={
        "first_k_dense_replace": 0, "hidden_act": "silu", "max_position_embeddings": 16384,
        "moe_router_enable_expert_bias": None, "norm_topk_prob": True, "score_function": "softmax",
        "tie_word_embeddings": False, "use_bias": True, "use_qk_norm": False, "use_qkv_bias": False,
    },
    modules={
        "qkv": "attention.query_key_value", "o": "attention.dense", "q_norm": "attention.query_layernorm",
        "k_norm": "attention.key_layernorm", "embedding": "model.word_embeddings",
    },
)  # fmt: skip
BAILING_MOE_V2 = like(BAILING_MOE, "bailing_moe_v2", defaults={"score_function": "sigmoid"})

ARCHITECTURES = (BAILING_MOE, BAILING_MOE_V2)

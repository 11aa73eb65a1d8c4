"""dots.llm1 and Solar Open: DeepSeek-V3's routing with grouped-query attention."""

from __future__ import annotations

from napkin.architectures.blocks import RMS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads
from napkin.architectures.layer_plans import LATE, all_sparse
from napkin.architectures.mixture import SIGMOID
from napkin.architectures.record import Architecture
from napkin.operations.implementations import FP32_ROUTER
from napkin.record import replace

DOTS1 = Architecture(
    "dots1",
    Decoder(bias="attention_bias", out_bias="attention_bias", qk_norm=NormedHeads(RMS), windows=LATE, experts=SIGMOID),
    config_class="Dots1Config",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(FP32_ROUTER, norms_inline=True),
    defaults={
        "attention_bias": False, "first_k_dense_replace": 0, "hidden_act": "silu", "intermediate_size": 10944,
        "layer_types": None, "max_position_embeddings": 2048, "max_window_layers": 62,
        "moe_intermediate_size": 1408, "n_routed_experts": None, "n_shared_experts": None,
        "num_attention_heads": 32, "num_experts_per_tok": None, "num_key_value_heads": 32, "sliding_window": 4096,
        "tie_word_embeddings": False, "vocab_size": 152064,
    },
)  # fmt: skip
SOLAR_OPEN = Architecture(
    "solar_open",
    Decoder(bias="attention_bias", experts=replace(SIGMOID, where=all_sparse)),
    config_class="SolarOpenConfig",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=FP32_ROUTER,
    defaults={
        "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 131072,
        "moe_intermediate_size": 1280, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_attention_heads": 64, "num_experts_per_tok": 8, "num_key_value_heads": 8,
        "tie_word_embeddings": False, "vocab_size": 196608,
    },
)  # fmt: skip

ARCHITECTURES = (DOTS1, SOLAR_OPEN)

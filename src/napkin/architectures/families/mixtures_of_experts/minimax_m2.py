"""MiniMax-M2."""

from __future__ import annotations

from napkin.architectures.blocks import RMS
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads
from napkin.architectures.mixture import Mixture, jittered
from napkin.architectures.record import Architecture
from napkin.operations.implementations import PARTIAL_ROTARY
from napkin.record import replace

# unknown to the class
MINIMAX_M2 = Architecture(
    "minimax_m2",
    Decoder(
        qk_norm=NormedHeads(RMS, over="all"),
        experts=Mixture(
            inner="intermediate_size",
            score="sigmoid",
            normalize=True,
            balanced="buffer",
            routing=jittered("router_jitter_noise"),
            balances=True,
        ),
        only=(
            ("use_qk_norm", (True,)),
            ("qk_norm_type", ("per_layer",)),
            ("shared_intermediate_size", (0,)),
            ("use_routing_bias", (True,)),
        ),
        ignored=("attn_type_list", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"),
    ),
    config_class="MiniMaxM2Config",
    aliases={"num_experts": "num_local_experts"},
    implementation=replace(PARTIAL_ROTARY, router="scores", norms_inline=True),
    defaults={
        "head_dim": 128, "hidden_act": "silu", "intermediate_size": 1536, "max_position_embeddings": 196608,
        "num_attention_heads": 48, "num_experts_per_tok": 8, "num_key_value_heads": 8, "num_local_experts": 256,
        "tie_word_embeddings": False, "vocab_size": 200064,
    },
)  # fmt: skip

ARCHITECTURES = (MINIMAX_M2,)

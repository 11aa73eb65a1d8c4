"""OLMo 1 to 3, OLMoE and FlexOlmo."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import output_norm
from napkin.architectures.blocks import LAYER_BARE, RMS, RMS_FP32
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, always, clamped
from napkin.architectures.dimensions import dimensions
from napkin.architectures.layer_plans import every
from napkin.architectures.mixture import Mixture
from napkin.architectures.record import Architecture, like
from napkin.operations.implementations import FP32_ROTARY, HF
from napkin.record import replace

_EXPERTS = Mixture("num_experts", inner="intermediate_size", normalize="norm_topk_prob", balances=True)

OLMO = Architecture(
    "olmo",
    Decoder(norm=LAYER_BARE, bias="attention_bias", out_bias="attention_bias", attention=clamped("clip_qkv")),
    config_class="OlmoConfig",
    implementation=FP32_ROTARY,
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 50304,
    },
)  # fmt: skip
OLMO2 = Architecture(
    "olmo2",
    Decoder(
        norm=RMS_FP32,
        arrangement=always(output_norm),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS_FP32, over="all"),
    ),
    config_class="Olmo2Config",
    implementation=replace(FP32_ROTARY, norms_inline=True),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 50304,
    },
)  # fmt: skip
OLMO3 = like(
    OLMO2,
    "olmo3",
    windows=every(4),
    config_class="Olmo3Config",
    implementation=replace(FP32_ROTARY, by_kind=True, norms_inline=True),
    defaults={"layer_types": None, "sliding_window": 4096},
)  # fmt: skip
OLMOE = Architecture(
    "olmoe",
    Decoder(
        sizes=partial(dimensions, own_head_dim=False),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS, over="all"),
        attention=clamped("clip_qkv"),
        experts=_EXPERTS,
    ),
    config_class="OlmoeConfig",
    aliases={"num_local_experts": "num_experts"},
    implementation=replace(HF, norms_inline=True),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 2048, "max_position_embeddings": 4096,
        "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 50304,
    },
)  # fmt: skip
FLEX_OLMO = like(
    OLMO2,
    "flex_olmo",
    experts=_EXPERTS,
    config_class="FlexOlmoConfig",
    aliases={"num_local_experts": "num_experts"},
    defaults={"max_position_embeddings": 4096, "num_experts": 7, "num_experts_per_tok": 5, "vocab_size": 100352},
)  # fmt: skip

ARCHITECTURES = (OLMO, OLMO2, OLMO3, OLMOE, FLEX_OLMO)

"""gpt-oss: windows in every other layer, sinks, experts with biases."""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import RMS_FP32, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import RotaryPositions, scored
from napkin.architectures.layer_plans import every
from napkin.architectures.mixture import Mixture
from napkin.architectures.record import Architecture
from napkin.operations.implementations import HF_EAGER
from napkin.record import replace

GPT_OSS = Architecture(
    "gpt_oss",
    Decoder(
        norm=RMS_FP32,
        rotary=RotaryPositions("halves"),
        bias="attention_bias",
        out_bias="attention_bias",
        windows=every(2),
        attention=scored(sinks=True),
        experts=Mixture(
            inner="intermediate_size",
            score="softmax_top_k",
            routing=lambda config, routing: replace(routing, bias=True),
            block=partial(moe, bias=True),
            function="swiglu_oai",
            balances=True,
        ),
        ignored=("experts_per_token", "initial_context_length"),
    ),
    config_class="GptOssConfig",
    aliases={"experts_per_token": "num_experts_per_tok", "num_experts": "num_local_experts"},
    implementation=replace(
        HF_EAGER, softmax="native", native_scores="kept", fp16_excepts=("norm/weight",), looped_in_4="joined",
    ),
    defaults={
        "attention_bias": True, "head_dim": 64, "hidden_act": "silu", "intermediate_size": 2880,
        "layer_types": None, "max_position_embeddings": 131072, "num_attention_heads": 64,
        "num_experts_per_tok": 4, "num_key_value_heads": 8, "num_local_experts": 128, "sliding_window": 128,
        "tie_word_embeddings": False, "vocab_size": 201088,
    },
    modules={
        "router": "mlp.router",
    },
)  # fmt: skip

ARCHITECTURES = (GPT_OSS,)

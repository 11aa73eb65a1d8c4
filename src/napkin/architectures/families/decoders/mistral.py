"""Mistral, Ministral and Mixtral."""

from __future__ import annotations

from napkin.architectures.decoder import Decoder
from napkin.architectures.families.decoders.llama import OF_LLAVA
from napkin.architectures.layer_plans import EVERYWHERE
from napkin.architectures.mixture import Mixture, jittered
from napkin.architectures.record import Architecture, Wrapper, like
from napkin.operations.implementations import HF
from napkin.record import replace

MISTRAL = Architecture(
    "mistral",
    Decoder(windows=EVERYWHERE),
    config_class="MistralConfig",
    wrappers=(
        Wrapper("idefics2", path="model.text_model"),
        Wrapper("llava_mistral", flat=True, ignored=OF_LLAVA),
        Wrapper("mistral3"),
    ),
    defaults={
        "head_dim": None, "hidden_act": "silu", "intermediate_size": 14336, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096, "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
)  # fmt: skip
MINISTRAL = like(
    MISTRAL,
    "ministral",
    config_class="MinistralConfig",
    defaults={"layer_types": None},
)  # fmt: skip
MINISTRAL3 = like(
    MISTRAL,
    "ministral3",
    config_class="Ministral3Config",
    implementation=replace(HF, query_scale=True),
    defaults={"head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None, "vocab_size": 131072},
)  # fmt: skip
MIXTRAL = like(
    MISTRAL,
    "mixtral",
    experts=Mixture(inner="intermediate_size", normalize=True, routing=jittered("router_jitter_noise"), balances=True),
    config_class="MixtralConfig",
    aliases={"num_experts": "num_local_experts"},
    implementation=replace(HF, router="scores"),
    defaults={"num_experts_per_tok": 2, "num_local_experts": 8, "sliding_window": None},
)  # fmt: skip

ARCHITECTURES = (MISTRAL, MINISTRAL, MINISTRAL3, MIXTRAL)

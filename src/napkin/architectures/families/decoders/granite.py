"""Granite 3 and 4's transformers, HyperCLOVA X and MiniCPM: embedding, residual branches and logits scaled."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm, sandwich_norm
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Embedded, Headed, always, scored, where
from napkin.architectures.layer_plans import all_but_each, by_base
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.operations.implementations import HF, HF_EAGER, ROTARY
from napkin.record import replace

_SCALED = partial(pre_norm, scale=True)
_EXPERTS = Mixture(inner="intermediate_size", score="softmax_top_k", balances=True)
_WITH_SHARED = replace(_EXPERTS, shared=as_wide_as("shared_intermediate_size", fused=True))

_SPEECH = ("has_lora_adapter", "window_size", "downsample_rate")
_DEEPSTACK = (
    "deepstack_layer_map",
    "spatial_target_layers",
    "downsample_rate",
    "use_spatial_sampling",
    "spatial_stride",
)

GRANITE = Architecture(
    "granite",
    Decoder(
        arrangement=always(_SCALED),
        bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
        embedding=Embedded(scale=True),
        head=Headed(scale=True),
    ),
    config_class="GraniteConfig",
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "max_position_embeddings": 2048,
        "mlp_bias": False, "num_attention_heads": 32, "num_key_value_heads": None, "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    wrappers=(
        Wrapper("granite_speech", ignored=_SPEECH),
        Wrapper("granite_speech_plus", ignored=_SPEECH),
    ),
)  # fmt: skip
GRANITE_SWA = like(
    GRANITE,
    "granite_swa",
    windows=all_but_each(4),
    rotates=by_base("layer_rope_theta"),
    attention=scored(sinks=True),
    config_class="GraniteSWAConfig",
    implementation=replace(HF_EAGER, sinks="scaled", buffers=(ROTARY, ("spare rotary", "fp32"))),
    defaults={
        "intermediate_size": 8192, "layer_types": None, "max_position_embeddings": 8192, "num_attention_heads": 20,
        "num_key_value_heads": 4, "sliding_window": 128, "tie_word_embeddings": True, "vocab_size": 100352,
    },
)  # fmt: skip
GRANITE_MOE = like(
    GRANITE,
    "granitemoe",
    mlp_bias=False,
    experts=_EXPERTS,
    config_class="GraniteMoeConfig",
    implementation=replace(HF, router="tokens", fp32_logits=True, looped_in_4="joined"),
    defaults={"mlp_bias": REQUIRED, "num_experts_per_tok": 2, "num_local_experts": 8},
    modules={
        "router": "block_sparse_moe.router", "experts": "block_sparse_moe.experts",
    },
)  # fmt: skip
GRANITE_MOE_SHARED = like(
    GRANITE_MOE,
    "granitemoeshared",
    experts=_WITH_SHARED,
    config_class="GraniteMoeSharedConfig",
    defaults={"shared_intermediate_size": 0},
    modules={
        "shared/gate_up": "shared_mlp.input_linear", "shared/down": "shared_mlp.output_linear",
    },
)  # fmt: skip
GRANITE_MOE_SWA = like(
    GRANITE_SWA,
    "granitemoe_swa",
    mlp_bias=False,
    experts=_WITH_SHARED,
    config_class="GraniteMoeSWAConfig",
    implementation=replace(
        HF_EAGER, router="tokens", fp32_logits=True, sinks="scaled", buffers=(ROTARY, ("spare rotary", "fp32"))
    ),
    defaults={
        "intermediate_size": 11008, "max_position_embeddings": 2048, "mlp_bias": REQUIRED,
        "num_attention_heads": 32, "num_experts_per_tok": 2, "num_key_value_heads": None, "num_local_experts": 8,
        "shared_intermediate_size": 0, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    modules={
        "router": "block_sparse_moe.router", "experts": "block_sparse_moe.experts",
        "shared/gate_up": "shared_mlp.input_linear", "shared/down": "shared_mlp.output_linear",
    },
)  # fmt: skip
GRANITE4_VISION = like(
    GRANITE,
    "granite4_vision_text",
    config_class="Granite4VisionTextConfig",
    wrappers=(Wrapper("granite4_vision", ignored=_DEEPSTACK),),
)
GRANITE_DOCLING = like(
    GRANITE,
    "granite_docling_text",
    config_class="GraniteDoclingTextConfig",
    wrappers=(Wrapper("granite_docling"),),
    defaults={
        "intermediate_size": 2048, "max_position_embeddings": 32768, "num_attention_heads": 16,
        "num_key_value_heads": 4, "tie_word_embeddings": True, "vocab_size": 133800,
    },
)  # fmt: skip
HYPERCLOVAX = like(
    GRANITE,
    "hyperclovax",
    arrangement=where("use_post_norm", partial(sandwich_norm, scale=True), _SCALED),
    config_class="HyperCLOVAXConfig",
    wrappers=(Wrapper("hyperclovax_vision_v2"),),
    defaults={"head_dim": None, "use_post_norm": True},
)  # fmt: skip
MINICPM = like(
    GRANITE,
    "minicpm",
    bias=False,
    out_bias=False,
    mlp_bias=False,
    only=(("attention_bias", (False,)),),
    defaults={
        "attention_bias": REQUIRED, "hidden_act": REQUIRED, "intermediate_size": REQUIRED,
        "max_position_embeddings": REQUIRED, "mlp_bias": REQUIRED, "num_attention_heads": REQUIRED,
        "num_key_value_heads": REQUIRED, "tie_word_embeddings": True, "vocab_size": REQUIRED,
    },
)  # fmt: skip

ARCHITECTURES = (
    GRANITE4_VISION,
    GRANITE_DOCLING,
    GRANITE,
    GRANITE_SWA,
    GRANITE_MOE,
    GRANITE_MOE_SHARED,
    GRANITE_MOE_SWA,
    HYPERCLOVAX,
    MINICPM,
)

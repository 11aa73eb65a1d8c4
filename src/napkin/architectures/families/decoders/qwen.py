"""Qwen 2 and 3, and Mellum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.blocks import RMS, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads
from napkin.architectures.dimensions import dimensions
from napkin.architectures.families.decoders.llama import OF_LLAVA
from napkin.architectures.layer_plans import AS_LISTED, EVERYWHERE, LATE, Windows, all_sparse, by_type, stepped
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.record import replace


def _early_even(config: Config, layers: int) -> Callable[[int], str]:
    """Windows in the even layers before max_window_layers."""
    end = config.integer("max_window_layers", least=0)
    return lambda i: WINDOWED if i % 2 == 0 and i < end else FULL


def _as_listed(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts as mlp_layer_types lists them, or in every layer."""
    listed = config.items("mlp_layer_types", required=False) is not None
    return (by_type if listed else all_sparse)(config, layers)


_SWITCHED = replace(LATE, switch="use_sliding_window")
_EXPERTS = Mixture("num_experts", where=stepped, normalize="norm_topk_prob", balances=True)
_QWEN3_EXPERTS = replace(_EXPERTS, experts="num_local_experts")

_OF_INTERNVL_CHAT = (
    *("dynamic_image_size", "force_image_size", "max_dynamic_patch", "min_dynamic_patch", "pad2square", "ps_version"),
    *("template", "use_backbone_lora", "use_llm_lora", "use_thumbnail", "hidden_size", "select_layer"),
    "tie_word_embeddings",
)
"""Fields of OpenGVLab's own files (configuration_internvl_chat.py) that change no count."""
QWEN2 = Architecture(
    "qwen2",
    Decoder(bias=True, windows=_SWITCHED),
    config_class="Qwen2Config",
    wrappers=(
        Wrapper("audioflamingo3"),
        Wrapper("fast_vlm"),
        Wrapper("got_ocr2"),
        Wrapper("internvl"),
        Wrapper("internvl_chat", within=("llm_config", "qwen2"), ignored=_OF_INTERNVL_CHAT),
        Wrapper("dots_ocr", flat=True),
        Wrapper("llava_onevision"),
        Wrapper("llava_qwen", flat=True, ignored=OF_LLAVA),
        Wrapper("musicflamingo"),
        Wrapper("ovis2"),
        Wrapper("pp_chart2table"),
        Wrapper("qwen2_audio"),
        Wrapper("vibevoice_asr"),
        Wrapper("video_llama_3"),
    ),
    defaults={
        "hidden_act": "silu", "intermediate_size": 22016, "layer_types": None, "max_position_embeddings": 32768,
        "max_window_layers": 28, "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 4096,
        "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
    },
)  # fmt: skip
QWEN2_VL = like(
    QWEN2,
    "qwen2_vl_text",
    sizes=partial(dimensions, own_head_dim=False),
    config_class="Qwen2VLTextConfig",
    implementation=replace(HF, positions="each"),
    wrappers=(Wrapper("qwen2_vl", config_class="Qwen2VLConfig", flat=True),),
    defaults={
        "intermediate_size": 29568, "max_window_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "tie_word_embeddings": None, "vocab_size": 152064,
    },
    modules={
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip
QWEN2_5_VL = like(
    QWEN2_VL,
    "qwen2_5_vl_text",
    sizes=partial(dimensions, own_head_dim=False),
    config_class="Qwen2_5_VLTextConfig",
    wrappers=(Wrapper("qwen2_5_vl", config_class="Qwen2_5_VLConfig", flat=True),),
)
_IN_TIME = ("position_id_per_seconds", "seconds_per_chunk")
"""Fields of where audio and video are in time."""
QWEN2_5_OMNI = like(
    QWEN2,
    "qwen2_5_omni_text",
    config_class="Qwen2_5OmniTextConfig",
    implementation=replace(HF, positions="each"),
    wrappers=(
        Wrapper("qwen2_5_omni_thinker", config_class="Qwen2_5OmniThinkerConfig", ignored=_IN_TIME),
        Wrapper(
            "qwen2_5_omni",
            within=("thinker_config", "qwen2_5_omni_thinker"),
            ignored=("enable_audio_output",),
            besides="talker",
        ),
    ),
    defaults={
        "intermediate_size": 18944, "max_window_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "sliding_window": 32768, "tie_word_embeddings": False, "vocab_size": 152064,
    },
)  # fmt: skip
QWEN2_MOE = like(
    QWEN2,
    "qwen2_moe",
    bias="qkv_bias",
    windows=Windows(_early_even, switch="use_sliding_window"),
    experts=replace(
        _EXPERTS,
        shared=as_wide_as("shared_expert_intermediate_size", gated=True),
        block=partial(moe, shared_first=True),
    ),
    config_class="Qwen2MoeConfig",
    defaults={
        "decoder_sparse_step": 1, "intermediate_size": 5632, "mlp_only_layers": None,
        "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
        "num_key_value_heads": 16, "qkv_bias": True, "shared_expert_intermediate_size": 5632,
    },
    modules={
        "shared/gate": "mlp.shared_expert.gate_proj", "shared/up": "mlp.shared_expert.up_proj",
        "shared/down": "mlp.shared_expert.down_proj",
    },
)  # fmt: skip
QWEN3 = Architecture(
    "qwen3",
    Decoder(bias="attention_bias", out_bias="attention_bias", qk_norm=NormedHeads(RMS), windows=_SWITCHED),
    config_class="Qwen3Config",
    implementation=replace(HF, norms_inline=True),
    wrappers=(
        Wrapper("lighton_ocr"),
        Wrapper("qianfan_ocr"),
        Wrapper("moss_transcribe_diarize"),
        Wrapper("qwen3_asr", within=("thinker_config", "qwen3_asr_thinker"), ignored=("support_languages",)),
        Wrapper("qwen3_asr_thinker", former="qwen3_asr_text", ignored=("user_token_id",)),
    ),
    defaults={
        "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 22016,
        "layer_types": None, "max_position_embeddings": 32768, "max_window_layers": 28, "num_attention_heads": 32,
        "num_key_value_heads": 32, "sliding_window": 4096, "tie_word_embeddings": False,
        "use_sliding_window": False, "vocab_size": 151936,
    },
)  # fmt: skip
QWEN3_VL = like(
    QWEN3,
    "qwen3_vl_text",
    windows=None,
    config_class="Qwen3VLTextConfig",
    implementation=replace(HF, positions="each"),
    wrappers=(
        Wrapper("qwen3_vl", config_class="Qwen3VLConfig"),
        Wrapper("cosmos3_omni"),
    ),
    defaults={
        "layer_types": REQUIRED, "max_position_embeddings": 128000, "max_window_layers": REQUIRED,
        "sliding_window": REQUIRED, "tie_word_embeddings": None, "use_sliding_window": REQUIRED,
    },
    modules={
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip
QWEN3_MOE = like(
    QWEN3,
    "qwen3_moe",
    windows=replace(EVERYWHERE, switch="use_sliding_window"),
    experts=_QWEN3_EXPERTS,
    config_class="Qwen3MoeConfig",
    aliases={"num_experts": "num_local_experts"},
    defaults={
        "decoder_sparse_step": 1, "head_dim": REQUIRED, "intermediate_size": 6144, "layer_types": REQUIRED,
        "max_window_layers": REQUIRED, "mlp_only_layers": None, "moe_intermediate_size": 768,
        "num_experts_per_tok": 8, "num_key_value_heads": 4, "num_local_experts": 128,
    },
)  # fmt: skip
QWEN3_OMNI_MOE = like(
    QWEN3_MOE,
    "qwen3_omni_moe_text",
    sizes=partial(dimensions, floor=True),
    windows=None,
    ignored=(
        *("sliding_window", "use_sliding_window", "max_window_layers"),  # its attention has no window
        "shared_expert_intermediate_size",  # experts of the talker
    ),
    config_class="Qwen3OmniMoeTextConfig",
    aliases={"num_experts": "num_local_experts"},
    implementation=replace(HF, positions="each"),
    wrappers=(
        Wrapper(
            "qwen3_omni_moe_thinker",
            config_class="Qwen3OmniMoeThinkerConfig",
            ignored=_IN_TIME,
        ),
        Wrapper(
            "qwen3_omni_moe",
            besides="talker",
            within=("thinker_config", "qwen3_omni_moe_thinker"),
            ignored=("enable_audio_output",),
        ),
    ),
    defaults={
        "head_dim": None, "intermediate_size": 18944, "max_position_embeddings": 32768, "num_attention_heads": 28,
        "sliding_window": REQUIRED, "use_sliding_window": REQUIRED, "vocab_size": 3584,
    },
)  # fmt: skip
# tie_word_embeddings differs by version: True in 5.23.0, False in 4.57.1
QWEN3_VL_MOE = like(
    QWEN3,
    "qwen3_vl_moe_text",
    windows=None,
    experts=replace(_QWEN3_EXPERTS, normalize=True),
    config_class="Qwen3VLMoeTextConfig",
    aliases={"num_experts": "num_local_experts"},
    implementation=replace(HF, positions="each"),
    wrappers=(Wrapper("qwen3_vl_moe", config_class="Qwen3VLMoeConfig"),),
    defaults={
        "decoder_sparse_step": 1, "head_dim": None, "intermediate_size": 5632, "layer_types": REQUIRED,
        "max_position_embeddings": 128000, "max_window_layers": REQUIRED, "mlp_only_layers": None,
        "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_experts_per_tok": 4,
        "num_key_value_heads": 16, "num_local_experts": 60, "sliding_window": REQUIRED,
        "tie_word_embeddings": REQUIRED, "use_sliding_window": REQUIRED,
    },
    modules={
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip
# unknown to the class
MELLUM = like(
    QWEN3,
    "mellum",
    windows=AS_LISTED,
    experts=replace(_QWEN3_EXPERTS, where=_as_listed),
    predicts=True,
    ignored=("mtp_layer_types", "mtp_mlp_layer_types", "use_sliding_window"),
    config_class="MellumConfig",
    aliases={"num_experts": "num_local_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    implementation=replace(HF, by_kind=True, norms_inline=True),
    defaults={
        "intermediate_size": 7168, "max_position_embeddings": 131072, "max_window_layers": REQUIRED,
        "mlp_layer_types": None, "moe_intermediate_size": 896, "norm_topk_prob": True, "num_experts_per_tok": 8,
        "num_key_value_heads": 4, "num_local_experts": 64, "sliding_window": 1024, "use_sliding_window": REQUIRED,
        "vocab_size": 98304,
    },
)  # fmt: skip

ARCHITECTURES = (
    QWEN2_5_OMNI,
    QWEN3_OMNI_MOE,
    QWEN2,
    QWEN2_VL,
    QWEN2_5_VL,
    QWEN2_MOE,
    QWEN3,
    QWEN3_VL,
    QWEN3_MOE,
    QWEN3_VL_MOE,
    MELLUM,
)

"""The vision towers that multimodal models share, by the model_type of their vision_config. Defaults are those of the
configuration classes of Hugging Face transformers 5.23.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.attention_parts import QkNorm
from napkin.architectures.blocks import LAYER, RMS, RMS_BARE
from napkin.architectures.vision.tower import patch_sides
from napkin.architectures.vision.tower_record import PACKED, WHOLE, Mixing, Names, Stem, Tower, axial
from napkin.inputs.model import Config
from napkin.record import replace

IMAGE = {"num_channels": 3, "hidden_act": "gelu"}
BASE = {**IMAGE, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
LARGE = {**IMAGE, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
PYTORCH_TANH = "gelu_pytorch_tanh"

SIGLIP = Tower(
    {**BASE, "image_size": 224, "patch_size": 16, "vision_use_head": True, "hidden_act": PYTORCH_TANH},
    head="vision_use_head",
)
SIGLIP2 = replace(
    SIGLIP,
    defaults={**SIGLIP.defaults, "num_patches": 256, "image_size": None},
    stem=Stem(positions="num_patches", linear=True),
)
IDEFICS2 = replace(SIGLIP, head="", defaults={**SIGLIP.defaults, "patch_size": 32})
IDEFICS3 = replace(IDEFICS2, defaults={**IDEFICS2.defaults, "hidden_size": 1152, "num_attention_heads": 16})
CLIP = Tower(
    {**BASE, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu"},
    stem=Stem(bias=False, tokens=1, norm=LAYER),
)
JANUS = replace(
    SIGLIP,
    head="",
    defaults={
        **LARGE,
        "image_size": 384,
        "patch_size": 16,
        "attention_bias": True,
        "mlp_ratio": 4.0,
        "projection_dim": 2048,
        "depth": 2,
    },
    names=Names(inner="mlp_ratio"),
    mixing=Mixing(bias="attention_bias"),
    modules={**SIGLIP.modules, "o": "self_attn.projection_layer"},
)
PIXTRAL = Tower(
    {**LARGE, "image_size": 1024, "patch_size": 16},
    stem=Stem(bias=False, positions="", norm=RMS),
    mixing=Mixing(bias=False, out_bias=False, rope=axial),
    norm=RMS,
    gated=True,
    mlp_bias=False,
    last=False,
    modules={
        "q": "attention.q_proj", "k": "attention.k_proj", "v": "attention.v_proj", "o": "attention.o_proj",
        "gate": "feed_forward.gate_proj", "up": "feed_forward.up_proj", "down": "feed_forward.down_proj",
    },
    implementation=replace(WHOLE, kernel_mask="always", positions="each"),
)  # fmt: skip
INTERN = Tower(
    {**LARGE, "image_size": [448, 448], "patch_size": [14, 14], "attention_bias": False, "use_qk_norm": False,
     "use_mask_token": False, "use_mean_pooling": True, "norm_type": "layer_norm"},
    stem=Stem(tokens=1, mask="use_mask_token"),
    mixing=Mixing(bias="attention_bias", norm=QkNorm(RMS, "all"), norm_if="use_qk_norm"),
    norm_by="norm_type",
    scaled=True,
    last=lambda config: not config.flag("use_mean_pooling"),
    modules={
        "q": "attention.q_proj", "k": "attention.k_proj", "v": "attention.v_proj", "o": "attention.projection_layer",
        "up": "mlp.fc1", "down": "mlp.fc2",
    },
    implementation=replace(WHOLE, softmax="native"),
)  # fmt: skip
# OpenGVLab's own files (configuration_intern_vit.py, modeling_intern_vit.py of InternVL2_5-8B)
INTERN_VIT = replace(
    INTERN,
    defaults={
        "num_channels": 3, "hidden_act": "gelu", "image_size": 224, "patch_size": 14, "hidden_size": 3200,
        "intermediate_size": 12800, "num_hidden_layers": 48, "num_attention_heads": 25, "qkv_bias": False,
        "qk_normalization": True, "norm_type": "rms_norm",
    },
    stem=Stem(tokens=1),
    mixing=replace(INTERN.mixing, bias="qkv_bias", fused=True, norm_if="qk_normalization"),
    last=False,
    modules={"qkv": "attn.qkv", "o": "attn.proj", "up": "mlp.fc1", "down": "mlp.fc2"},
)  # fmt: skip
QIANFAN = replace(INTERN, defaults={**INTERN.defaults, "attention_bias": True})
OVIS2 = Tower(
    {**LARGE, "image_size": 224, "patch_size": 14, "num_attention_heads": 8, "intermediate_size": 2816,
     "hidden_act": "silu", "qkv_bias": False, "mlp_bias": False, "hidden_stride": 1,
     "vocab_size": 16_384, "num_visual_indicator_tokens": 5},
    stem=Stem(normed=RMS),
    mixing=Mixing(bias="qkv_bias", out_bias="qkv_bias"),
    norm=RMS,
    gated=True,
    mlp_bias="mlp_bias",
    modules={
        "q": "attention.q_proj", "k": "attention.k_proj", "v": "attention.v_proj", "o": "attention.out_proj",
        "gate": "ffn.gate_proj", "up": "ffn.up_proj", "down": "ffn.down_proj",
    },
)  # fmt: skip
VIDEO_LLAMA = replace(SIGLIP, head="", stem=Stem(positions=""), mixing=Mixing(rope=axial), implementation=PACKED)
PADDLE = replace(
    VIDEO_LLAMA,
    defaults={
        **IMAGE, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
        "image_size": 384, "patch_size": 14, "hidden_act": PYTORCH_TANH, "spatial_merge_size": 2,
    },
    stem=Stem(),
)  # fmt: skip
LLAMA4 = Tower(
    {**BASE, "num_hidden_layers": 34, "num_attention_heads": 16, "intermediate_size": 5632, "image_size": 448,
     "patch_size": 14, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 4096, "projector_output_dim": 4096,
     "vision_output_dim": 7680},
    stem=Stem(bias=False, tokens=1, norm=LAYER, linear=True),
    mixing=Mixing(rope=lambda size: replace(axial(size), pairing="complex")),
    modules={"up": "mlp.fc1", "down": "mlp.fc2"},
    implementation=replace(WHOLE, softmax="native"),
)  # fmt: skip
KIMI = Tower(
    {**IMAGE, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
     "patch_size": 14, "hidden_act": PYTORCH_TANH, "pos_emb_height": 64, "pos_emb_width": 64,
     "merge_kernel_size": [2, 2]},
    stem=Stem(positions=lambda config: config.integer("pos_emb_height") * config.integer("pos_emb_width")),
    mixing=Mixing(rope=lambda size: replace(axial(size), pairing="complex")),
    modules={
        "q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj", "o": "attn.proj", "up": "mlp.fc1",
        "down": "mlp.fc2",
    },
    implementation=PACKED,
)  # fmt: skip
# Kimi-VL's own code (huggingface.co/moonshotai/Kimi-VL-A3B-Instruct, modeling_kimi_vl.py, MoonVitPretrainedModel)
MOONVIT = replace(
    KIMI,
    defaults={"num_channels": 3, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
              "num_attention_heads": 16, "patch_size": 14, "hidden_act": PYTORCH_TANH, "init_pos_emb_height": 64,
              "init_pos_emb_width": 64, "merge_kernel_size": [2, 2]},
    stem=Stem(positions=lambda config: config.integer("init_pos_emb_height") * config.integer("init_pos_emb_width")),
    mixing=replace(KIMI.mixing, fused=True),
    modules={"qkv": "wqkv", "o": "wo", "up": "mlp.fc0", "down": "mlp.fc1"},
)  # fmt: skip
MINIMAX = Tower(
    {"num_channels": 3, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
     "num_attention_heads": 16, "patch_size": 14, "temporal_patch_size": 2, "hidden_act": "gelu",
     "spatial_merge_size": 2},
    stem=Stem(bias=False, positions="", norm=LAYER, frames="temporal_patch_size"),
    mixing=Mixing(rope=axial),
    last=False,
    implementation=PACKED,
)  # fmt: skip

# --- Qwen-VL's and its relatives' ------------------------------------------------------------------------------------

BLOCKS = {"qkv": "attn.qkv", "o": "attn.proj"}
QWEN = Tower(
    {"depth": 32, "num_heads": 16, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
     "temporal_patch_size": 2},
    names=Names(depth="depth", heads="num_heads", channels="in_channels"),
    stem=Stem(bias=False, positions="", frames="temporal_patch_size"),
    mixing=Mixing(fused=True, rope=axial),
    last=False,
    modules={**BLOCKS, "up": "mlp.fc1", "down": "mlp.fc2"},
    implementation=PACKED,
)  # fmt: skip
QWEN2_VL = replace(
    QWEN,
    defaults={**QWEN.defaults, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "hidden_act": "quick_gelu"},
    names=replace(QWEN.names, width="embed_dim", inner="mlp_ratio"),
)


def windows(config: Config, depth: int) -> tuple[int, Callable[[int], bool]]:
    """Read the patches of a window, and which layers attend within windows: all but those that are listed."""
    high, wide = patch_sides(config)
    size, whole = config.integer("window_size"), config.items("fullatt_block_indexes") or []
    return max(1, size // high) * max(1, size // wide), lambda index: index not in whole


QWEN2_5_VL = replace(
    QWEN,
    defaults={
        **QWEN.defaults, "hidden_size": 3584, "out_hidden_size": 3584, "intermediate_size": 3420, "hidden_act": "silu",
        "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    },
    mixing=replace(QWEN.mixing, windows=windows),
    norm=RMS,
    gated=True,
    modules=BLOCKS,
)  # fmt: skip
QWEN2_5_OMNI = replace(
    QWEN2_5_VL,
    mixing=replace(QWEN2_5_VL.mixing, fused=False),
    modules={"q": "attn.q", "k": "attn.k", "v": "attn.v", "o": "attn.proj"},
)
EXAONE = replace(
    QWEN2_5_VL,
    defaults={**QWEN2_5_VL.defaults, "num_key_value_heads": 8},
    mixing=replace(QWEN2_5_VL.mixing, few="num_key_value_heads"),
)
QWEN3_VL = replace(
    QWEN,
    defaults={
        **QWEN.defaults, "depth": 27, "hidden_size": 1152, "out_hidden_size": 3584, "intermediate_size": 4304,
        "patch_size": 16, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24],
        "hidden_act": PYTORCH_TANH,
    },
    stem=replace(QWEN.stem, bias=True, positions="num_position_embeddings"),
    modules={**BLOCKS, "up": "mlp.linear_fc1", "down": "mlp.linear_fc2"},
)  # fmt: skip
QWEN3_5 = replace(QWEN3_VL, defaults={**QWEN3_VL.defaults, "deepstack_visual_indexes": []})
GLM4V = replace(
    QWEN,
    defaults={
        **QWEN.defaults, "depth": 24, "hidden_size": 1536, "num_heads": 12, "out_hidden_size": 4096, "image_size": 336,
        "intermediate_size": 13696, "hidden_act": "silu", "attention_bias": False,
    },
    stem=replace(QWEN.stem, bias=True, positions="grid", normed=RMS),
    mixing=replace(QWEN.mixing, bias="attention_bias", out_bias=False),
    norm=RMS,
    gated=True,
    mlp_bias=False,
    inner=lambda config: config.integer("out_hidden_size"),
    last=True,
    modules=BLOCKS,
)  # fmt: skip
GLM_OCR = replace(
    GLM4V,
    defaults={
        **GLM4V.defaults, "hidden_size": 1024, "num_heads": 16, "out_hidden_size": 1536, "intermediate_size": 4096,
        "attention_bias": True,
    },
    stem=replace(QWEN.stem, bias=True),
    mixing=replace(QWEN.mixing, bias="attention_bias", out_bias="attention_bias", norm=QkNorm(RMS)),
    mlp_bias="attention_bias",
    inner=None,
)  # fmt: skip

GLM5_NEXT = replace(
    GLM_OCR,
    defaults={**GLM_OCR.defaults, "depth": 24, "image_size": 336, "projection_intermediate_size": 10240},
)
INKLING2 = Tower(
    {**LARGE, "num_hidden_layers": 23, "intermediate_size": None, "mlp_ratio": 4.0, "patch_size": 20,
     "spatial_merge_size": 2, "posemb_grid_size": 32, "projection_hidden_dim": 4096, "projector_bias": False},
    stem=Stem(
        bias=False, tokens=1, norm=LAYER, linear=True,
        positions=lambda config: config.integer("posemb_grid_size") ** 2 + 1,
    ),
    mixing=Mixing(rope=lambda size: replace(axial(size), pairing="interleaved")),
    inner=lambda config: config.optional_integer("intermediate_size")
    or int((config.real("mlp_ratio") or 0) * config.integer("hidden_size")),
    scaled=True,
    last=False,
    implementation=PACKED,
)  # fmt: skip
GEMMA4 = Tower(
    {"num_channels": 3, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
     "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64, "hidden_activation": PYTORCH_TANH,
     "attention_bias": False, "patch_size": 16, "position_embedding_size": 10_240, "pooling_kernel_size": 3},
    names=Names(head="head_dim", function="hidden_activation"),
    # a table of rows and one of columns
    stem=Stem(bias=False, positions=lambda config: 2 * config.integer("position_embedding_size"), linear=True),
    mixing=Mixing(
        bias=False, out_bias=False, few="num_key_value_heads", rope=axial, norm=QkNorm(RMS), values=RMS_BARE
    ),
    norm=RMS,
    gated=True,
    mlp_bias=False,
    last=False,
    arranged=sandwich_norm,
    modules={
        "q": "self_attn.q_proj.linear", "k": "self_attn.k_proj.linear", "v": "self_attn.v_proj.linear",
        "o": "self_attn.o_proj.linear", "gate": "mlp.gate_proj.linear", "up": "mlp.up_proj.linear",
        "down": "mlp.down_proj.linear",
    },
    implementation=replace(WHOLE, kernel_mask="always", positions="each"),
)  # fmt: skip

MLLAMA = Tower(
    {**IMAGE, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8,
     "attention_heads": 16, "image_size": 448, "patch_size": 14, "max_num_tiles": 4, "vision_output_dim": 7680},
    names=Names(heads="attention_heads"),
    stem=Stem(bias=False),
    mixing=Mixing(bias=False, out_bias=False),
    modules={"o": "self_attn.o_proj", "up": "mlp.fc1", "down": "mlp.fc2"},
    implementation=replace(WHOLE, softmax="native"),
)  # fmt: skip
IDEFICS = replace(
    CLIP,
    defaults={
        **IMAGE, "embed_dim": 768, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
        "image_size": 224, "patch_size": 14,
    },
    names=Names(width="embed_dim"),
)  # fmt: skip

SHARED: Mapping[str, Tower] = {
    "siglip_vision_model": SIGLIP,
    "siglip2_vision_model": SIGLIP2,
    "clip_vision_model": CLIP,
    "pixtral": PIXTRAL,
    "mllama_vision_model": MLLAMA,
    "idefics_vision": IDEFICS,
    "internvl_vision": INTERN,
    "intern_vit_6b": INTERN_VIT,
    "qianfan_ocr_vision": QIANFAN,
    "idefics2_vision": IDEFICS2,
    "idefics3_vision": IDEFICS3,
    "smolvlm_vision": IDEFICS3,
    "janus_vision_model": JANUS,
    "ovis2_vision": OVIS2,
    "video_llama_3_vision": VIDEO_LLAMA,
    "paddleocr_vl_vision": PADDLE,
    "llama4_vision_model": LLAMA4,
    "kimi_k25_vision": KIMI,
    "moonvit": MOONVIT,
    "minimax_m3_vl_vision": MINIMAX,
    "qwen2_vl_vision": QWEN2_VL,
    "qwen2_5_vl_vision": QWEN2_5_VL,
    "qwen2_5_omni_vision_encoder": QWEN2_5_OMNI,
    "exaone4_5_vision": EXAONE,
    "qwen3_vl_vision": QWEN3_VL,
    "qwen3_vl_moe_vision": QWEN3_VL,
    "qwen3_omni_moe_vision_encoder": QWEN3_VL,
    "qwen3_5_vision": QWEN3_5,
    "qwen3_5_moe_vision": QWEN3_5,
    "glm4v_vision": GLM4V,
    "glm4v_moe_vision": GLM4V,
    "glm_ocr_vision": GLM_OCR,
    "glm5_next_vision": GLM5_NEXT,
    "inkling2_vision": INKLING2,
    "gemma4_vision": GEMMA4,
}
"""model_type of vision_config → its tower."""

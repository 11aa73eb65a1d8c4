"""Vision towers that one multimodal model has, by the model_type of their vision_config. Defaults are those of the
configuration classes of Hugging Face transformers 5.23.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import LAYER, RMS
from napkin.architectures.reading import FULL, listed
from napkin.architectures.vision.kinds import BASE, CLIP, IMAGE, LARGE, PYTORCH_TANH, QWEN, SHARED, SIGLIP, SIGLIP2
from napkin.architectures.vision.tower_record import PACKED, WHOLE, Mixing, Names, Stem, Tower, axial
from napkin.inputs.model import Config
from napkin.record import replace

BLIP = Tower(
    {**BASE, "image_size": 384, "patch_size": 16},
    stem=Stem(tokens=1),
    mixing=Mixing(fused=True),
    modules={"qkv": "self_attn.qkv", "o": "self_attn.projection", "up": "mlp.fc1", "down": "mlp.fc2"},
)
EVA = replace(
    BLIP,
    defaults={
        **IMAGE, "hidden_size": 1408, "intermediate_size": 6144, "num_hidden_layers": 39, "num_attention_heads": 16,
        "image_size": 224, "patch_size": 14, "qkv_bias": True,
    },
    mixing=replace(BLIP.mixing, bias="qkv_bias"),
)  # fmt: skip
COSMOS_EDGE = replace(
    SIGLIP2,
    head="",
    defaults={
        **IMAGE, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
        "patch_size": 16, "num_patches": 256, "spatial_merge_size": 2, "hidden_act": PYTORCH_TANH,
    },
    implementation=PACKED,
)  # fmt: skip
ERNIE = replace(
    QWEN,
    defaults={
        **QWEN.defaults, "hidden_size": 1280, "intermediate_size": 5120, "hidden_act": "quick_gelu",
        "temporal_merge_size": 2,
    },
    stem=Stem(bias=False, positions="", linear=True),
    last=True,
)  # fmt: skip


def _rectangle(config: Config) -> int:
    """Read the rows of a position embedding of rows and columns."""
    return config.integer("pos_emb_height") * config.integer("pos_emb_width")


def _windows(config: Config, depth: int) -> tuple[int, Callable[[int], bool]]:
    """Read the patches of a window, as many as the position embedding, and which layers attend within windows."""
    kinds = listed(config, "layer_types", depth, (FULL, "window_attention"))
    whole = [kind == FULL for kind in kinds] if kinds else [(i + 1) % 4 == 0 or i == depth - 1 for i in range(depth)]
    return _rectangle(config), lambda index: not whole[index]


MUSE = Tower(
    {"num_channels": 3, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 50,
     "num_attention_heads": 16, "patch_size": 14, "patch_temporal": 2, "merge_size": 2, "pos_emb_height": 32,
     "pos_emb_width": 32, "hidden_act": "gelu", "layer_types": None, "spatial_merge_size": 1},
    stem=Stem(bias=False, positions=_rectangle, norm=LAYER, frames="patch_temporal", linear=True),
    mixing=Mixing(rope=axial, windows=_windows),
    modules={
        "q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj", "o": "attn.proj", "up": "mlp.fc1",
        "down": "mlp.fc2",
    },
    implementation=PACKED,
)  # fmt: skip


def _complex(head_dim: int) -> Rope:
    return replace(axial(head_dim), pairing="complex")


STEP = Tower(
    {**IMAGE, "hidden_size": 1536, "mlp_ratio": 8960 / 1536, "num_hidden_layers": 47, "num_attention_heads": 16,
     "image_size": 728, "patch_size": 14, "hidden_act": "quick_gelu"},
    names=Names(inner="mlp_ratio"),
    stem=Stem(bias=False, norm=LAYER),
    mixing=Mixing(rope=_complex),
    scaled=True,
    last=False,
)  # fmt: skip


def _largest(config: Config) -> int:
    """Read the patches of the largest image, which the position embedding has rows for."""
    return (config.integer("max_img_size") // config.integer("patch_size")) ** 2


RADIO = Tower(
    {"num_channels": 3, "hidden_size": 1280, "mlp_ratio": 4.0, "num_hidden_layers": 32, "num_attention_heads": 16,
     "patch_size": 16, "image_size": 224, "max_img_size": 2048, "num_cls_tokens": 3, "num_registers": 7,
     "hidden_act": "gelu", "qkv_bias": True, "use_swiglu_ffn": False},
    names=Names(inner="mlp_ratio"),
    stem=Stem(
        bias=False,
        tokens=lambda config: config.integer("num_cls_tokens") + config.integer("num_registers", least=0),
        positions=_largest,
        linear=True,
    ),
    mixing=Mixing(bias="qkv_bias"),
    scaled=True,
    last=False,
    modules={
        "q": "attention.q_proj", "k": "attention.k_proj", "v": "attention.v_proj", "o": "attention.o_proj",
        "up": "mlp.fc1", "down": "mlp.fc2",
    },
    implementation=WHOLE,
)  # fmt: skip


def _of_largest_image(config: Config) -> int:
    """Read the positions of the largest image's patches, and one more."""
    return (config.integer("max_image_size") // config.integer("patch_size")) ** 2 + 1


HY_V4 = Tower(
    {**IMAGE, "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 40, "num_attention_heads": 16,
     "patch_size": 16, "max_image_size": 2048, "spatial_merge_size": 2, "out_hidden_size": 6144},
    stem=Stem(positions=_of_largest_image),
    last=False,
    modules={"o": "self_attn.o_proj", "up": "mlp.fc1", "down": "mlp.fc2"},
)  # fmt: skip
PHI4 = replace(
    SIGLIP,
    defaults={
        **SIGLIP.defaults, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
        "num_attention_heads": 16, "image_size": 448, "patch_size": 14,
    },
)  # fmt: skip

# dots.ocr's own files (configuration_dots.py, modeling_dots_vision.py of rednote-hilab/dots.ocr)
DOTS = Tower(
    {"num_channels": 3, "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42,
     "num_attention_heads": 12, "patch_size": 14, "spatial_merge_size": 2, "use_bias": False, "post_norm": True,
     "hidden_act": "silu"},
    names=Names(width="embed_dim"),
    stem=Stem(positions="", normed=RMS),
    mixing=Mixing(bias="use_bias", out_bias="use_bias", fused=True, rope=axial),
    norm=RMS,
    gated=True,
    mlp_bias="use_bias",
    last=lambda config: config.flag("post_norm"),
    modules={"qkv": "attn.qkv", "o": "attn.proj", "gate": "mlp.fc1", "up": "mlp.fc3", "down": "mlp.fc2"},
    implementation=PACKED,
)  # fmt: skip
SINGLE: Mapping[str, Tower] = {
    "dots_vit": DOTS,
    "blip_vision_model": BLIP,
    "blip_2_vision_model": EVA,
    "instructblip_vision_model": EVA,
    "instructblipvideo_vision_model": EVA,
    "kosmos_2_vision_model": replace(
        CLIP, defaults={**CLIP.defaults, **LARGE, "patch_size": 14, "hidden_act": "quick_gelu"}
    ),
    "cosmos3_edge_vision": COSMOS_EDGE,
    "ernie4_5_vl_moe_vision": ERNIE,
    "muse_glimmer_vision": MUSE,
    "muse_spark_vision": MUSE,
    "step3p5_vision": STEP,
    "radio": RADIO,
    "hy_v4_vl_vision": HY_V4,
    "phi4_multimodal_vision": PHI4,
    "cohere_compass_vision": SHARED["qwen3_vl_vision"],
    "qwen4_exp_vision": SHARED["qwen3_5_vision"],
    "git_vision_model": replace(CLIP, defaults={**CLIP.defaults, "patch_size": 16}),
}
TOWERS: Mapping[str, Tower] = {**SHARED, **SINGLE}
"""model_type of vision_config → its tower."""

"""Vision towers that are known by their tensors: windows of a hierarchy, convolutions between attentions. A step on
text holds them and runs none; what an image takes is not counted.

Fields, defaults and modules are those of the classes of Hugging Face transformers 5.24.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.architectures.idle import tensors
from napkin.architectures.vision.held_encoders import deit, donut, pix2struct, swin, vit
from napkin.architectures.vision.held_parts import HeldTower
from napkin.architectures.vision.held_towers import florence, got, lfm3, minicpm, molmo2, phi3
from napkin.errors import Refused
from napkin.inputs.model import Config
from napkin.operations.idle import Idle
from napkin.operations.model import Model
from napkin.operations.roles import IMAGE_PROJECTOR, IMAGES
from napkin.record import replace

IMAGE = {"image_size": 224, "patch_size": 16, "num_channels": 3}
VIT = {
    **IMAGE, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "qkv_bias": True,
}  # fmt: skip
SWIN = {
    **IMAGE, "patch_size": 4, "embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7,
    "mlp_ratio": 4.0, "qkv_bias": True, "use_absolute_embeddings": False,
}  # fmt: skip
SAM = {
    **IMAGE, "image_size": 1024, "hidden_size": 768, "output_channels": 256, "num_hidden_layers": 12,
    "num_attention_heads": 12, "qkv_bias": True, "use_abs_pos": True, "use_rel_pos": True, "window_size": 14,
    "global_attn_indexes": [2, 5, 8, 11], "mlp_dim": 3072,
}  # fmt: skip
FLORENCE = {
    "in_channels": 3, "depths": [1, 1, 9, 1], "patch_size": [7, 3, 3, 3], "patch_prenorm": [False, True, True, True],
    "embed_dim": [128, 256, 512, 1024], "num_heads": [4, 8, 16, 32], "mlp_ratio": 4.0, "qkv_bias": True,
    "projection_dim": 1024, "max_position_embeddings": 50,
}  # fmt: skip
GOT = HeldTower(got, SAM)
MINICPM = HeldTower(
    minicpm,
    {**IMAGE, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
     "window_kernel_size": [2, 2]},
)  # fmt: skip
LFM3_LAYERS = ["conv", *["conv", "full_attention"] * 6, "conv"]
TOWERS: Mapping[str, Mapping[str, HeldTower]] = {
    "vision-encoder-decoder": {
        "vit": HeldTower(vit, VIT),
        "deit": HeldTower(deit, VIT),
        "swin": HeldTower(swin, SWIN),
        "donut-swin": HeldTower(donut, SWIN),
    },
    "pix2struct": {
        "pix2struct_vision_model": HeldTower(
            pix2struct,
            {"hidden_size": 768, "patch_embed_hidden_size": 768, "d_ff": 2048, "d_kv": 64, "num_hidden_layers": 12,
             "num_attention_heads": 12, "seq_len": 4096},
        )
    },
    # as the files that came with its weights name them too
    "florence2": {
        "florence_vision": HeldTower(florence, FLORENCE),
        "davit": HeldTower(florence, FLORENCE, {"dim_embed": "embed_dim"}),
    },
    "phi3_v": {"clip_vision_model": HeldTower(phi3, {"image_dim_out": 1024})},
    "got_ocr2": {"got_ocr2_vision": GOT},
    "pp_chart2table": {"pp_chart2table_vision": GOT},
    "minicpmv4_6": {"minicpmv4_6_vision": MINICPM},
    "minicpm_ocr": {"minicpm_ocr_vision": MINICPM},
    "minicpmv4_7": {"minicpmv4_7_vision": MINICPM},
    "lfm3_vl": {
        "lfm3_vl_vision": HeldTower(
            lfm3,
            {"hidden_size": 1024, "intermediate_size": 2560, "in_channels": 3, "patch_size": 16,
             "spatial_merge_size": 2, "temporal_patch_size": 2, "num_hidden_layers": 14, "num_attention_heads": 16,
             "num_key_value_heads": 8, "conv_kernel_size": 3, "layer_types": LFM3_LAYERS},
        )
    },
    "molmo2": {
        "molmo2_vision": HeldTower(
            molmo2,
            {**IMAGE, "image_size": [378, 378], "hidden_size": 1152, "intermediate_size": 4304,
             "num_hidden_layers": 25, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72,
             "patch_size": 14, "attention_bias": True},
            {"image_default_input_size": "image_size", "image_patch_size": "patch_size",
             "image_num_pos": "num_position_embeddings"},
        )
    },
}  # fmt: skip
"""Multimodal model_type → the towers that it may have, by their model_type, the class's own first."""
BLOCKS = {
    "vision-encoder-decoder": ("encoder",),
    "phi3_v": ("img_processor",),
    "molmo2": ("vision_config", "vit_config"),
}
"""Multimodal model_type → the fields that may describe its tower, if it is not vision_config."""


def with_tower(model: Model, config: Config, kind: str) -> Model | None:
    """Return a model that also holds the tensors of the vision tower of a multimodal config of this model_type; None,
    where napkin does not know them."""
    fields = BLOCKS.get(kind, ("vision_config",))
    field = next((one for one in fields if one in config.fields), fields[0])
    towers, block = TOWERS.get(kind), config.mapping(field, required=False)
    if towers is None or block is None:
        return None
    own, named = next(iter(towers)), block.get("model_type")
    named = own if not named or named == kind else named  # older files name every part as the whole
    if not isinstance(named, str) or named not in towers:
        return None
    tower = towers[named]
    try:
        held, between = tower.shapes(config.block(field, named, tower.defaults, tower.aliases), config, model.hidden)
    except Refused as problem:  # a value that no class takes is an error
        config.notes.append(f"the vision tower is not counted: {problem.message}")
        return None
    idle = [Idle("vision", (), (tensors("vision_tower", held),), trained=True, role=IMAGES)]
    if between:
        projector = tensors("vision_projector", between)
        idle.append(Idle("vision_projector", (), (projector,), trained=True, role=IMAGE_PROJECTOR))
    *others, last = model.stacks
    return replace(model, stacks=(*others, replace(last, after=(*idle, *last.after))))

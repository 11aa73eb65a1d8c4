"""Vision towers that are known by their tensors: windows of a hierarchy, convolutions between attentions. A step on
text holds them and runs none; what an image takes is not counted.

Fields, defaults and modules are those of the classes of Hugging Face transformers 5.24.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin.architectures.idle import tensors
from napkin.architectures.shapes import Shapes, attention, linear, norm, repeated, together
from napkin.architectures.vision.held_parts import Q_K_V, HeldTower, encoder_layer, patches, stages
from napkin.architectures.vision.held_towers import florence, got, lfm3, minicpm, molmo2, phi3
from napkin.architectures.vision.tower import grid
from napkin.errors import Refused
from napkin.inputs.model import Config, number_in
from napkin.operations.idle import Idle
from napkin.operations.model import Model
from napkin.operations.roles import IMAGE_PROJECTOR, IMAGES
from napkin.record import replace


def vit(config: Config, outer: Config, hidden: int, learned: int = 1) -> tuple[Shapes, Shapes]:
    """Return ViT's (arXiv:2010.11929), with a pooler and, where the widths differ, a projection to the decoder's."""
    width, layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    rows, columns = grid(config)
    tower = together(
        {"learned": (learned, width), "positions": (rows * columns + learned, width)},
        patches(config, width),
        repeated(layers, "layers", *encoder_layer(width, config.integer("intermediate_size"), config.flag("qkv_bias"))),
        norm("layernorm", width),
        linear("pooler.dense", width, width),
    )
    return tower, to_decoder(width, hidden)


def swin(config: Config, outer: Config, hidden: int, normed: bool = True) -> tuple[Shapes, Shapes]:
    """Return Swin's (arXiv:2103.14030): windows, and a merger of squares behind each stage but the last. Donut's ends
    without a norm."""
    width, (depths, heads) = config.integer("embed_dim"), stages(config)
    side, ratio = 2 * config.integer("window_size") - 1, number_in(config.real("mlp_ratio"))
    parts: list[Shapes] = [patches(config, width), norm("embeddings.norm", width)]
    rows, columns = grid(config)
    if config.flag("use_absolute_embeddings"):
        parts.append({"positions": (rows * columns, width)})
    for stage, (depth, many) in enumerate(zip(depths, heads, strict=True)):
        layer = *encoder_layer(width, int(ratio * width), config.flag("qkv_bias")), {"distances": (side**2, many)}
        parts.append(repeated(depth, f"stages.{stage}", *layer))
        if stage < len(depths) - 1:
            parts += [
                linear(f"stages.{stage}.reduction", 4 * width, 2 * width, bias=False),
                norm(f"stages.{stage}.norm", 4 * width),
            ]
            width *= 2
    ends = norm("layernorm", width) if normed else {}
    return together(*parts, ends), to_decoder(width, hidden)


def donut(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return Donut's (arXiv:2111.15664)."""
    return swin(config, outer, hidden, normed=False)


def deit(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return DeiT's (arXiv:2012.12877): ViT's with a second learned token."""
    return vit(config, outer, hidden, learned=2)


def to_decoder(width: int, hidden: int) -> Shapes:
    """Return the projection of an encoder's results to the width of the decoder, if it is another."""
    return linear("enc_to_dec_proj", width, hidden) if width != hidden else {}


def pix2struct(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return Pix2Struct's (arXiv:2210.03347): T5's layers without biases, and tables of rows and columns."""
    width, inner = config.integer("hidden_size"), config.integer("d_ff")
    heads = config.integer("num_attention_heads") * config.integer("d_kv")
    rows = config.integer("seq_len")
    layer = (
        norm("pre_attention_layer_norm", width, bias=False),
        attention(width, Q_K_V, (False,) * 4, heads),
        norm("pre_mlp_layer_norm", width, bias=False),
        together(linear("wi_0", width, inner, bias=False), linear("wi_1", width, inner, bias=False)),
        linear("wo", inner, width, bias=False),
    )
    tower = together(
        linear("patch_projection", config.integer("patch_embed_hidden_size"), width),
        {"row_embedder": (rows, width), "column_embedder": (rows, width)},
        repeated(config.integer("num_hidden_layers"), "layers", *layer),
        norm("layernorm", width, bias=False),
    )
    return tower, {}


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

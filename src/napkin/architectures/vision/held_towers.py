"""Vision towers of multimodal models that are known by their tensors."""

from napkin.architectures.reading import DEEPEST, integers
from napkin.architectures.shapes import Shapes, attention, convolution, feed_forward, linear, norm, repeated, together
from napkin.architectures.vision.held_parts import Q_K_V, encoder_layer, patches, stages
from napkin.architectures.vision.tower import grid, patch_sides
from napkin.inputs.model import Config, number_in


def florence(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return Florence-2's (arXiv:2311.06242): stages of attention within windows, and over channels (arXiv:2204.03645),
    each behind and before a convolution of each channel; a projection with tables of rows and columns."""
    widths, sides = integers(config, "embed_dim"), integers(config, "patch_size")
    depths, _ = stages(config)
    ahead = config.items("patch_prenorm") or []
    if not len(widths) == len(sides) == len(depths) == len(ahead):
        raise config.wrong("embed_dim", "has another length than depths, patch_size and patch_prenorm")
    ratio, before = number_in(config.real("mlp_ratio")), config.integer("in_channels")
    parts: list[Shapes] = []
    for stage, (width, side, depth, first) in enumerate(zip(widths, sides, depths, ahead, strict=True)):
        halves = (
            together(
                convolution("conv1", 1, width, 3, 3),
                norm("norm1", width),
                linear("qkv", width, 3 * width, config.flag("qkv_bias")),
                linear("proj", width, width),
                convolution("conv2", 1, width, 3, 3),
                norm("norm2", width),
                feed_forward(width, int(ratio * width), ("ffn.fc1", "ffn.fc2")),
                within=name,
            )
            for name in ("spatial_block", "channel_block")
        )
        stem = convolution("conv", before, width, side, side), norm("norm", before if first is True else width)
        parts += [together(*stem, within=f"convs.{stage}"), repeated(depth, f"blocks.{stage}", *halves)]
        before = width
    out, rows = config.integer("projection_dim"), config.integer("max_position_embeddings")
    half = before // 2
    tables = {"row_embeddings": (rows, half), "column_embeddings": (rows, before - half)}
    projector = together(linear("image_projection", before, out, bias=False), norm("image_proj_norm", out), tables)
    return together(*parts), projector


def sam(config: Config) -> tuple[Shapes, int]:
    """Return SAM's encoder (arXiv:2304.02643), with tables of distances by rows and columns in each layer, whose
    windows are smaller than an image in all but some; and the channels of its results."""
    width, layers, out = (config.integer(one) for one in ("hidden_size", "num_hidden_layers", "output_channels"))
    each = config.divides("num_attention_heads", width, config.integer("num_attention_heads"), "(hidden_size)")
    rows, columns = grid(config)
    window, whole = config.integer("window_size"), set(config.items("global_attn_indexes") or [])
    if layers > DEEPEST:
        raise config.wrong("num_hidden_layers", f"{layers:,} layers are more than {DEEPEST:,}")
    among = sum(i in whole for i in range(layers))
    bias, near = config.flag("qkv_bias"), config.flag("use_rel_pos")
    layer = (
        norm("layer_norm1", width),
        linear("qkv", width, 3 * width, bias),
        linear("proj", width, width),
        norm("layer_norm2", width),
        feed_forward(width, config.integer("mlp_dim"), ("mlp.lin1", "mlp.lin2")),
    )

    def distances(high: int, wide: int) -> Shapes:
        return {"rel_pos_h": (2 * high - 1, each), "rel_pos_w": (2 * wide - 1, each)} if near else {}

    found = together(
        {"pos_embed": (rows * columns, width)} if config.flag("use_abs_pos") else {},
        patches(config, width),
        repeated(layers, "layers", *layer),
        repeated(layers - among, "windowed", distances(window, window)),
        repeated(among, "whole", distances(rows, columns)),
        together(
            convolution("conv1", width, out, 1, 1, bias=False),
            norm("layer_norm1", out),
            convolution("conv2", out, out, 3, 3, bias=False),
            norm("layer_norm2", out),
            within="neck",
        ),
    )
    return found, out


def got(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return GOT-OCR 2.0's (arXiv:2409.01704): SAM's encoder, two convolutions, and a linear layer."""
    found, out = sam(config)
    return found, together(
        convolution("conv_upsampler1", out, 2 * out, 3, 3, bias=False),
        convolution("conv_upsampler2", 2 * out, hidden, 3, 3, bias=False),
        linear("multimodal_projector", hidden, hidden),
    )


def molmo2(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return Molmo 2's: an encoder of which some layers are read, attention of a square's mean to its patches, and a
    gated network."""
    width, layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    adapter = outer.block("adapter_config", "molmo2_adapter", MOLMO2_ADAPTER, {"vit_layers": "vision_feature_layer"})
    seen = layers_read(adapter, "vision_feature_layer", layers)
    if "vision_config" not in outer.fields:  # released files state layers that nothing reads; the class has none
        layers = max(seen) + 1
    bias, inner = config.flag("attention_bias"), config.integer("intermediate_size")
    heads = config.integer("num_attention_heads") * config.integer("head_dim")
    rows, columns = grid(config)
    few = (config.optional_integer("num_key_value_heads") or config.integer("num_attention_heads")) * config.integer(
        "head_dim"
    )
    if few != heads:
        raise config.refuse("num_key_value_heads", "is not the number of attention heads")
    layer = (
        norm("layer_norm1", width),
        attention(width, Q_K_V, (bias,) * 4, heads),
        norm("layer_norm2", width),
        feed_forward(width, inner, ("mlp.fc1", "mlp.fc2")),
    )
    own, read = adapter.integer("hidden_size"), len(seen)
    pooled = adapter.integer("num_attention_heads") * adapter.integer("head_dim")
    shared = adapter.integer("num_key_value_heads") * adapter.integer("head_dim")
    biased, wide, between = adapter.flag("attention_bias"), read * width, adapter.integer("intermediate_size")
    mlp, out = adapter.flag("mlp_bias"), adapter.integer("text_hidden_size")
    tower = together(
        {"positional_embedding": (config.optional_integer("num_position_embeddings") or rows * columns, width)},
        patches(config, width),
        repeated(layers, "layers", *layer),
    )
    return tower, together(
        linear("q_proj", wide, pooled, biased),
        linear("k_proj", wide, shared, biased),
        linear("v_proj", wide, shared, biased),
        linear("o_proj", pooled, own, biased),
        linear("gate_proj", own, between, mlp),
        linear("up_proj", own, between, mlp),
        linear("down_proj", between, out, bias=False),
    )


def layers_read(config: Config, field: str, layers: int) -> list[int]:
    """Read which of so many layers are read; negative numbers count from the last."""
    found = config.items(field) or []
    if not found or not all(type(one) is int and -layers <= one < layers for one in found):
        raise config.wrong(field, f"is not a list of some of {layers:,} layers")
    return [one % layers for one in found]


def phi3(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return Phi-3-vision's (image_embedding_phi3_v.py of microsoft/Phi-3-vision-128k-instruct): CLIP's encoder of
    large size (arXiv:2103.00020), which its code states, over 336 × 336 pixels, learned separators, and an MLP over
    squares of patches."""
    width, inner, layers, patch, positions = 1024, 4096, 24, 14, 24 * 24 + 1
    if config.integer("image_dim_out") != width:
        raise config.refuse("image_dim_out", f"is not {width:,}, the width of the tower of its code")
    tower = together(
        {"class_embedding": (width,), "positions": (positions, width)},
        convolution("patches", 3, width, patch, patch, bias=False),
        norm("pre_layrnorm", width),
        repeated(layers, "layers", *encoder_layer(width, inner)),
        norm("post_layernorm", width),
    )
    return tower, together(
        {"glb_GN": (4 * width,), "sub_GN": (4 * width,)},
        linear("img_projection.0", 4 * width, hidden),
        linear("img_projection.2", hidden, hidden),
    )


def lfm3(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return LFM3-VL's: layers of attention and of gated convolutions over rows and columns, each with a gated
    network."""
    width, inner = config.integer("hidden_size"), config.integer("intermediate_size")
    kinds, side = config.items("layer_types") or [], config.integer("conv_kernel_size")
    heads, few = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    each = config.divides("num_attention_heads", width, heads, "(hidden_size)")
    if len(kinds) != config.integer("num_hidden_layers") or not {*map(str, kinds)} <= {"conv", "full_attention"}:
        raise config.wrong("layer_types", "is not a list of conv and full_attention, one for each layer")
    attends = sum(kind == "full_attention" for kind in kinds)
    elements = config.integer("in_channels") * config.integer("temporal_patch_size")
    both = (
        together(*(linear(name, width, inner, bias=False) for name in ("w1", "w3")), linear("w2", inner, width, False)),
        norm("operator_norm", width, bias=False),
        norm("ffn_norm", width, bias=False),
    )
    attended = (
        *(linear(name, width, wide, bias=False) for name, wide in (("q", width), ("k", few * each), ("v", few * each))),
        linear("out", width, width, bias=False),
        norm("q_norm", each, bias=False),
        norm("k_norm", each, bias=False),
    )
    convolved = (
        linear("in_proj", width, 3 * width, bias=False),
        convolution("spatial_conv", 1, width, side, side, bias=False),
        linear("out_proj", width, width, bias=False),
    )
    high, across = patch_sides(config)
    wide, bias = config.integer("spatial_merge_size") ** 2 * width, outer.flag("projector_bias", otherwise=True)
    between = outer.optional_integer("projector_hidden_size") or LFM3_PROJECTOR
    tower = together(
        linear("patch_embed", elements * high * across, width, bias=False),
        norm("embedding_norm", width, bias=False),
        repeated(len(kinds), "layers", *both),
        repeated(attends, "self_attn", *attended),
        repeated(len(kinds) - attends, "conv", *convolved),
    )
    return tower, together(
        norm("projector_norm", width),
        linear("linear_1", wide, between, bias),
        linear("linear_2", between, hidden, bias),
    )


LFM3_PROJECTOR = 4096
"""Width of LFM3-VL's projector where the file states none."""


def minicpm(config: Config, outer: Config, hidden: int) -> tuple[Shapes, Shapes]:
    """Return MiniCPM-V 4.6's: SigLIP's encoder, in whose middle attention within squares merges their patches, and
    networks over squares of what is left, one for each time that they are merged."""
    width, inner = config.integer("hidden_size"), config.integer("intermediate_size")
    rows, columns = grid(config)
    squares = 1
    for side in integers(config, "window_kernel_size"):
        squares *= side
    times, wide, last = outer.optional_integer("merger_times") or 1, squares * width, 4 * width
    merged = (
        norm("layer_norm1", width),
        attention(width, Q_K_V, (True,) * 4),
        norm("pre_norm", wide),
        linear("linear_1", wide, squares * inner),
        linear("linear_2", squares * inner, width),
    )
    networks = (
        together(
            norm("pre_norm", last),
            linear("linear_1", last, last),
            linear("linear_2", last, hidden if n == times - 1 else width),
            within=f"merger.{n}",
        )
        for n in range(min(times, DEEPEST))
    )
    tower = together(
        patches(config, width),
        {"position_embedding": (rows * columns, width)},
        repeated(config.integer("num_hidden_layers"), "layers", *encoder_layer(width, inner)),
        norm("post_layernorm", width),
        together(*merged, within="vit_merger"),
    )
    return tower, together(*networks)


MOLMO2_ADAPTER = {
    "vision_feature_layer": [24, 18], "hidden_size": 1152, "num_attention_heads": 16, "num_key_value_heads": 16,
    "head_dim": 72, "attention_bias": True, "intermediate_size": 18944, "text_hidden_size": 3584, "mlp_bias": False,
}  # fmt: skip

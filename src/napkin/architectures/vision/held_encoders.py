"""Encoders of images in front of a decoder, by their tensors: ViT, Swin, Donut, DeiT, Pix2Struct."""

from napkin.architectures.shapes import Shapes, attention, linear, norm, repeated, together
from napkin.architectures.vision.held_parts import Q_K_V, encoder_layer, patches, stages
from napkin.architectures.vision.tower import grid
from napkin.inputs.model import Config, number_in


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

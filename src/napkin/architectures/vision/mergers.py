"""Projectors that are a part of the tower: its own config states their shapes, as in the classes of Hugging Face
transformers 5.23.0."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.blocks import LAYER, Operations, gated_mlp
from napkin.architectures.vision.projectors import Projected, Sees, normed_linears
from napkin.architectures.vision.single_kinds import TOWERS
from napkin.architectures.vision.tower import two_linears
from napkin.inputs.model import Config
from napkin.operations.images import Reorder
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Activation, Softmax


def merged_mlp(sees: Sees) -> Projected:
    """Return Inkling 2's: two linear layers over squares of patches."""
    vision = sees.vision
    squares, bias = vision.integer("spatial_merge_size") ** 2, vision.flag("projector_bias")
    first, source = sees.read(squares, ordered=True)
    widths = squares * sees.width, vision.integer("projection_hidden_dim"), sees.hidden
    found = two_linears(widths, vision.text("hidden_act"), bias, source)
    return Projected((*first, *found), sees.patches // squares, squares)


def kimi_vl(sees: Sees) -> Projected:
    """Return Kimi-VL's: a norm of each patch and two linear layers over rectangles of them."""
    sides = sees.vision.items("merge_kernel_size") or []
    if len(sides) != 2 or not all(isinstance(side, int) and 0 < side < 100 for side in sides):
        raise sees.vision.wrong("merge_kernel_size", "is not two sizes in patches")
    squares = sides[0] * sides[1]
    return normed_linears(sees, squares, squares * sees.width, "gelu", over=False)


def kimi(sees: Sees) -> Projected:
    """Return Kimi K2.5's: Kimi-VL's, whose config states the width of the norm."""
    normed = sees.config.integer("projection_hidden_size")
    if normed != sees.width:
        raise sees.config.wrong("projection_hidden_size", f"is {normed}, and the tower's results have {sees.width}")
    return kimi_vl(sees)


def paddle(sees: Sees) -> Projected:
    """Return PaddleOCR-VL's: the same over squares."""
    squares = sees.vision.integer("spatial_merge_size") ** 2
    return normed_linears(sees, squares, squares * sees.width, "gelu", over=False)


def merger(sees: Sees) -> Projected:
    """Return Qwen-VL's: a norm, and two linear layers over squares of patches; DeepStack's further ones."""
    kind, vision = TOWERS[sees.vision.model_type], sees.vision
    squares = vision.integer("spatial_merge_size") ** 2
    wide = squares * sees.width
    out = vision.integer("hidden_size" if kind.names.width == "embed_dim" else "out_hidden_size")
    more = len(vision.items("deepstack_visual_indexes", required=False) or [])
    found: Operations = (
        kind.norm("merger_norm", "x", sees.width, squares),
        *two_linears((wide, wide, out), "gelu", source="merger_norm", names=("merger_1", "merger_2")),
    )
    deep: Operations = ()
    for i in range(more):
        norm, names = f"deepstack_{i}_norm", (f"deepstack_{i}_1", f"deepstack_{i}_2")
        deep += (kind.norm(norm, "x", wide), *two_linears((wide, wide, out), "gelu", source=norm, names=names))
    if kind.mixing.windows is not None:
        found += (Reorder("by_rows", (found[-1].name,), out),)
    return Projected((*deep, *found), sees.patches // squares, squares, out)


def merged_and_projected(sees: Sees) -> Projected:
    """Return Qwen-VL's, and a linear layer from its width to the language model's."""
    merged = merger(sees)
    last = Matmul("mm_projector", (merged.operations[-1].name,), merged.width, sees.hidden, True)
    return Projected((*merged.operations, last), merged.tokens, merged.merged, sees.hidden)


def glm(sees: Sees, inner: Callable[[Config], int]) -> Projected:
    """Return GLM-4V's: a convolution over squares of patches, a linear layer with a norm, a gated MLP."""
    vision = sees.vision
    squares, out = vision.integer("spatial_merge_size") ** 2, vision.integer("out_hidden_size")
    feed = partial(gated_mlp, width=out, inner=inner(vision), function=vision.text("hidden_act"))
    found: Operations = (
        Matmul("downsample", ("x",), squares * sees.width, out, True),
        Matmul("proj", ("downsample",), out, out),
        LAYER("post_projection_norm", "proj", out),
        Activation("proj_activation", ("post_projection_norm",), out, "gelu"),
        *feed("proj_activation"),
    )
    return Projected(found, sees.patches // squares, squares, out)


def minimax(sees: Sees) -> Projected:
    """Return MiniMax-M3's: two linear layers for each patch, then two over squares of them."""
    squares, hidden = sees.vision.integer("spatial_merge_size") ** 2, sees.hidden
    inner = sees.config.integer("projector_hidden_size")
    each = two_linears((sees.width, inner, hidden), "gelu")
    found = two_linears((squares * hidden, inner, hidden), "gelu", names=("merge_linear_1", "merge_linear_2"))
    return Projected(found, sees.patches // squares, squares, each=each)


def deep_aligned(sees: Sees) -> Projected:
    """Return Janus's: a linear layer and as many more as its vision_config states, with activations between."""
    vision = sees.vision
    out, depth = vision.integer("projection_dim"), vision.integer("depth")
    if depth > 100:
        raise vision.wrong("depth", f"{depth:,} layers of a projector")
    found: Operations = (Matmul("fc1", ("x",), sees.width, out, True),)
    for i in range(depth - 1):
        found += (
            Activation(f"activation_{i}", (found[-1].name,), out, vision.text("hidden_act")),
            Matmul(f"hidden_{i}", (f"activation_{i}",), out, out, True),
        )
    return Projected(found, sees.patches, width=out)


def llama4(sees: Sees) -> Projected:
    """Return Llama 4's: an MLP over squares of patches whose result is activated too, and one matrix."""
    vision = sees.vision
    ratio = vision.real("pixel_shuffle_ratio") or 0
    if not 0 < ratio <= 1:
        raise vision.wrong("pixel_shuffle_ratio", "is not between 0 and 1")
    squares = int(1 / ratio) ** 2
    first, out = vision.integer("projector_input_dim"), vision.integer("projector_output_dim")
    wide = vision.integer("intermediate_size")
    read = vision.integer("vision_output_dim")
    ordered, source = sees.read(squares, ordered=True)
    found: Operations = (
        *ordered,
        *two_linears((wide, first, out), "gelu", False, source, ("adapter_1", "adapter_2")),
        Activation("adapter_activation", ("adapter_2",), out, "gelu"),
        Matmul("linear_1", ("adapter_activation",), read, sees.hidden),
    )
    return Projected(found, sees.patches // squares, squares)


def ovis2(sees: Sees) -> Projected:
    """Return Ovis 2's: scores over a visual vocabulary, whose probabilities weight an embedding table."""
    vision = sees.vision
    stride, rows = vision.integer("hidden_stride"), vision.integer("vocab_size")
    indicators = vision.integer("num_visual_indicator_tokens")
    scored, out = rows - indicators, sees.config.integer("hidden_size")
    found: Operations = (
        Matmul("head_linear", ("x",), stride**2 * sees.width, scored),
        LAYER("head_norm", "head_linear", scored),
        Softmax("probabilities", ("head_norm",), scored),
        Matmul("visual_embeddings_table", ("probabilities",), rows, out),
    )
    return Projected(found, sees.patches // stride**2, stride**2, out)

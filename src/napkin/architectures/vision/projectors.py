"""What projects a tower's results to the tokens of the language model, as the classes of Hugging Face transformers
5.23.0 do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.blocks import LAYER, RMS, RMS_BARE, RMS_OFFSET, Operations, gated_mlp
from napkin.architectures.vision.kinds import TOWERS
from napkin.architectures.vision.tower import two_linears
from napkin.inputs.model import Config
from napkin.operations.images import ParameterProduct, Patches, Pool, Reorder, Softmax
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.pointwise import Activation, Scale
from napkin.operations.roles import REPLICATED
from napkin.record import record


@record
class Sees:
    """What a projector is built from.

    config   of the multimodal model, with its class's defaults      vision  its vision_config
    width    of the tower's results     several  layers of the tower that are concatenated
    rows, columns  of an image's patches, 0 where the config does not fix them
    added    learned tokens next to the patches, of which `without` are left out
    hidden   width of the language model
    """

    config: Config
    vision: Config
    width: int
    several: int
    rows: int
    columns: int
    added: int
    without: int
    hidden: int

    @property
    def patches(self) -> int:
        """Tokens of an image that are read."""
        grid = self.rows * self.columns
        return grid + self.added - self.without if grid else 0

    def read(self, merged: int = 1, ordered: bool = False) -> tuple[Operations, str]:
        """Return what is read of the tower's results ("x"), and its name; `ordered`: `merged` patches are put together,
        which copies."""
        wide = self.several * merged * self.width
        if not (ordered or self.without):
            return (), "x"
        return (Patches("patches", ("x",), wide, 0 if ordered else self.without, ordered),), "patches"


@record
class Projected:
    """A projector: its operations, which read "x" (`merged` patches for each token), the tokens of an image (0: the
    config does not fix them), and the width of its results (0: the language model's). `each`: what runs over every
    patch before patches are merged."""

    operations: Operations
    tokens: int
    merged: int = 1
    width: int = 0
    each: Operations = ()


Projector = Callable[[Sees], Projected]


def vector(name: str, width: int) -> Parameters:
    """Return a learned vector of its own."""
    return Parameters(name, (), (("weight", (width,)),), REPLICATED)


def llava(sees: Sees, newline: bool = False) -> Projected:
    """Return LLaVA's: two linear layers; `newline`: a learned vector ends each row of patches."""
    bias, function = sees.config.flag("multimodal_projector_bias"), sees.config.text("projector_hidden_act")
    first, source = sees.read()
    found = two_linears((sees.several * sees.width, sees.hidden, sees.hidden), function, bias, source)
    own = (vector("image_newline", sees.hidden),) if newline else ()
    return Projected((*first, *own, *found), sees.patches)


def unprojected(sees: Sees) -> Projected:
    """Return the tower's results, the first token included: the language model's layers project them (Idefics)."""
    if sees.config.flag("use_resampler"):
        raise sees.config.refuse("use_resampler", "napkin does not know what resamples its results")
    grid = sees.rows * sees.columns
    features = Patches("features", ("x",), sees.width)
    return Projected((features,), grid + sees.added if grid else 0, width=sees.width)


def vip(sees: Sees) -> Projected:
    """Return ViP-LLaVA's: a norm over several of the tower's layers and two linear layers."""
    wide = sees.several * sees.width
    first, source = sees.read()
    found = two_linears((wide, sees.hidden, sees.hidden), "gelu", source="projector_norm")
    return Projected((*first, LAYER("projector_norm", source, wide), *found), sees.patches)


def gemma3(sees: Sees) -> Projected:
    """Return Gemma 3's: mean pooling, a norm and one matrix."""
    tokens = sees.config.integer("mm_tokens_per_image")
    merged = max(1, sees.patches // tokens)
    found = (
        Pool("pooled", ("x",), sees.width, merged),
        RMS_OFFSET("soft_emb_norm", "pooled", sees.width),
        ParameterProduct("input_projection", ("soft_emb_norm",), sees.width, sees.hidden),
    )
    return Projected(found, tokens, merged)


def gemma4(sees: Sees) -> Projected:
    """Return Gemma 4's: mean pooling over squares of patches, scaled by a constant; a norm without weights; one matrix.

    The class pools with a product of patches and a matrix of zeros and ones, which is not counted: 1.3 % of the FLOPs
    of a very small tower, less of others."""
    squares = sees.vision.integer("pooling_kernel_size") ** 2
    found = (
        Pool("pooled", ("x",), sees.width, squares),
        Scale("pooled_scaled", ("pooled",), sees.width),
        RMS_BARE("embedding_pre_projection_norm", "pooled_scaled", sees.width),
        Matmul("embedding_projection", ("embedding_pre_projection_norm",), sees.width, sees.hidden),
    )
    return Projected(found, sees.patches // squares, squares)


def paligemma(sees: Sees) -> Projected:
    """Return PaliGemma's: one linear layer."""
    wide = sees.config.integer("projection_dim")
    return Projected((Matmul("linear", ("x",), sees.width, wide, True),), sees.patches, width=wide)


def shuffled(sees: Sees) -> Projected:
    """Return Idefics 3's: one matrix over squares of patches."""
    squares = sees.config.integer("scale_factor") ** 2
    first, source = sees.read(squares, ordered=True)
    matrix = Matmul("modality_projection", (source,), squares * sees.width, sees.hidden)
    return Projected((*first, matrix), sees.patches // squares, squares)


def mistral3(sees: Sees) -> Projected:
    """Return Mistral Small 3.1's: a norm, a matrix over squares of patches, two linear layers."""
    side, width = sees.config.integer("spatial_merge_size"), sees.width
    bias, function = sees.config.flag("multimodal_projector_bias"), sees.config.text("projector_hidden_act")
    found = two_linears((sees.several * width, sees.hidden, sees.hidden), function, bias, "merging_layer")
    ordered = Patches("patches", ("norm",), side**2 * width, ordered=True)
    merged = Matmul("merging_layer", ("patches",), side**2 * width, width)
    tokens = sees.rows // side * (sees.columns // side)
    return Projected((RMS("norm", "x", width, side**2), ordered, merged, *found), tokens, side**2)


def internvl(sees: Sees) -> Projected:
    """Return InternVL's: a norm over squares of patches and two linear layers."""
    ratio = sees.config.real("downsample_ratio") or 0
    if not 0 < ratio <= 1:
        raise sees.config.wrong("downsample_ratio", "is not between 0 and 1")
    squares = int(1 / ratio) ** 2
    return normed_linears(sees, squares, sees.hidden, sees.config.text("projector_hidden_act"))


def normed_linears(
    sees: Sees, squares: int, inner: int, function: str, *, over: bool = True, bias: bool = True, normed: bool = True
) -> Projected:
    """Return a norm and two linear layers over squares of patches. `over`: the norm is over a square, else over each
    patch."""
    wide = squares * sees.width
    first, source = sees.read(squares, ordered=over)
    found = two_linears((wide, inner, sees.hidden), function, bias, "projector_norm" if normed else source)
    norm = LAYER("projector_norm", source, wide) if over else LAYER("projector_norm", source, sees.width, squares)
    return Projected((*first, *((norm,) if normed else ()), *found), sees.patches // squares, squares)


def lfm2(sees: Sees) -> Projected:
    """Return LFM2-VL's: a norm over squares of patches, where there is one, and two linear layers."""
    config = sees.config
    return normed_linears(
        sees,
        config.integer("downsample_factor") ** 2,
        config.integer("projector_hidden_size"),
        config.text("projector_hidden_act"),
        bias=config.flag("projector_bias"),
        normed=config.flag("projector_use_layernorm"),
    )


def merged_mlp(sees: Sees) -> Projected:
    """Return Inkling 2's: two linear layers over squares of patches."""
    vision = sees.vision
    squares, bias = vision.integer("spatial_merge_size") ** 2, vision.flag("projector_bias")
    first, source = sees.read(squares, ordered=True)
    widths = squares * sees.width, vision.integer("projection_hidden_dim"), sees.hidden
    found = two_linears(widths, vision.text("hidden_act"), bias, source)
    return Projected((*first, *found), sees.patches // squares, squares)


def kimi(sees: Sees) -> Projected:
    """Return Kimi K2.5's: a norm of each patch and two linear layers over rectangles of them."""
    sides = sees.vision.items("merge_kernel_size") or []
    if len(sides) != 2 or not all(isinstance(side, int) and 0 < side < 100 for side in sides):
        raise sees.vision.wrong("merge_kernel_size", "is not two sizes in patches")
    squares = sides[0] * sides[1]
    return normed_linears(sees, squares, squares * sees.width, "gelu", over=False)


def paddle(sees: Sees) -> Projected:
    """Return PaddleOCR-VL's: the same over squares."""
    squares = sees.vision.integer("spatial_merge_size") ** 2
    return normed_linears(sees, squares, squares * sees.width, "gelu", over=False)


def gated(sees: Sees, norm: bool, usual: int) -> Projected:
    """Return Cohere's: a gated unit over squares of patches; Aya Vision's has a norm before it. `usual`: the width
    between, where the config does not state it (0: the language model's)."""
    squares = sees.config.integer("downsample_factor") ** 2
    inner = sees.config.optional_integer("alignment_intermediate_size") or usual or sees.hidden
    wide = squares * sees.width
    first, source = sees.read(squares, ordered=True)
    found: Operations = (
        Matmul("linear_1", ("projector_norm" if norm else source,), wide, inner, True),
        Activation("linear_1_activation", ("linear_1",), inner // 2, "silu"),
        Matmul("linear_2", ("linear_1_activation",), inner // 2, sees.hidden, True),
    )
    if norm:
        found = (LAYER("projector_norm", source, wide), *found)
    return Projected((*first, *found), sees.patches // squares, squares)


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
    each = two_linears((sees.width, hidden, hidden), "gelu")
    found = two_linears((squares * hidden, hidden, hidden), "gelu", names=("merge_linear_1", "merge_linear_2"))
    return Projected(found, sees.patches // squares, squares, each=each)


def aligned(sees: Sees) -> Projected:
    """Return DeepSeek-VL's and VideoLLaMA 3's: two linear layers."""
    return Projected(two_linears((sees.width, sees.hidden, sees.hidden), "gelu"), sees.patches)


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
    """Return Ovis 2's: scores over a visual vocabulary, whose probabilities weigh a table of embeddings."""
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

"""What projects a tower's results to the tokens of the language model, as the classes of Hugging Face transformers
5.23.0 do."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.blocks import LAYER, RMS, RMS_BARE, RMS_OFFSET, Operations
from napkin.architectures.vision.tower import two_linears
from napkin.inputs.model import Config
from napkin.operations.images import ParameterProduct, Patches, Pool
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Parts
from napkin.operations.pointwise import Activation, Scale
from napkin.operations.roles import REPLICATED
from napkin.record import record


@record
class Sees:
    """What a projector is built from.

    config   of the multimodal model, with its class's defaults      vision  its vision_config
    width    of the tower's results     several  layers of the tower that are concatenated
    rows, columns  of an image's patches, 0 if the config does not fix them
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

    @property
    def all(self) -> int:
        """Tokens of an image, the learned ones included."""
        grid = self.rows * self.columns
        return grid + self.added if grid else 0

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
    patch before patches are merged. `queries`: learned ones attend to the tower's results, in `layers` with operations
    `after` them; an image has as many tokens whatever its size."""

    operations: Operations
    tokens: int
    merged: int = 1
    width: int = 0
    each: Operations = ()
    queries: bool = False
    layers: Parts = ()
    after: Operations = ()


Projector = Callable[[Sees], Projected]


def vector(name: str, width: int) -> Parameters:
    """Return an operation for a learned vector."""
    return Parameters(name, (), (("weight", (width,)),), REPLICATED)


def llava(sees: Sees, newline: bool = False) -> Projected:
    """Return LLaVA's: two linear layers; `newline`: a learned vector ends each row of patches."""
    bias, function = sees.config.flag("multimodal_projector_bias"), sees.config.text("projector_hidden_act")
    first, source = sees.read()
    found = two_linears((sees.several * sees.width, sees.hidden, sees.hidden), function, bias, source)
    own = (vector("image_newline", sees.hidden),) if newline else ()
    return Projected((*first, *own, *found), sees.patches)


def unprojected(sees: Sees) -> Projected:
    """Return the tower's results, the first token included: the language model's layers read them (Idefics, BLIP)."""
    if sees.config.flag("use_resampler", otherwise=False):
        raise sees.config.refuse("use_resampler", "napkin does not know what resamples its results")
    return Projected((Patches("features", ("x",), sees.width),), sees.all, width=sees.width)


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


def shuffled(sees: Sees, side: str = "scale_factor") -> Projected:
    """Return Idefics 3's: one matrix over squares of patches. `side`: the field of their side."""
    squares = sees.config.integer(side) ** 2
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
    """Return LFM2-VL's: a norm over squares of patches, if there is one, and two linear layers."""
    config = sees.config
    return normed_linears(
        sees,
        config.integer("downsample_factor") ** 2,
        config.integer("projector_hidden_size"),
        config.text("projector_hidden_act"),
        bias=config.flag("projector_bias"),
        normed=config.flag("projector_use_layernorm"),
    )


def gated(sees: Sees, norm: bool, usual: int) -> Projected:
    """Return Cohere's: a gated unit over squares of patches; Aya Vision's has a norm before it. `usual`: the width
    between, if the config does not state it (0: the language model's)."""
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


def aligned(sees: Sees) -> Projected:
    """Return DeepSeek-VL's and VideoLLaMA 3's: two linear layers."""
    return Projected(two_linears((sees.width, sees.hidden, sees.hidden), "gelu"), sees.patches)

"""Projectors that one multimodal model has, as the classes of Hugging Face transformers 5.23.0 build them."""

from __future__ import annotations

from napkin.architectures.blocks import LAYER, RMS, RMS_BARE, Operations
from napkin.architectures.idle import idle, tensors
from napkin.architectures.vision.projectors import Projected, Sees, llava, normed_linears, vector
from napkin.architectures.vision.single_kinds import TOWERS
from napkin.architectures.vision.tower import patch_sides, tower, two_linears
from napkin.operations.convolutions import FrameConv
from napkin.operations.images import Pool
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer
from napkin.operations.pointwise import Activation
from napkin.operations.views import Concat


def cosmos_edge(sees: Sees) -> Projected:
    """Return Cosmos 3 Edge's: a norm of each patch and two linear layers over squares of them."""
    squares = sees.vision.integer("spatial_merge_size") ** 2
    return normed_linears(sees, squares, sees.config.integer("projector_hidden_size"), "gelu", over=False)


def dots(sees: Sees) -> Projected:
    """Return dots.ocr's: a norm of each patch and two linear layers over squares of them, to the width that the tower's
    config states."""
    squares, out = sees.vision.integer("spatial_merge_size") ** 2, sees.vision.integer("hidden_size")
    wide = squares * sees.width
    linears = two_linears((wide, wide, out), "gelu", source="merger_norm", names=("merger_1", "merger_2"))
    norm = LAYER("merger_norm", "x", sees.width, squares)
    return Projected((norm, *linears), sees.patches // squares, squares, out)


def ernie(sees: Sees) -> Projected:
    """Return ERNIE 4.5 VL's: two linear layers and a norm over squares of patches, the same over frames, of which an
    image has one that is taken as often, a linear layer and a norm."""
    squares, frames = sees.vision.integer("spatial_merge_size") ** 2, sees.vision.integer("temporal_merge_size")
    wide = squares * sees.width
    first, source = sees.read(squares)
    found: Operations = (
        *first,
        *two_linears((wide, wide, wide), "gelu", source=source, names=("spatial_1", "spatial_2")),
        LAYER("spatial_norm", "spatial_2", wide),
        Concat("frames", ("spatial_norm",) * frames, frames * wide),
        *two_linears((frames * wide, wide, wide), "gelu", source="frames", names=("temporal_1", "temporal_2")),
        LAYER("temporal_norm", "temporal_2", wide),
        Matmul("mlp", ("temporal_norm",), wide, sees.hidden, True),
        RMS("after_norm", "mlp", sees.hidden),
    )
    return Projected(found, sees.patches // squares, squares)


def muse(sees: Sees) -> Projected:
    """Return Muse's: two linear layers over squares of patches, the result of both activated, and one matrix whose
    result a norm without weights follows."""
    squares, function = sees.vision.integer("merge_size") ** 2, sees.config.text("projector_hidden_act")
    wide, inner = sees.config.integer("out_hidden_size"), sees.config.integer("projector_hidden_size")
    first, source = sees.read(squares, ordered=True)
    found: Operations = (
        *first,
        *two_linears((wide, inner, inner), function, False, source, ("adapter_1", "adapter_2")),
        Activation("adapter_activation", ("adapter_2",), inner, function),
        Matmul("vision_projection", ("adapter_activation",), inner, sees.hidden),
        RMS_BARE("perception_norm", "vision_projection", sees.hidden),
    )
    return Projected(found, sees.patches // squares, squares)


def step(sees: Sees) -> Projected:
    """Return Step 3.7's: two convolutions of 3 × 3 patches, each of which halves rows and columns, and one matrix."""
    width = sees.width
    found: Operations = (
        FrameConv("downsampler1", ("x",), width, 2 * width, kernel=9, frames=16, rate=4),
        FrameConv("downsampler2", ("downsampler1",), 2 * width, 4 * width, kernel=9, frames=4, rate=1),
        Matmul("multi_modal_projector", ("downsampler2",), 4 * width, sees.hidden, sees.config.flag("projector_bias")),
    )
    return Projected(found, -(-sees.rows // 4) * -(-sees.columns // 4), 16)


def nemotron(sees: Sees) -> Projected:
    """Return Nemotron Omni's: a norm over squares of patches and two linear layers; next to a language model that
    predicts further tokens, a norm of each patch too. The projection of a video's patches waits."""
    vision = sees.vision
    vision.must_be("use_swiglu_ffn", False)
    ratio = sees.config.real("downsample_ratio") or 0
    if not 0 < ratio <= 1:
        raise sees.config.wrong("downsample_ratio", "is not between 0 and 1")
    squares, inner = int(1 / ratio) ** 2, sees.config.integer("projector_hidden_size")
    text = sees.config.raw("text_config", required=False)
    more = text.get("num_nextn_predict_layers") if isinstance(text, dict) else None
    wide, (high, across) = squares * sees.width, patch_sides(vision)
    frames = vision.optional_integer("video_temporal_patch_size")
    elements = (frames or 0) * vision.integer("num_channels") * high * across
    video = (idle("video", (tensors("video_patches", {"weight": (sees.width, elements)}),)),) if frames else ()
    first, source = sees.read(squares, ordered=True)
    found: Operations = (
        *video,
        *first,
        RMS("projector_norm", source, wide),
        *two_linears((wide, inner, sees.hidden), "relu2", False, "projector_norm"),
    )
    each = (LAYER("vision_final_norm", "x", sees.width),) if more else ()
    return Projected(found, sees.patches // squares, squares, each=each)


def hy_v4(sees: Sees) -> Projected:
    """Return Hy4's: a norm of each patch and two linear layers over squares of them; a learned vector ends each row."""
    vision, squares = sees.vision, sees.vision.integer("spatial_merge_size") ** 2
    vision.must_be("num_key_value_heads", vision.integer("num_attention_heads"))
    wide, out = squares * sees.width, vision.integer("out_hidden_size")
    linears = two_linears((wide, wide, out), vision.text("hidden_act"), source="before_rms", names=("conv", "out"))
    found = (RMS("before_rms", "x", sees.width, squares), *linears)
    return Projected((vector("image_newline", out), *found), sees.patches // squares, squares, out)


def phi4(sees: Sees) -> Projected:
    """Return Phi-4-multimodal's: the mean of each square of patches and two linear layers. Learned vectors are put
    between rows and parts of an image, so that its tokens depend on its size."""
    found = (
        Pool("pooled", ("x",), sees.width, 4),
        *two_linears((sees.width, sees.hidden, sees.hidden), "gelu", source="pooled", names=("up", "down")),
    )
    vectors = vector("global_extensor", sees.width), vector("part_extensor", sees.width)
    return Projected((*vectors, *found), 0, 4)


def git(sees: Sees) -> Projected:
    """Return GIT's: a linear layer and a norm, of the class token too. Vectors of a video's frames wait."""
    frames = sees.config.optional_integer("num_image_with_embedding") or 0
    video = (idle("frames", (tensors("frame_vectors", {"weight": (frames, sees.width)}),)),) if frames else ()
    found: Operations = (
        *video,
        Matmul("visual_projection", ("x",), sees.width, sees.hidden, True),
        LAYER("visual_norm", "visual_projection", sees.hidden),
    )
    return Projected(found, sees.all)


def video_llava(sees: Sees) -> Projected:
    """Return LLaVA's, next to which a second tower of the same kind waits for videos."""
    found = llava(sees)
    second = tower(sees.vision, TOWERS[sees.vision.model_type], None)
    (patches,), (layers,) = second.patches.stacks, second.tower.stacks
    before = ((1, Layer("stem", (*patches.before, *layers.before))), *((count, layer) for count, layer in layers.runs))
    held = tuple(
        tensors(f"{layer.kind}_{op.name}", {one.name: (count, *one.shape) for one in op.weights()})
        for count, layer in before
        for op in layer.operations
        if op.weights()
    )
    return Projected((idle("video", held), *found.operations), found.tokens)

"""Vision towers of multimodal models and what projects their outputs to the language model: ViT, CLIP, SigLIP, Pixtral,
InternViT and Qwen-VL's, as the classes of Hugging Face transformers 5.23.0 build them.

An image's patches are the tokens of the tower; the tokens of the projector are those that the language model sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections
from napkin.architectures.blocks import LAYER, RMS, Block, NormStyle, Operations, gated_mlp, plain_mlp
from napkin.architectures.masked import BIDIRECTIONAL
from napkin.architectures.reading import DEEPEST
from napkin.errors import NapkinError
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Vision, stack_of
from napkin.operations.pointwise import Activation, Add
from napkin.operations.roles import POSITION, REPLICATED
from napkin.record import record, replace


@record
class Tower:
    """What sets one kind of vision tower apart. Text values name fields of vision_config.

    patch_bias      the patches' projection has a bias
    class_token     a learned token comes before the patches
    positions       learned positions: "grid" (one for each patch of the config's image), a field with their number, ""
    first, last     a norm precedes or ends the layers
    bias            of queries, keys and values; `out_bias` of attention's output; `mlp_bias`
    head            a field: the class ends with attention pooling
    frames          a field of how many frames a patch takes up
    merged          the tower itself projects groups of patches (Qwen-VL)
    deepstack       a field with the layers after which further projections read
    scaled          each branch is scaled by a learned vector
    defaults        of the configuration class
    """

    defaults: Mapping[str, Any]
    width: str = "hidden_size"
    depth: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    channels: str = "num_channels"
    norm: NormStyle = LAYER
    patch_bias: bool = True
    class_token: bool = False
    positions: str = "grid"
    first: bool = False
    last: bool = True
    bias: bool | str = True
    out_bias: bool = True
    fused: bool = False
    gated: bool = False
    mlp_bias: bool = True
    head: str = ""
    frames: str = ""
    merged: bool = False
    deepstack: str = ""
    scaled: bool = False


_VIT = {"num_channels": 3, "hidden_act": "gelu"}
_SIGLIP = Tower(
    {
        **_VIT, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 224, "patch_size": 16, "vision_use_head": True,
    },
    head="vision_use_head",
)  # fmt: skip
_IDEFICS = replace(
    _SIGLIP,
    head="",
    defaults={**_SIGLIP.defaults, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32},
)
_CLIP = Tower(
    {
        **_VIT, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu",
    },
    patch_bias=False,
    class_token=True,
    first=True,
)  # fmt: skip
_PIXTRAL = Tower(
    {
        **_VIT, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 1024, "patch_size": 16,
    },
    norm=RMS,
    patch_bias=False,
    positions="",
    first=True,
    last=False,
    bias=False,
    out_bias=False,
    gated=True,
    mlp_bias=False,
)  # fmt: skip
_INTERN = Tower(
    {
        **_VIT, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": [448, 448], "patch_size": [14, 14], "attention_bias": False,
    },
    class_token=True,
    last=False,
    bias="attention_bias",
    scaled=True,
)  # fmt: skip
_QWEN = Tower(
    {
        "depth": 32,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    depth="depth",
    heads="num_heads",
    channels="in_channels",
    patch_bias=False,
    positions="",
    last=False,
    fused=True,
    frames="temporal_patch_size",
    merged=True,
)  # fmt: skip
_QWEN2_VL = replace(
    _QWEN,
    defaults={**_QWEN.defaults, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "hidden_act": "quick_gelu"},
    width="embed_dim",
)
_QWEN2_5_VL = replace(
    _QWEN,
    defaults={
        **_QWEN.defaults, "hidden_size": 3584, "out_hidden_size": 3584, "intermediate_size": 3420, "hidden_act": "silu",
    },
    norm=RMS,
    gated=True,
)  # fmt: skip
_QWEN3_VL = replace(
    _QWEN,
    defaults={
        **_QWEN.defaults, "depth": 27, "hidden_size": 1152, "out_hidden_size": 3584, "intermediate_size": 4304,
        "patch_size": 16, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24],
        "hidden_act": "gelu_pytorch_tanh",
    },
    patch_bias=True,
    positions="num_position_embeddings",
    deepstack="deepstack_visual_indexes",
)  # fmt: skip
_QWEN3_5 = replace(_QWEN3_VL, deepstack="")
TOWERS: Mapping[str, Tower] = {
    "siglip_vision_model": _SIGLIP,
    "clip_vision_model": _CLIP,
    "pixtral": _PIXTRAL,
    "internvl_vision": _INTERN,
    "idefics3_vision": _IDEFICS,
    "smolvlm_vision": _IDEFICS,
    "qwen2_vl_vision": _QWEN2_VL,
    "qwen2_5_vl_vision": _QWEN2_5_VL,
    "qwen3_vl_vision": _QWEN3_VL,
    "qwen3_vl_moe_vision": _QWEN3_VL,
    "qwen3_5_vision": _QWEN3_5,
    "qwen3_5_moe_vision": _QWEN3_5,
}
"""model_type of vision_config → its tower."""


def vision_of(config: Config, hidden: int) -> Vision | None:
    """Return what a multimodal config does with images; None, where napkin does not know it. `hidden`: the width of the
    language model."""
    kind, usual = config.model_type, _TOWER_OF.get(config.model_type)
    block = config.raw("vision_config", required=False)
    if usual is None or not isinstance(block, dict):
        return None
    named = block.get("model_type", usual)
    if kind in _QWEN_FAMILY and isinstance(named, str) and named not in TOWERS:
        named = usual  # published files repeat the model's own type here
    if not isinstance(named, str) or named not in TOWERS:
        return None
    defaults = {**TOWERS[named].defaults, **_DEFAULTS.get(kind, {})}
    inner = Config(config.name, config.document, block, named, defaults, {}, (*config.prefix, "vision_config"))
    try:
        seen = _tower(inner, TOWERS[named])
        return PROJECTORS[kind](config, inner, seen, hidden)
    except NapkinError as problem:
        config.notes.append(f"the vision tower is not counted: {problem.message}")
        return None


def _sides(value: object) -> tuple[int, int] | None:
    """Return (height, width) of a size that is one number or two."""
    both = value if isinstance(value, list) else [value, value]
    whole = [one for one in both if isinstance(one, int) and not isinstance(one, bool) and 0 < one <= 10**6]
    return (whole[0], whole[1]) if len(both) == len(whole) == 2 else None


def _grid(config: Config) -> tuple[int, int, int]:
    """Read the patches of an image of the config's size, (rows, columns), and the pixels of a patch."""
    patch, image = _sides(config.raw("patch_size")), _sides(config.raw("image_size", required=False) or 0)
    if patch is None:
        raise config.wrong("patch_size", "is not a size in pixels")
    rows, columns = (image[0] // patch[0], image[1] // patch[1]) if image else (0, 0)
    return rows, columns, patch[0] * patch[1]


def _tower(config: Config, kind: Tower) -> Vision:
    """Return the patches' projection and the tower that vision_config describes; nothing projects the results yet."""
    width, layers, heads = config.integer(kind.width), config.integer(kind.depth), config.integer(kind.heads)
    if layers > DEEPEST:
        raise config.wrong(kind.depth, f"{layers:,} layers are more than {DEEPEST:,}")
    config.divides(kind.heads, width, heads, "(width of the vision tower)")
    if kind.width == "embed_dim":
        inner = int((config.real("mlp_ratio") or 0) * width)
    else:
        inner = config.integer("intermediate_size")
    rows, columns, pixels = _grid(config)
    patch = config.integer(kind.channels) * pixels * (config.integer(kind.frames) if kind.frames else 1)
    bias = kind.bias if isinstance(kind.bias, bool) else config.flag(kind.bias)
    attend: Block = Attention(
        Heads(width, heads, heads, width // heads),
        QkvProjections(bias=bias, out_bias=kind.out_bias, fused=kind.fused),
        scores=BIDIRECTIONAL,
    )
    mlp = gated_mlp if kind.gated else plain_mlp
    feed: Block = partial(mlp, width=width, inner=inner, function=config.text("hidden_act"), bias=kind.mlp_bias)
    operations = pre_norm(width, kind.norm, attend, feed)
    if kind.scaled:
        scales = (("lambda_1", (width,)), ("lambda_2", (width,)))
        operations = (*operations, Parameters("branch_scales", (), scales, REPLICATED))
    after: list[Operation] = [kind.norm("post_norm", "x", width)] if kind.last else []
    if kind.head and config.flag(kind.head):
        after += _pooled(width, inner)
    projection: Operations = (Matmul("patch_embedding", ("pixels",), patch, width, kind.patch_bias),)
    before, runs = _embedded(config, kind, width, rows * columns), ((layers, Layer("vision", operations)),)
    tower = Model(
        config.name, (stack_of("tower", before, runs, tuple(after)),), False, width, heads, heads, width // heads, 0
    )
    nothing = _part(config, "projector", (), width)
    return Vision(_part(config, "patches", projection, width), tower, nothing, 1, int(kind.class_token), rows * columns)


def _part(config: Config, name: str, operations: Operations, width: int) -> Model:
    """Return operations without layers as a model of their own."""
    return Model(config.name, (stack_of(name, operations, (), ()),), False, width, 1, 1, width, 0)


def _embedded(config: Config, kind: Tower, width: int, patches: int) -> Operations:
    """Return what is added to the projected patches."""
    found: list[Operation] = []
    last = "patch_embedding"
    if kind.class_token:
        found.append(Parameters("class_token", (), (("weight", (1, width)),), REPLICATED))
    if kind.positions:
        rows = patches + kind.class_token if kind.positions == "grid" else config.integer(kind.positions)
        if not rows:
            raise config.refuse("image_size", "is missing: it sizes the table of positions")
        found += [
            Embedding("position_embedding", (), rows, width, role=POSITION),
            Add("positions_added", (last, "position_embedding"), width),
        ]
        last = "positions_added"
    if kind.first:
        found.append(kind.norm("pre_norm", last, width))
    return tuple(found)


def _pooled(width: int, inner: int) -> list[Operation]:
    """Return SigLIP's attention pooling, which the class computes and the language model does not see."""
    return [
        Matmul("pool_keys_values", ("post_norm",), width, 2 * width, True),
        Parameters(
            "pooling",
            (),
            (
                ("probe", (1, width)), ("query", (width + 1, width)), ("output", (width + 1, width)),
                ("norm", (2, width)), ("up", (width + 1, inner)), ("down", (inner + 1, width)),
            ),
            REPLICATED,
        ),
    ]  # fmt: skip


# --- projectors ------------------------------------------------------------------------------------------------------

Projector = Callable[[Config, Config, Vision, int], Vision]
"""(config, vision_config, what sees, width of the language model) → the same with what projects its outputs."""


def _projected(config: Config, seen: Vision, operations: Operations, hidden: int, merged: int, tokens: int) -> Vision:
    return replace(seen, projector=_part(config, "projector", operations, hidden), merged=merged, tokens=tokens)


def _two_layers(first: int, hidden: int, function: str, bias: bool, source: str = "features") -> Operations:
    return (
        Matmul("linear_1", (source,), first, hidden, bias),
        Activation("projected", ("linear_1",), hidden, function),
        Matmul("linear_2", ("projected",), hidden, hidden, bias),
    )


def _llava(newline: bool = False) -> Projector:
    """Return LLaVA's projector: two linear layers, which read one or several layers of the tower; `newline`: a learned
    vector ends each row of patches."""

    def project(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
        layer = config.fields.get("vision_feature_layer")
        several = len(layer) if isinstance(layer, list) and layer else 1
        bias = config.fields.get("multimodal_projector_bias", True) is not False
        found = _two_layers(several * seen.tower.hidden, hidden, "gelu", bias)
        if newline:
            found = (*found, Parameters("image_newline", (), (("weight", (hidden,)),), REPLICATED))
        return _projected(config, seen, found, hidden, 1, seen.grid)

    return project


def _gemma3(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return Gemma 3's projector: mean pooling to 256 tokens, a norm and one matrix."""
    width, tokens = seen.tower.hidden, config.fields.get("mm_tokens_per_image", 256)
    norm = RMS("soft_emb_norm", "features", width)
    found = (norm, Matmul("input_projection", ("soft_emb_norm",), width, hidden))
    tokens = tokens if isinstance(tokens, int) and 0 < tokens < 10**9 else 256
    return _projected(config, seen, found, hidden, max(1, seen.grid // tokens), tokens)


def _paligemma(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    stated = config.fields.get("projection_dim", 2048)
    wide = stated if isinstance(stated, int) and 0 < stated < 10**9 else 2048
    found = (Matmul("linear", ("features",), seen.tower.hidden, wide, True),)
    return _projected(config, seen, found, wide, 1, seen.grid)


def _shuffled(field: str, usual: int) -> Projector:
    """Return Idefics 3's projector: one matrix over squares of patches, whose side `field` states."""

    def project(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
        stated = config.fields.get(field, usual)
        side = stated if isinstance(stated, int) and 0 < stated < 10**4 else usual
        found = (Matmul("modality_projection", ("features",), side**2 * seen.tower.hidden, hidden),)
        return _projected(config, seen, found, hidden, side**2, seen.grid // side**2)

    return project


def _mistral3(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return Mistral Small 3.1's projector: a norm, a matrix over squares of patches, two linear layers."""
    stated = config.fields.get("spatial_merge_size", 2)
    side = stated if isinstance(stated, int) and 0 < stated < 10**4 else 2
    bias, width = config.fields.get("multimodal_projector_bias", False) is True, seen.tower.hidden
    rows, columns, _ = _grid(vision)
    merged = Matmul("merging_layer", ("norm",), side**2 * width, width)
    found = (RMS("norm", "features", width), merged, *_two_layers(width, hidden, "gelu", bias, "merging_layer"))
    return _projected(config, seen, found, hidden, side**2, rows // side * (columns // side))


def _internvl(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return InternVL's projector: a norm over squares of patches and two linear layers."""
    stated = config.fields.get("downsample_ratio", 0.5)
    ratio = stated if isinstance(stated, float) and 0 < stated <= 1 else 0.5
    squares = int(1 / ratio) ** 2
    width = seen.tower.hidden * squares
    found = (LAYER("layer_norm", "features", width), *_two_layers(width, hidden, "gelu", True, "layer_norm"))
    return _projected(config, seen, found, hidden, squares, seen.grid // squares)


def _merger(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return Qwen-VL's merger: a norm, and two linear layers over squares of patches; DeepStack's further ones."""
    kind = TOWERS[vision.model_type]
    side, width = vision.integer("spatial_merge_size"), seen.tower.hidden
    wide = side**2 * width
    out = vision.integer("hidden_size" if kind.width == "embed_dim" else "out_hidden_size")
    norm = kind.norm("merger_norm", "features", width)
    more = len(vision.items(kind.deepstack) or []) if kind.deepstack else 0
    found: list[Operation] = [norm]
    for name, source in (("merger", "merger_norm"), *((f"deepstack_{i}", f"deepstack_{i}_norm") for i in range(more))):
        if name != "merger":
            found.append(kind.norm(source, "features", wide))
        found += [
            Matmul(f"{name}_1", (source,), wide, wide, True),
            Activation(f"{name}_activation", (f"{name}_1",), wide, "gelu"),
            Matmul(f"{name}_2", (f"{name}_activation",), wide, out, True),
        ]
    return _projected(config, seen, tuple(found), out, side**2, 0)


def _merged_and_projected(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return Qwen-VL's merger, and a linear layer from its width to the language model's."""
    merged = _merger(config, vision, seen, hidden)
    (stack,) = merged.projector.stacks
    last = Matmul("mm_projector", (stack.before[-1].name,), merged.projector.hidden, hidden, True)
    return _projected(config, merged, (*stack.before, last), hidden, merged.merged, 0)


def _vip(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return ViP-LLaVA's projector: a norm over several of the tower's layers and two linear layers."""
    layers = config.fields.get("vision_feature_layers", [-2, -5, -8, -11, 6])
    wide = (len(layers) if isinstance(layers, list) and layers else 5) * seen.tower.hidden
    found = (LAYER("projector_norm", "features", wide), *_two_layers(wide, hidden, "gelu", True, "projector_norm"))
    return _projected(config, seen, found, hidden, 1, seen.grid)


def _aligner(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
    """Return DeepSeek-VL's projector: two linear layers."""
    return _projected(config, seen, _two_layers(seen.tower.hidden, hidden, "gelu", True), hidden, 1, seen.grid)


def _gated(norm: bool, usual: int) -> Projector:
    """Return Cohere's projectors: a gated unit over squares of patches; Aya Vision's has a norm before it. `usual`:
    the width between, where the config does not state it (0: the language model's)."""

    def project(config: Config, vision: Config, seen: Vision, hidden: int) -> Vision:
        side = _count(config, "downsample_factor", 2)
        inner = _count(config, "alignment_intermediate_size", usual or hidden)
        width = side**2 * seen.tower.hidden
        first = Matmul("linear_1", ("projector_norm" if norm else "features",), width, inner, True)
        found: Operations = (first, Matmul("linear_2", ("linear_1",), inner // 2, hidden, True))
        if norm:
            found = (LAYER("projector_norm", "features", width), *found)
        return _projected(config, seen, found, hidden, side**2, seen.grid // side**2)

    return project


def _count(config: Config, field: str, usual: int) -> int:
    """Read a number that a multimodal class has a default for."""
    value = config.fields.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else usual


_QWEN_FAMILY = {
    "qwen2_vl": "qwen2_vl_vision",
    "qwen2_5_vl": "qwen2_5_vl_vision",
    "hyperclovax_vision_v2": "qwen2_5_vl_vision",
    "qwen3_vl": "qwen3_vl_vision",
    "qwen3_vl_moe": "qwen3_vl_moe_vision",
    "cosmos3_omni": "qwen3_vl_vision",
    "qwen3_5": "qwen3_5_vision",
    "qwen3_5_moe": "qwen3_5_moe_vision",
}
_TOWER_OF = {
    **_QWEN_FAMILY,
    "llava": "clip_vision_model",
    "llava_next": "clip_vision_model",
    "llava_next_video": "clip_vision_model",
    "llava_onevision": "siglip_vision_model",
    "gemma3": "siglip_vision_model",
    "shieldgemma2": "siglip_vision_model",
    "paligemma": "siglip_vision_model",
    "idefics3": "idefics3_vision",
    "smolvlm": "smolvlm_vision",
    "mistral3": "pixtral",
    "lighton_ocr": "pixtral",
    "vipllava": "clip_vision_model",
    "deepseek_vl": "siglip_vision_model",
    "cohere2_vision": "siglip_vision_model",
    "aya_vision": "siglip_vision_model",
    "internvl": "internvl_vision",
}
"""Multimodal model_type → the model_type of its vision_config, where the file does not state one."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"image_size": 1540, "patch_size": 14} for name in ("mistral3", "lighton_ocr")},
    **{name: {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
              "image_size": 336, "patch_size": 14} for name in ("llava", "llava_next", "llava_next_video", "vipllava")},
    "llava_onevision": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
                        "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "vision_use_head": False},
    "cohere2_vision": {"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 27,
                       "num_attention_heads": 12, "image_size": 512, "patch_size": 16},
    "paligemma": {"hidden_size": 1152, "intermediate_size": 4096, "num_hidden_layers": 27, "num_attention_heads": 16,
                  "patch_size": 14, "vision_use_head": False},
}  # fmt: skip
"""What a multimodal class sets where its vision_config omits it."""
PROJECTORS: Mapping[str, Projector] = {
    **dict.fromkeys(_QWEN_FAMILY, _merger),
    "hyperclovax_vision_v2": _merged_and_projected,
    "llava": _llava(),
    "llava_next": _llava(newline=True),
    "llava_next_video": _llava(newline=True),
    "llava_onevision": _llava(newline=True),
    "gemma3": _gemma3,
    "shieldgemma2": _gemma3,
    "paligemma": _paligemma,
    "idefics3": _shuffled("scale_factor", 2),
    "smolvlm": _shuffled("scale_factor", 2),
    "mistral3": _mistral3,
    "lighton_ocr": _mistral3,
    "vipllava": _vip,
    "deepseek_vl": _aligner,
    "cohere2_vision": _gated(norm=False, usual=36_864),
    "aya_vision": _gated(norm=True, usual=0),
    "internvl": _internvl,
}

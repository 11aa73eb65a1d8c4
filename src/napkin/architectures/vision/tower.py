"""A vision tower: patches projected to vectors, and layers like those of an encoder. What sets kinds of towers apart is
a record (tower_record.py); the classes are those of Hugging Face transformers 5.23.0."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections
from napkin.architectures.blocks import LAYER, RMS, Block, NormStyle, Operations, gated_mlp, plain_mlp
from napkin.architectures.masked import BIDIRECTIONAL
from napkin.architectures.module_paths import located
from napkin.architectures.reading import DEEPEST
from napkin.architectures.vision.tower_record import Stem, Tower
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.images import ClassTokens, PatchConv, Pixels, Reorder
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Vision, stack_of
from napkin.operations.pointwise import Activation, Add, Scale
from napkin.operations.roles import POSITION, REPLICATED
from napkin.operations.views import Concat
from napkin.record import replace


def sides(value: object) -> tuple[int, int] | None:
    """Return (height, width) of a size that is one number or two."""
    both = value if isinstance(value, list) else [value, value]
    whole = [one for one in both if isinstance(one, int) and not isinstance(one, bool) and 0 < one <= 10**6]
    return (whole[0], whole[1]) if len(both) == len(whole) == 2 else None


def patch_sides(config: Config) -> tuple[int, int]:
    """Read the height and width of a patch in pixels."""
    patch = sides(config.raw("patch_size"))
    if patch is None:
        raise config.wrong("patch_size", "is not a size in pixels")
    return patch


def grid(config: Config) -> tuple[int, int]:
    """Read the rows and columns of patches of an image of the config's size; (0, 0) if it states none."""
    patch, image = patch_sides(config), sides(config.raw("image_size", required=False) or 0)
    return (image[0] // patch[0], image[1] // patch[1]) if image else (0, 0)


def fact(config: Config, value: bool | str) -> bool:
    """Return a fact, or what the field of this name says."""
    return config.flag(value) if isinstance(value, str) else value


def one_stack(name: str, stack: str, before: Operations, width: int) -> Model:
    """Return operations without layers as a model of their own."""
    return Model(name, (stack_of(stack, before, (), ()),), False, width, 1, 1, width, 0)


def tower(config: Config, kind: Tower, unread: int | None) -> Vision:
    """Return the patches' projection and the tower that vision_config describes; nothing projects the results yet.
    `unread`: the last layers, whose results nothing reads; None where what follows the layers is read."""
    names = kind.names
    width, depth, heads = config.integer(names.width), config.integer(names.depth), config.integer(names.heads)
    if depth > DEEPEST:
        raise config.wrong(names.depth, f"{depth:,} layers are more than {DEEPEST:,}")
    if not names.head:
        config.divides(names.heads, width, heads, "(width of the vision tower)")
    if unread is not None and unread >= depth:
        raise config.wrong(names.depth, f"{depth:,} layers: the one that is read is not among them")
    rows, columns = grid(config)
    make = partial(layer, config, kind, width, heads)
    runs: list[tuple[int, Layer]] = list(runs_of(config, kind, depth - (unread or 0), make))
    if unread:
        runs.append((unread, replace(make(None), kind="unread", read=False)))
    runs += [(1, one) for one in ends(config, kind, width, unread is None)]
    stack = stack_of("tower", stem(config, kind, width, rows * columns), runs, ())
    seen = Model(config.name, (stack,), False, width, heads, heads, width // heads, 0)
    return Vision(
        one_stack(config.name, "patches", patched(config, kind, width), width),
        located(seen, kind.modules),
        one_stack(config.name, "projector", (), width),
        added=added(config, kind.stem),
        grid=rows * columns,
        implementation=kind.implementation,
    )


def patches_alone(config: Config, vision: Config, hidden: int) -> Vision:
    """Return Fuyu's projection of patches, which the language model reads as they are."""
    rows, columns = grid(vision)
    high, wide = patch_sides(vision)
    elements = vision.integer("num_channels") * high * wide
    project = (Pixels("pixels", (), elements), Matmul("vision_embed_tokens", ("pixels",), elements, hidden, True))
    none = one_stack(config.name, "tower", (), hidden)
    patches, projector = (
        one_stack(config.name, "patches", project, hidden),
        one_stack(config.name, "projector", (), hidden),
    )
    return Vision(patches, none, projector, grid=rows * columns, tokens=rows * columns)


def ends(config: Config, kind: Tower, width: int, read: bool) -> list[Layer]:
    """Return what follows the layers: a norm, which may be `read`, and attention pooling, which nothing reads."""
    found: list[Layer] = []
    if kind.last(config) if callable(kind.last) else kind.last:
        found.append(Layer("post_norm", (kind.norm("post_norm", "x", width),), block=False, read=read))
    if kind.head and config.flag(kind.head):
        found.append(Layer("pooling", pooled(width, inner_width(config, kind)), block=False, read=False))
    return found


def patched(config: Config, kind: Tower, width: int) -> Operations:
    """Return the projection of patches."""
    high, wide = patch_sides(config)
    frames = config.integer(kind.stem.frames) if kind.stem.frames else 1
    elements = config.integer(kind.names.channels) * high * wide * frames
    project = Matmul if kind.stem.linear else PatchConv
    return Pixels("pixels", (), elements), project("patch_embedding", ("pixels",), elements, width, kind.stem.bias)


def added(config: Config, how: Stem) -> int:
    """Read how many learned tokens are added to the patches."""
    return how.tokens(config) if callable(how.tokens) else how.tokens


def stem(config: Config, kind: Tower, width: int, patches: int) -> Operations:
    """Return what happens to the projected patches ("x") before the layers."""
    how, last = kind.stem, "x"
    found: list[Operation] = []
    if how.normed is not None:
        found.append(how.normed("patch_norm", last, width))
        last = "patch_norm"
    if tokens := added(config, how):
        found.append(ClassTokens("class_token", (last,), tokens, width))
        last = "class_token"
    if how.mask and config.flag(how.mask):
        found.append(Parameters("mask_token", (), (("token", (width,)),), REPLICATED, trained=False))
    if how.positions:
        rows = positions(config, how, patches)
        if not rows:
            raise config.refuse("image_size", "is missing: it determines the size of the position embedding")
        found += [
            Embedding("position_embedding", (), rows, width, role=POSITION),
            Add("positions_added", (last, "position_embedding"), width),
        ]
        last = "positions_added"
    if how.norm is not None:
        found.append(how.norm("pre_norm", last, width))
    if kind.mixing.windows is not None:  # the patches of a window are put next to each other
        found.append(Reorder("by_windows", (last,), width, config.integer("spatial_merge_size") ** 2))
    return tuple(found)


def positions(config: Config, how: Stem, patches: int) -> int:
    """Read the rows of the position embedding."""
    if callable(how.positions):
        return how.positions(config)
    return patches + added(config, how) if how.positions == "grid" else config.integer(how.positions)


def inner_width(config: Config, kind: Tower) -> int:
    """Read the width of the MLP."""
    if kind.inner is not None:
        return kind.inner(config)
    field = kind.names.inner
    if field.endswith("ratio"):
        return int((config.real(field) or 0) * config.integer(kind.names.width))
    return config.integer(field)


def layer(config: Config, kind: Tower, width: int, heads: int, window: int | None) -> Layer:
    """Return one layer; `window`: the patches that attend to each other, or None for all of an image."""
    how, names = kind.mixing, kind.names
    head_dim = config.integer(names.head) if names.head else width // heads
    kv_heads = config.integer(how.few) if how.few else heads
    normed = how.norm is not None and (not how.norm_if or config.flag(how.norm_if))
    attend: Block = Attention(
        Heads(width, heads, kv_heads, head_dim),
        QkvProjections(bias=fact(config, how.bias), out_bias=fact(config, how.out_bias), fused=how.fused),
        rope=how.rope(head_dim) if how.rope is not None else None,
        norm=how.norm if normed else None,
        scores=replace(BIDIRECTIONAL, chunk=window),
        core=_apart if kind.implementation.packed else partial(_normed, how.values) if how.values else None,
    )
    mlp = gated_mlp if kind.gated else plain_mlp
    function, inner = config.text(names.function), inner_width(config, kind)
    feed: Block = partial(mlp, width=width, inner=inner, function=function, bias=fact(config, kind.mlp_bias))
    if kind.scaled:
        attend, feed = (partial(_scaled, block, name, width) for block, name in ((attend, "o"), (feed, "mlp")))
    norm = NORMS[config.text(kind.norm_by, known=NORMS)] if kind.norm_by else kind.norm
    return Layer("windowed" if window else "vision", kind.arranged(width, norm, attend, feed))


NORMS = {"layer_norm": LAYER, "rms_norm": RMS}
"""What a field that chooses the norms of the layers says (modeling_internvl.py, NORM2FN)."""


def _scaled(block: Block, name: str, width: int, source: str) -> Operations:
    """Return a block whose result a learned vector scales."""
    made = block(source)
    return (*made, Scale(f"{name}_scaled", (made[-1].name,), width, learned=True))


def _normed(norm: NormStyle, core: AttentionCore) -> Operations:
    """Return attention over values that are normalized, each head by itself."""
    query, key, value = core.reads
    made = norm("v_norm", value, core.v_dim, core.kv_heads)
    return (made, replace(core, reads=(query, key, made.name)))


def _apart(core: AttentionCore) -> Operations:
    """Return attention with the results of an image's calls put together."""
    return (core, Concat("attended", (core.name,), core.heads * core.v_dim))


def runs_of(
    config: Config, kind: Tower, depth: int, make: Callable[[int | None], Layer]
) -> tuple[tuple[int, Layer], ...]:
    """Return the layers in order, as runs of equal ones."""
    if kind.mixing.windows is None:
        return ((depth, make(None)),)
    window, within = kind.mixing.windows(config, depth)
    made = {True: make(window), False: make(None)}
    return tuple((1, made[within(i)]) for i in range(depth))


def pooled(width: int, inner: int) -> Operations:
    """Return SigLIP's attention pooling, which the class computes and the language model does not see."""
    return (
        Matmul("pool_keys_values", ("x",), width, 2 * width, True, module="head.attention"),
        Parameters(
            "pooling",
            (),
            (
                ("probe", (1, width)), ("query", (width + 1, width)), ("output", (width + 1, width)),
                ("norm", (2, width)), ("up", (width + 1, inner)), ("down", (inner + 1, width)),
            ),
            REPLICATED,
        ),
    )  # fmt: skip


def two_linears(
    widths: tuple[int, int, int],
    function: str,
    bias: bool = True,
    source: str = "x",
    names: tuple[str, str] = ("linear_1", "linear_2"),
) -> Operations:
    """Return two linear layers with an activation between them."""
    first, last = names
    return (
        Matmul(first, (source,), widths[0], widths[1], bias),
        Activation(f"{first}_activation", (first,), widths[1], function),
        Matmul(last, (f"{first}_activation",), widths[1], widths[2], bias),
    )

"""LayoutLM and LayoutLMv3: BERT that reads where each token lies on a page."""

from __future__ import annotations

from napkin.architectures.families.encoders.bert import BERT
from napkin.architectures.families.encoders.bert_network import Bert
from napkin.architectures.families.encoders.bert_relatives import added, rebuilt
from napkin.architectures.idle import idle, tensors
from napkin.architectures.masked import ENCODER, bert_modules
from napkin.architectures.reading import class_names
from napkin.architectures.record import like
from napkin.architectures.shapes import convolution, norm, together
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import BoxEmbedding, Embedding, PositionBias
from napkin.operations.implementations import IDS, PADDING
from napkin.operations.model import Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import POSITION
from napkin.operations.views import Concat
from napkin.record import replace


def _boxes(rows: int, corner: int, side: int) -> list[Embedding]:
    """Return embeddings of a token's box: of its four corners, of two tables, and of its height and width."""
    corners = (("left", ""), ("upper", ""), ("right", "left_embedding"), ("lower", "upper_embedding"))
    found: list[Embedding] = [
        BoxEmbedding(f"{name}_embedding", (), rows, corner, role=POSITION, corner=True, table=table)
        for name, table in corners
    ]
    sizes = (BoxEmbedding(f"{size}_embedding", (), rows, side, role=POSITION) for size in ("height", "width"))
    return [*found, *sizes]


def _layoutlm(config: Config) -> Model:
    """Return LayoutLM (arXiv:1912.13318): BERT with embeddings of a token's box, its corners and its size."""
    rows, width = config.integer("max_2d_position_embeddings"), config.integer("hidden_size", default=False)
    model = Bert(masked_pooler=True, ignored=("max_2d_position_embeddings",))(config)
    return rebuilt(model, lambda before: added(before, _boxes(rows, width, width)))


def _layoutlmv3(config: Config) -> Model:
    """Return LayoutLMv3 (arXiv:2204.08387): BERT whose embeddings of a token's box lie next to each other, with scores
    for distances in the text and on the page. The patches of a page that it may also read are held and not run."""
    width, heads = config.integer("hidden_size", default=False), config.integer("num_attention_heads")
    rows, corner, side = (config.integer(f) for f in ("max_2d_position_embeddings", "coordinate_size", "shape_size"))
    if 4 * corner + 2 * side != width:
        raise config.wrong("coordinate_size", f"four of it and two of shape_size are not hidden_size, {width:,}")
    config.must_be("text_embed", True)
    config.ignore("max_rel_pos", "max_rel_2d_pos", "second_input_size")
    near, on_page = config.flag("has_relative_attention_bias"), config.flag("has_spatial_attention_bias")
    config.must_be("has_spatial_attention_bias", near)
    config.restate("relative_attention_num_buckets", config.integer("rel_pos_bins"))
    beside = config.integer("rel_2d_pos_bins")
    if not class_names(config):
        config.restate("architectures", ["LayoutLMv3Model"])
    model = Bert(pooler=False, distances=near, ignored=("relative_attention_num_buckets",))(config)
    boxes = _boxes(rows, corner, side)
    joined = Concat("box_embedding", tuple(op.name for op in boxes), width)

    def changed(before: tuple[Operation, ...]) -> tuple[Operation, ...]:
        at = next(i for i, op in enumerate(before) if op.name == "embedding_norm")
        last = before[at].reads[0]
        normed = replace(before[at], reads=("box_embedding_added",))
        placed = (*boxes, joined, Add("box_embedding_added", (last, joined.name), width))
        made = (*before[:at], *placed, normed, *before[at + 1 :])
        scores = PositionBias("distances", (), config.integer("rel_pos_bins"), heads, boxes=(beside, beside))
        return (*_patches(config, width), *(scores if on_page and op.name == "distances" else op for op in made))

    return rebuilt(model, changed)


def _patches(config: Config, width: int) -> tuple[Operation, ...]:
    """Return what LayoutLMv3 holds of a page's patches."""
    if not config.flag("visual_embed"):
        config.ignore("input_size", "num_channels", "patch_size")
        return ()
    patch, pixels = config.integer("patch_size"), config.integer("input_size")
    held = together(
        convolution("patch_embed.proj", config.integer("num_channels"), width, patch, patch),
        {"cls_token": (width,), "pos_embed": ((pixels // patch) ** 2 + 1, width)},
        norm("LayerNorm", width),
        norm("norm", width),
    )
    config.notes.append("the patches of a page are counted as parameters; text runs none of them")
    return (replace(idle("patches", (tensors("images", held),)), trained=True),)


LAYOUTLM = like(
    BERT,
    "layoutlm",
    build=_layoutlm,
    config_class="LayoutLMConfig",
    defaults={"max_2d_position_embeddings": 1024},
    implementation=replace(
        ENCODER, softmax="fp32", segments="each", kernel_mask=PADDING, passes=(PADDING,), buffers=(IDS,)
    ),
    modules=bert_modules("layoutlm"),
)
LAYOUTLMV3 = like(
    BERT,
    "layoutlmv3",
    build=_layoutlmv3,
    config_class="LayoutLMv3Config",
    defaults={
        "coordinate_size": 128, "has_relative_attention_bias": True, "has_spatial_attention_bias": True,
        "input_size": 224, "max_2d_position_embeddings": 1024, "num_channels": 3, "patch_size": 16,
        "rel_2d_pos_bins": 64, "rel_pos_bins": 32, "shape_size": 128, "text_embed": True, "visual_embed": True,
        "vocab_size": 50265,
    },
    modules=bert_modules("layoutlmv3"),
)  # fmt: skip

ARCHITECTURES = (LAYOUTLM, LAYOUTLMV3)

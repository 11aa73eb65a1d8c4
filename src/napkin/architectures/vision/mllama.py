"""Llama 3.2 Vision's tower: an image is cut into tiles, whose patches all attend to each other.

Facts are those of MllamaVisionModel of Hugging Face transformers 5.23.0 (src/transformers/models/mllama/).
"""

from __future__ import annotations

from napkin.architectures.blocks import LAYER
from napkin.architectures.module_paths import located
from napkin.architectures.reading import DEEPEST
from napkin.architectures.vision.single_kinds import TOWERS
from napkin.architectures.vision.tower import grid, layer, one_stack, patched
from napkin.inputs.model import Config
from napkin.operations.images import ClassTokens, Patches
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Vision, stack_of
from napkin.operations.pointwise import Add
from napkin.operations.roles import REPLICATED
from napkin.record import replace

RATIOS = 8
"""Arrangements of tiles where the file lists none."""
PADDED = 8
"""Each tile is padded to a multiple of this many tokens."""


def mllama(config: Config, vision: Config, hidden: int) -> Vision:
    """Return layers over all tiles of an image, then gated ones; the projector reads some of the first kind too.

    The gates and the tables of tiles' positions are counted as parameters; each is one addition or multiplication."""
    kind = TOWERS["mllama_vision_model"]
    width, heads, tiles = (vision.integer(field) for field in ("hidden_size", "attention_heads", "max_num_tiles"))
    depth, gated = vision.integer("num_hidden_layers"), vision.integer("num_global_layers")
    if depth + gated > DEEPEST:
        raise vision.wrong("num_hidden_layers", f"{depth + gated:,} layers are more than {DEEPEST:,}")
    vision.divides("attention_heads", width, heads, "(width of the vision tower)")
    rows, columns = grid(vision)
    if not rows * columns:
        raise vision.refuse("image_size", "is missing: it determines the size of the position embedding")
    ratios = len(vision.items("supported_aspect_ratios", required=False) or [None] * RATIOS) + 1
    patches, wide = rows * columns + 1, vision.integer("vision_output_dim")
    if wide % width:
        raise vision.wrong("vision_output_dim", f"is not a multiple of hidden_size {width:,}")

    def table(name: str) -> Parameters:
        return Parameters(name, (), (("weight", (ratios, tiles * width)), ("gate", (1,))), REPLICATED)

    positions = (("weight", (patches, width)), ("tiles", (ratios, tiles * patches * width)), ("gate", (1,)))
    before = (
        table("tile_positions"),
        Add("tiles_placed", ("x", "tile_positions"), width),
        ClassTokens("class_token", ("tiles_placed",), 1, width),
        Parameters("positions", (), positions, REPLICATED),
        Add("positions_added", ("class_token", "positions"), width),
        LAYER("pre_norm", "positions_added", width),
    )
    usual = layer(vision, kind, width, heads, None)
    gates = Parameters("gates", (), (("attention", (1,)), ("mlp", (1,))), REPLICATED)
    middle = (
        LAYER("post_norm", "x", width),
        table("tile_positions_again"),
        Add("tiles_placed_again", ("post_norm", "tile_positions_again"), width),
    )
    runs = [
        (depth, usual),
        (1, Layer("post_norm", middle, block=False)),
        (gated, replace(usual, kind="gated", operations=(gates, *usual.operations))),
    ]
    seen = Model(config.name, (stack_of("tower", before, runs, ()),), False, width, heads, heads, width // heads, 0)
    joined = Patches("of_several_layers", ("x",), wide, ordered=True)
    projector = (joined, Matmul("multi_modal_projector", ("of_several_layers",), wide, hidden, True))
    return Vision(
        one_stack(config.name, "patches", patched(vision, kind, width), width),
        located(seen, kind.modules),
        one_stack(config.name, "projector", projector, hidden),
        added=tiles * (-(-patches // PADDED) * PADDED - rows * columns),
        grid=tiles * rows * columns,
        tokens=tiles * patches,
        implementation=kind.implementation,
    )

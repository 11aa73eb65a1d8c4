"""UDOP (arXiv:2212.02623): T5 whose encoder also reads where each token is on a page.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/udop/).
"""

from __future__ import annotations

from napkin.architectures.families.encoder_decoders.t5 import T5, t5
from napkin.architectures.idle import idle, tensors
from napkin.architectures.record import like
from napkin.architectures.vision.tower import sides
from napkin.inputs.model import Config
from napkin.operations.embedding import Embedding, PositionBias
from napkin.operations.facts import POSITION_BIASES
from napkin.operations.learned import Parameters
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.operations.roles import SEGMENT
from napkin.operations.views import reuse, run_again
from napkin.record import replace

BUCKETS = 32
"""Of a bias by distance, if its arguments do not say."""
DISTANCES = ({"type": "1d"}, {"type": "horizontal"}, {"type": "vertical"})
"""The biases by distance of an encoder: between tokens, and between their places on the page."""


def udop(config: Config) -> Model:
    """Return UDOP. Without an image the projections of patches do not run."""
    config.restate("tie_word_embeddings", True)  # whatever the file says
    model = t5(config, tanh=False)
    hidden, heads = model.hidden, model.heads
    further = _further_biases(config, heads)
    buckets = config.integer("relative_attention_num_buckets")
    rows = config.integer("max_2d_position_embeddings")
    encoder, *rest = model.stacks
    patches = _patches(config, hidden)
    config.notes.append(
        "the projections of an image's patches are counted as parameters; a text-only pass does not run them"
    )
    bias = PositionBias("page_distances", (), buckets, heads, boxes=tuple(further))
    again = reuse(PositionBias("distances", (), buckets, heads))
    table, *dropped = encoder.before
    left, upper = (Embedding(f"{name}_embedding", (), rows, hidden, role=SEGMENT) for name in ("x", "y"))
    right, lower = replace(run_again(left), name="right_embedding"), replace(run_again(upper), name="lower_embedding")
    placed = Add("placed", (table.name, "box"), hidden)
    before = (
        bias,
        idle("layer_distances", (again,)),
        idle("patch_embedding", (patches,)),
        table,
        left, upper,
        Add("corner", (left.name, upper.name), hidden),
        right,
        Add("edge", ("corner", right.name), hidden),
        lower,
        Add("box", ("edge", lower.name), hidden),
        placed,
        *(replace(op, reads=(placed.name,)) for op in dropped),
    )  # fmt: skip
    encoder = replace(encoder.mapped(_without_own_bias), before=before)
    apart = (PositionBias(f"page_distances_{n}", (), count, heads) for n, count in enumerate(further))
    biases = replace(again, name="page_distances"), *(replace(one, module="page_distances") for one in apart)
    unused = idle("unused_patch_embedding", (patches,)), idle("unused_biases", biases)
    decoders = tuple(replace(decoder, before=(*unused, *decoder.before)) for decoder in rest)
    return replace(model, stacks=(encoder, *decoders))


def _without_own_bias(layer: Layer) -> Layer:
    """Return an encoder's layer without its own bias: all layers read that of the stack."""
    return replace(layer, operations=tuple(op for op in layer.operations if op.pattern() not in POSITION_BIASES))


def _further_biases(config: Config, heads: int) -> list[int]:
    """Read the buckets of each bias by distance but the first, whose table is that of T5."""
    found = config.items("relative_bias_args", required=False)
    buckets = []
    for entry in DISTANCES if found is None else found:
        if not isinstance(entry, dict) or entry.get("type") not in ("1d", "horizontal", "vertical"):
            raise config.refuse("relative_bias_args", "is not a list of known biases by distance")
        count = entry.get("relative_attention_num_buckets", BUCKETS)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1 or entry.get("num_heads", heads) != heads:
            raise config.wrong("relative_bias_args", "has no number of buckets, or other heads than the model")
        buckets.append(count + 2 * (entry.get("prefix_bucket") is True and entry.get("expand") is not True))
    return buckets[1:]


def _patches(config: Config, hidden: int) -> Parameters:
    """Return the projection of patches."""
    patch = sides(config.raw("patch_size"))
    if patch is None:
        raise config.wrong("patch_size", "is not a size in pixels")
    config.ignore("image_size")
    return tensors("projection", {"weight": (hidden, config.integer("num_channels"), *patch), "bias": (hidden,)})


UDOP = like(
    T5,
    "udop",
    build=udop,
    config_class="UdopConfig",
    implementation=replace(T5.implementation, segments="each"),
    modules={
        "page_distances": "relative_bias.biases.0.relative_attention_bias",
        "x_embedding": "encoder.cell_2d_embedding.x_position_embeddings",
        "y_embedding": "encoder.cell_2d_embedding.y_position_embeddings",
    },
    defaults={
        "d_ff": 4096, "max_2d_position_embeddings": 1024, "num_attention_heads": 16, "num_channels": 3,
        "patch_size": 16, "relative_bias_args": None, "vocab_size": 33201,
    },
)  # fmt: skip

ARCHITECTURES = (UDOP,)

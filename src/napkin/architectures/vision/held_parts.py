"""What towers that are held and not run have in common: patches, layers of an encoder, stages of a hierarchy."""

from collections.abc import Callable, Mapping

from napkin.architectures.reading import DEEPEST, integers
from napkin.architectures.shapes import Shapes, attention, convolution, feed_forward, norm
from napkin.architectures.vision.tower import patch_sides
from napkin.inputs.model import Config
from napkin.record import record

NONE: Mapping[str, str] = {}
Q_K_V = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")


@record
class HeldTower:
    """What is held of one kind of tower: (its config, the multimodal model's, the width of the language model) → its
    tensors and those of its projector; defaults and other names of its fields."""

    shapes: Callable[[Config, Config, int], tuple[Shapes, Shapes]]
    defaults: Mapping[str, object]
    aliases: Mapping[str, str] = NONE


def patches(config: Config, width: int, bias: bool = True) -> Shapes:
    """Return the projection of patches."""
    return convolution("patches", config.integer("num_channels"), width, *patch_sides(config), bias=bias)


def encoder_layer(width: int, inner: int, bias: bool = True) -> tuple[Shapes, ...]:
    """Return a layer of an encoder: attention and an MLP, each behind a norm."""
    return (
        norm("layernorm_before", width),
        attention(width, Q_K_V, (bias, bias, bias, True)),
        norm("layernorm_after", width),
        feed_forward(width, inner, ("mlp.fc1", "mlp.fc2")),
    )


def stages(config: Config) -> tuple[list[int], list[int]]:
    """Read the layers and heads of each stage of a hierarchy."""
    depths, heads = integers(config, "depths"), integers(config, "num_heads")
    if len(depths) != len(heads) or len(depths) > 8 or sum(depths) > DEEPEST:
        raise config.wrong("depths", "has another length than num_heads, or too many layers")
    return depths, heads

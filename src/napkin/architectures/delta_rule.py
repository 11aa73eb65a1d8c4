"""What networks of gated delta rules share: input projections, and how they read a delta rule and their experts."""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import Block, Routing, behind_gate, gated_mlp, moe
from napkin.architectures.dimensions import predictions
from napkin.architectures.reading import activation, width
from napkin.architectures.recurrent_blocks import GatedDelta
from napkin.inputs.model import Config

Projections = tuple[tuple[str, tuple[str, ...]], ...]
"""Names of input projections, each with what it makes: queries, keys, values, output gate, write strengths and
decays."""
FUSED_DELTA: Projections = (("in_proj_qkvz", ("q", "k", "v", "z")), ("in_proj_ba", ("b", "a")))
SPLIT_DELTA: Projections = (
    ("in_proj_qkv", ("q", "k", "v")),
    ("in_proj_z", ("z",)),
    ("in_proj_b", ("b",)),
    ("in_proj_a", ("a",)),
)
SINGLE_DELTA: Projections = tuple((f"{name}_proj", (part,)) for name, part in zip("qkvgba", "qkvzba", strict=True))


PREDICTIONS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
"""Fields that count multi-token prediction layers."""


def stated_sizes(config: Config) -> tuple[int, int, int, int]:
    """Read key heads, value heads, and the elements of each."""
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    key_heads, value_heads, key_dim, value_dim = (config.integer(f"linear_{name}") for name in names)
    return key_heads, value_heads, key_dim, value_dim


def gated_delta(
    config: Config,
    projections: Projections,
    sizes: tuple[int, int, int, int],
    *,
    doubled: bool = False,
    gate: str = "silu",
) -> GatedDelta:
    """Read a gated delta rule; `sizes`: key heads, value heads, elements of each."""
    key_heads, value_heads, key_dim, value_dim = sizes
    if value_heads % key_heads:
        raise config.wrong("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    return GatedDelta(
        width=width(config),
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=config.integer("linear_conv_kernel_dim"),
        projections=projections,
        doubled=doubled,
        function=activation(config, "hidden_act"),
        gate=gate,
    )


def shared_expert_mixture(config: Config, routing: Routing) -> Block:
    """Read a mixture of experts with one shared expert, whose result is multiplied by a gate."""
    hidden, function = width(config), activation(config, "hidden_act")
    inner = config.integer("shared_expert_intermediate_size")
    shared = partial(gated_mlp, width=hidden, inner=inner, function=function, prefix="shared/")
    return partial(
        moe,
        width=hidden,
        inner=config.integer("moe_intermediate_size"),
        routing=routing,
        function=function,
        shared=behind_gate(shared, hidden),
        shared_first=True,
    )


def leave_out_predictions(config: Config) -> None:
    """Note the multi-token prediction layers that are not counted."""
    for field in PREDICTIONS:
        if config.optional_integer(field, least=0):
            config.notes.append("the multi-token-prediction layers are left out")
    config.ignore("mtp_use_dedicated_embeddings")


def prediction_layers(config: Config) -> int:
    """Read the number of multi-token prediction modules: one of one layer, which shares the embedding and the head.
    Others are not known, and noted."""
    counts = [config.optional_integer(field, least=0) or 0 for field in PREDICTIONS]
    if max(counts) > 1 or config.flag("mtp_use_dedicated_embeddings", otherwise=False):
        leave_out_predictions(config)
        return 0
    config.ignore("mtp_use_dedicated_embeddings")
    return max(predictions(config, field) for field in PREDICTIONS)

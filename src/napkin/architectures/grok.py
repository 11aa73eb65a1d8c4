"""Grok-1 (xai-org/grok-1, model.py and run.py)."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.attention import Attention, Heads, Rope, Scores
from napkin.architectures.blocks import RMS, Routing, moe
from napkin.architectures.common import chosen_experts, depth, head_size, kv_heads_of, width
from napkin.architectures.dimensions import decoder_of, dimensions_of
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.model import Layer, Model


def grok(config: Config) -> Model:
    """Return Grok-1: four norms per layer, experts with a gated GELU; soft-capped scores, scaled embedding and
    logits."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads", default=False)
    kv_heads = config.integer("num_key_value_heads", default=False)
    kv_heads_of(config, heads)
    head_dim = head_size(config, hidden, heads)
    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, length)
    config.ignore("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale")
    config.must_be("hidden_act", "gelu")
    experts, top_k = chosen_experts(config, "num_experts", "num_experts_per_tok")
    attend = Attention(Heads(hidden, heads, kv_heads, head_dim), rope=Rope(head_dim), scores=Scores(softcap=True))
    feed = partial(
        moe,
        width=hidden,
        inner=config.integer("intermediate_size"),
        routing=Routing(experts, top_k, upcast=True),
        function="gelu",
    )
    layer = Layer("moe", sandwich_norm(hidden, RMS, attend, feed))
    return decoder_of(sizes, ((layers, layer),), RMS, scale=True)


GROK = Architecture(
    "grok-1",
    grok,
)

ARCHITECTURES = (GROK,)

"""Grok-1 (xai-org/grok-1, model.py and run.py)."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import sandwich_norm
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, Rope, Scores
from napkin.architectures.blocks import RMS, Routing, moe
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions
from napkin.architectures.reading import chosen_experts
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.model import Layer, Model
from napkin.record import record


@record
class GrokReading:
    """What a config.json says of Grok-1."""

    sizes: Dimensions
    inner: int
    routing: Routing


def read(config: Config) -> GrokReading:
    """Read a config.json; Grok-1 has no configuration class, so no defaults."""
    config.ignore("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale")
    config.must_be("hidden_act", "gelu")
    config.integer("num_key_value_heads")  # required here; if a class has the field, null means one per query head
    experts, top_k = chosen_experts(config, "num_experts", "num_experts_per_tok")
    return GrokReading(dimensions(config), config.integer("intermediate_size"), Routing(experts, top_k, upcast=True))


def layer(of: GrokReading) -> Layer:
    """Return a layer: four norms, soft-capped scores, experts with a gated GELU."""
    sizes = of.sizes
    attend = Attention(
        Heads(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim),
        rope=Rope(sizes.head_dim),
        scores=Scores(softcap=True),
    )
    feed = partial(moe, width=sizes.hidden, inner=of.inner, routing=of.routing, function="gelu")
    return Layer("moe", sandwich_norm(sizes.hidden, RMS, attend, feed))


def grok(config: Config) -> Model:
    """Return Grok-1, with scaled embedding and logits."""
    of = read(config)
    return decoder_of(of.sizes, ((of.sizes.layers, layer(of)),), RMS, scale=True)


GROK = Architecture(
    "grok-1",
    grok,
    modules={
        "q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj", "o": "attn.o_proj", "router": "moe_block.gate",
        "experts": "moe_block.experts",
    },
)  # fmt: skip

ARCHITECTURES = (GROK,)

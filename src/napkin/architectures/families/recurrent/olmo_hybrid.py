"""OLMo Hybrid: gated delta-rule layers next to attention.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/olmo_hybrid/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import output_norm, pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_FP32, Block, gated_mlp
from napkin.architectures.delta_rule import SINGLE_DELTA, gated_delta
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.reading import FULL, activation, on
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_parts import (
    LINEAR,
    grouped_sizes,
    heads_of,
    kinds,
    network,
    positive,
)
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROTARY
from napkin.operations.model import Layer, Model
from napkin.record import record, replace


@record
class _OlmoHybrid:
    """OLMo Hybrid, as config.json describes it."""

    sizes: Dimensions
    kinds: Sequence[str]
    attention: Block
    delta: Block
    feed: Block


def olmo_hybrid(config: Config) -> Model:
    """Return OLMo Hybrid: gated delta layers with norms before their blocks, attention layers with norms after them."""
    read = _read(config)
    hidden = read.sizes.hidden

    def layer(kind: str) -> Layer:
        if kind == FULL:
            return Layer("attention", output_norm(hidden, RMS_FP32, read.attention, read.feed))
        return Layer("delta", pre_norm(hidden, RMS_FP32, read.delta, read.feed))

    return network(read.sizes, runs_of(read.kinds, layer), norm=RMS_FP32)


def _read(config: Config) -> _OlmoHybrid:
    sizes = grouped_sizes(config)
    bias = on(config, "attention_bias")
    stated = config.raw("rope_parameters", required=False)
    rotates = not isinstance(stated, dict) or stated.get("rope_theta", 0) is not None or config.has("rope_theta")
    attention = Attention(
        heads_of(sizes),
        projections=QkvProjections(bias=bias, out_bias=bias),
        norm=QkNorm(RMS_FP32, over="all"),
        rope=Rope(sizes.head_dim) if rotates else None,
    )
    inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
    feed = partial(gated_mlp, width=sizes.hidden, inner=inner, function=function)
    return _OlmoHybrid(sizes, _kinds(config, sizes.layers), attention, _delta(config, sizes), feed)


def _delta(config: Config, sizes: Dimensions) -> Block:
    key_heads = config.optional_integer("linear_num_key_heads") or sizes.heads
    value_heads = config.optional_integer("linear_num_value_heads") or sizes.heads
    key_dim = config.optional_integer("linear_key_head_dim")
    if key_dim is None:
        key_dim = positive(config, "linear_num_key_heads", int(0.75 * sizes.hidden / key_heads), "the key size")
    value_dim = config.optional_integer("linear_value_head_dim") or 2 * key_dim
    doubled = config.flag("linear_allow_neg_eigval", otherwise=True)
    config.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    return gated_delta(config, SINGLE_DELTA, (key_heads, value_heads, key_dim, value_dim), doubled=doubled)


def _kinds(config: Config, layers: int) -> Sequence[str]:
    """Read what mixes in each layer; without a list every fourth attends, or else the last."""

    def every_fourth() -> Sequence[str]:
        listed = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
        return listed if FULL in listed else [*listed[:-1], FULL]

    return kinds(config, "layer_types", layers, (LINEAR, FULL), every_fourth)


OLMO_HYBRID = Architecture(
    "olmo_hybrid",
    olmo_hybrid,
    config_class="OlmoHybridConfig",
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "layer_types": None,
        "linear_a_log_max": 16.0, "linear_a_log_min": 0.0, "linear_allow_neg_eigval": True,
        "linear_conv_kernel_dim": 4, "linear_dt_init_floor": 0.0001, "linear_dt_max": 0.1, "linear_dt_min": 0.001,
        "linear_key_head_dim": None, "linear_num_key_heads": None, "linear_num_value_heads": None,
        "linear_value_head_dim": None, "max_position_embeddings": 65536, "num_attention_heads": 30,
        "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 100352,
    },
    implementation=replace(FP32_ROTARY, norms_inline=True, fp32_weights=("/A_log",)),
    modules={
        "mixer_q_proj": "linear_attn.q_proj", "mixer_k_proj": "linear_attn.k_proj",
        "mixer_v_proj": "linear_attn.v_proj", "mixer_g_proj": "linear_attn.g_proj",
        "mixer_b_proj": "linear_attn.b_proj", "mixer_a_proj": "linear_attn.a_proj",
        "mixer_out_proj": "linear_attn.o_proj",
    },
)  # fmt: skip

ARCHITECTURES = (OLMO_HYBRID,)

"""LFM2 and LFM3: gated short convolutions next to attention.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm, sandwich_norm
from napkin.architectures.attention import Attention, Gate, Heads, QkNorm, QkvProjections, Rope, Scores
from napkin.architectures.blocks import RMS, Block, Routing, gated_mlp, moe
from napkin.architectures.common import (
    FULL,
    WINDOWED,
    depth,
    head_size,
    in_pairs,
    indices,
    kv_heads_of,
    on,
    rope_of,
    runs_of,
    width,
)
from napkin.architectures.mixing import CONV, agree, kinds, network, positive, scaled
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import short_conv
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROTARY, HF, SIGMOID_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import replace


def lfm2(config: Config, *, sparse: bool = False) -> Model:
    """LFM2: gated short convolutions, and attention with normalized queries and keys at some depths; the MLP's stated
    size may be shrunk by 2/3 and rounded up. LFM2-MoE: mixtures of experts from layer num_dense_layers on."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    agree(config, block_dim=hidden, conv_dim=hidden, conv_dim_out=hidden, num_heads=heads, block_use_swiglu=True)
    config.ignore(
        "block_mlp_init_scale",
        "block_out_init_scale",
        "block_use_xavier_init",
        "conv_use_xavier_init",
        "use_pos_enc",
        "theta",
    )
    attend = Attention(Heads(hidden, heads, kv_heads, head_dim), norm=QkNorm(RMS), rope=Rope(head_dim))
    mix = partial(short_conv, width=hidden, kernel=config.integer("conv_L_cache"), bias=on(config, "conv_bias"))
    d_ff = config.integer("intermediate_size")
    feeds: dict[bool, Block] = {}
    dense_layers = layers
    if sparse:
        dense_layers = config.integer("num_dense_layers", least=0)
        experts = config.integer("num_experts")
        feeds[True] = partial(
            moe,
            width=hidden,
            inner=config.integer("moe_intermediate_size"),
            routing=Routing(
                experts,
                min(config.integer("num_experts_per_tok"), experts),
                score="sigmoid",
                normalize=config.flag("norm_topk_prob", otherwise=True),
                balanced="buffer" if on(config, "use_expert_bias") else "",
            ),
        )
    elif on(config, "block_auto_adjust_ff_dim"):
        d_ff = int(2 * d_ff / 3)
        if config.raw("block_ffn_dim_multiplier", required=False) is not None:
            d_ff = scaled(config, "block_ffn_dim_multiplier", d_ff)
            multiple = config.integer("block_multiple_of")
            d_ff = -(-d_ff // multiple) * multiple
        positive(config, "intermediate_size", d_ff, "the feed-forward width")
    config.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    feeds[False] = partial(gated_mlp, width=hidden, inner=d_ff)

    def laid_out() -> Sequence[str]:
        if sparse:
            raise config.refuse("layer_types", "is missing", "add layer_types to the config; napkin does not guess it")
        if config.items("full_attn_idxs", required=False) is None:
            return [FULL] * layers
        attending = indices(config, "full_attn_idxs", layers)
        return [FULL if i in attending else CONV for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (FULL, CONV), laid_out)
    config.ignore("full_attn_idxs")

    def layer(key: tuple[str, bool]) -> Layer:
        kind, routed = key
        name = f"{'attention' if kind == FULL else 'conv'}_{'moe' if routed else 'mlp'}"
        return Layer(name, pre_norm(hidden, RMS, attend if kind == FULL else mix, feeds[routed]))

    return network(
        config,
        runs_of([(kind, i >= dense_layers) for i, kind in enumerate(listed)], layer),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )


lfm2_moe = partial(lfm2, sparse=True)


def lfm3(config: Config) -> Model:
    """LFM3: LFM2's gated short convolutions, and attention with a gate a head, in windows or full; a norm before and
    behind each block."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    kernel, inner = config.integer("conv_L_cache"), config.integer("intermediate_size")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim),
        projections=QkvProjections(bias=on(config, "attention_bias"), out_bias=on(config, "attention_bias")),
        norm=QkNorm(RMS),
        gate=Gate(per_head=True) if config.flag("use_attention_gate") else None,
    )
    mix = partial(short_conv, width=hidden, kernel=kernel, bias=on(config, "conv_bias"))
    feed = partial(gated_mlp, width=hidden, inner=inner)
    arrange = sandwich_norm if config.flag("use_sandwich_norm") else pre_norm
    window = config.optional_integer("sliding_window")

    def laid_out() -> Sequence[str]:
        return [FULL if i % 4 == 2 else WINDOWED if i % 4 == 0 and i else CONV for i in range(layers)]

    def turned(kind: str) -> Rope:
        entry = rope_of(config, kind, {}) or {}
        whole = entry.get("rope_type", "default") in ("default", "proportional")
        return Rope(in_pairs(config, head_dim, 1.0 if whole else entry.get("partial_rotary_factor", 1.0)))

    def layer(kind: str) -> Layer:
        if kind == CONV:
            return Layer("conv", arrange(hidden, RMS, mix, feed))
        if kind == WINDOWED and window is None:
            raise config.refuse("sliding_window", "is missing, but there are layers with a window")
        one = replace(attend, rope=turned(kind), scores=Scores(window=window if kind == WINDOWED else None))
        return Layer("sliding" if kind == WINDOWED else "full", arrange(hidden, RMS, one, feed))

    listed = kinds(config, "layer_types", layers, (FULL, WINDOWED, CONV), laid_out)
    config.ignore("rope_parameters")
    runs = runs_of(listed, layer)
    return network(config, runs, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim)


LFM2 = Architecture(
    "lfm2",
    lfm2,
    config_class="Lfm2Config",
    aliases={
        "block_dim": "hidden_size", "block_ff_dim": "intermediate_size", "num_heads": "num_attention_heads",
        "tie_embedding": "tie_word_embeddings",
    },
    defaults={
        "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        "conv_L_cache": 3, "conv_bias": False, "full_attn_idxs": None, "intermediate_size": 12288,
        "layer_types": None, "max_position_embeddings": 128000, "num_attention_heads": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": True, "vocab_size": 65536,
    },
    implementation=replace(HF, norms_inline=True),
    wrappers=(
        Wrapper("lfm2_vl"),
    ),
)  # fmt: skip
LFM2_MOE = Architecture(
    "lfm2_moe",
    lfm2_moe,
    config_class="Lfm2MoeConfig",
    aliases={"tie_embedding": "tie_word_embeddings"},
    defaults={
        "conv_L_cache": 3, "conv_bias": False, "intermediate_size": 7168, "layer_types": None,
        "max_position_embeddings": 128000, "moe_intermediate_size": 1792, "num_attention_heads": 32,
        "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "num_key_value_heads": 8,
        "tie_word_embeddings": True, "use_expert_bias": True, "vocab_size": 65536,
    },
    implementation=replace(SIGMOID_ROUTER, new_shares=True, norms_inline=True),
)  # fmt: skip
LFM3 = Architecture(
    "lfm3",
    lfm3,
    config_class="Lfm3Config",
    defaults={
        "attention_bias": False, "conv_L_cache": 7, "conv_bias": False, "head_dim": 128, "intermediate_size": 7680,
        "layer_types": None, "max_position_embeddings": 128000, "num_attention_heads": 16, "num_key_value_heads": 4,
        "sliding_window": 256, "tie_word_embeddings": True, "use_attention_gate": True, "use_sandwich_norm": True,
        "vocab_size": 128000,
    },
    implementation=replace(FP32_ROTARY, by_kind=True, mixer="torch", conv_view=True),
    wrappers=(
        Wrapper("lfm3_vl"),
    ),
)  # fmt: skip

ARCHITECTURES = (
    LFM2,
    LFM2_MOE,
    LFM3,
)

"""LFM2 and LFM3: gated short convolutions next to attention.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm, sandwich_norm
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Gate, QkNorm, QkvProjections, Rope, Scores
from napkin.architectures.blocks import RMS, Block, Routing, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.reading import FULL, WINDOWED, in_pairs, indices, on, rope_of, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import short_conv
from napkin.architectures.recurrent_parts import (
    CONV,
    Hybrid,
    agree,
    grouped_sizes,
    heads_of,
    hybrid,
    kinds,
    positive,
    scaled,
)
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import FP32_ROTARY, HF, ROUTED, SIGMOID_ROUTER
from napkin.operations.model import Model
from napkin.record import replace


def lfm2(config: Config, *, sparse: bool = False) -> Model:
    """Return LFM2: gated short convolutions, and attention with normalized queries and keys at some depths; the MLP's
    stated size may be shrunk by 2/3 and rounded up. LFM2-MoE: mixtures of experts from layer num_dense_layers on."""
    return hybrid(_read_lfm2(config, sparse))


def _read_lfm2(config: Config, sparse: bool) -> Hybrid:
    sizes = grouped_sizes(config)
    hidden = sizes.hidden
    agree(config, block_dim=hidden, conv_dim=hidden, conv_dim_out=hidden, num_heads=sizes.heads, block_use_swiglu=True)
    config.ignore("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init")
    config.ignore("use_pos_enc", "theta")
    feeds: dict[str, Block] = {}
    dense_layers = sizes.layers
    if sparse:
        dense_layers = config.integer("num_dense_layers", least=0)
        feeds["moe"] = _mixture(config)
    inner = config.integer("intermediate_size") if sparse else _adjusted_width(config)
    config.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    feeds["mlp"] = partial(gated_mlp, width=hidden, inner=inner)
    layers = tuple(
        ("attention" if kind == FULL else "conv", "moe" if i >= dense_layers else "mlp")
        for i, kind in enumerate(_lfm2_kinds(config, sizes.layers, sparse))
    )
    mixers: dict[str, Block] = {
        "attention": Attention(heads_of(sizes), norm=QkNorm(RMS), rope=Rope(sizes.head_dim)),
        "conv": _conv(config),
    }
    return Hybrid(sizes, layers, mixers, feeds)


def _conv(config: Config) -> Block:
    kernel, bias = config.integer("conv_L_cache"), on(config, "conv_bias")
    return partial(short_conv, width=width(config), kernel=kernel, bias=bias)


def _mixture(config: Config) -> Block:
    experts = config.integer("num_experts")
    routing = Routing(
        experts,
        min(config.integer("num_experts_per_tok"), experts),
        score="sigmoid",
        normalize=config.flag("norm_topk_prob", otherwise=True),
        balanced="buffer" if on(config, "use_expert_bias") else "",
    )
    return partial(moe, width=width(config), inner=config.integer("moe_intermediate_size"), routing=routing)


def _adjusted_width(config: Config) -> int:
    """Read the MLP's width, which the class may shrink by 2/3, multiply and round up."""
    inner = config.integer("intermediate_size")
    if not on(config, "block_auto_adjust_ff_dim"):
        return inner
    inner = int(2 * inner / 3)
    if config.raw("block_ffn_dim_multiplier", required=False) is not None:
        inner = scaled(config, "block_ffn_dim_multiplier", inner)
        multiple = config.integer("block_multiple_of")
        inner = -(-inner // multiple) * multiple
    return positive(config, "intermediate_size", inner, "the feed-forward width")


def _lfm2_kinds(config: Config, layers: int, sparse: bool) -> Sequence[str]:
    """Read what mixes in each layer, from one of two lists."""

    def by_indices() -> Sequence[str]:
        if sparse:
            raise config.refuse("layer_types", "is missing", "add layer_types to the config; napkin does not guess it")
        if config.items("full_attn_idxs", required=False) is None:
            return [FULL] * layers
        attending = indices(config, "full_attn_idxs", layers)
        return [FULL if i in attending else CONV for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (FULL, CONV), by_indices)
    config.ignore("full_attn_idxs")
    return listed


lfm2_moe = partial(lfm2, sparse=True)


def lfm3(config: Config) -> Model:
    """Return LFM3: LFM2's gated short convolutions, and attention with one gate per head, in windows or full; a norm
    before and after each block."""
    return hybrid(_read_lfm3(config))


def _read_lfm3(config: Config) -> Hybrid:
    sizes = grouped_sizes(config)

    def by_fours() -> Sequence[str]:
        return [FULL if i % 4 == 2 else WINDOWED if i % 4 == 0 and i else CONV for i in range(sizes.layers)]

    listed = kinds(config, "layer_types", sizes.layers, (FULL, WINDOWED, CONV), by_fours)
    mixers: dict[str, Block] = {"conv": _conv(config), **_lfm3_attention(config, sizes, listed)}
    config.ignore("rope_parameters")
    feed = partial(gated_mlp, width=sizes.hidden, inner=config.integer("intermediate_size"))
    arrangement = sandwich_norm if config.flag("use_sandwich_norm") else pre_norm
    words = {CONV: "conv", WINDOWED: "sliding", FULL: "full"}
    return Hybrid(sizes, tuple((words[kind], "") for kind in listed), mixers, {"": feed}, arrangement=arrangement)


def _lfm3_attention(config: Config, sizes: Dimensions, listed: Sequence[str]) -> dict[str, Block]:
    """Read the kinds of attention that some layer has."""
    bias, gated = on(config, "attention_bias"), config.flag("use_attention_gate")
    window = config.optional_integer("sliding_window")
    found: dict[str, Block] = {}
    for name, kind in (("sliding", WINDOWED), ("full", FULL)):
        if kind not in listed:
            continue
        if kind == WINDOWED and window is None:
            raise config.refuse("sliding_window", "is missing, but there are layers with a window")
        found[name] = Attention(
            heads_of(sizes),
            projections=QkvProjections(bias=bias, out_bias=bias),
            norm=QkNorm(RMS),
            gate=Gate(per_head=True) if gated else None,
            rope=_lfm3_rope(config, sizes.head_dim, kind),
            scores=Scores(window=window if kind == WINDOWED else None),
        )
    return found


def _lfm3_rope(config: Config, head_dim: int, kind: str) -> Rope:
    entry = rope_of(config, kind, {}) or {}
    whole = entry.get("rope_type", "default") in ("default", "proportional")
    return Rope(in_pairs(config, head_dim, 1.0 if whole else entry.get("partial_rotary_factor", 1.0)))


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
        Wrapper("lfm2_vl", aliases={"tie_embedding": "tie_word_embeddings"}),
    ),
    modules={
        "mixer_in_proj": "conv.in_proj", "mixer_out_proj": "conv.out_proj", "gate": "feed_forward.w1",
        "up": "feed_forward.w3", "down": "feed_forward.w2", "o": "self_attn.out_proj",
    },
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
    implementation=replace(SIGMOID_ROUTER, shares=new_shares, norms_inline=True, registers_first=(ROUTED,)),
    modules={
        "mixer_in_proj": "conv.in_proj", "mixer_out_proj": "conv.out_proj", "gate": "feed_forward.w1",
        "up": "feed_forward.w3", "down": "feed_forward.w2", "router": "feed_forward.gate",
        "experts": "feed_forward.experts", "o": "self_attn.out_proj",
    },
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
    implementation=replace(FP32_ROTARY, by_kind=True),
    wrappers=(
        Wrapper("lfm3_vl"),
    ),
    modules={
        "gate_logit": "self_attn.g_proj", "gate": "feed_forward.w1", "up": "feed_forward.w3",
        "down": "feed_forward.w2", "mixer_in_proj": "conv.in_proj", "mixer_out_proj": "conv.out_proj",
    },
)  # fmt: skip

ARCHITECTURES = (
    LFM2,
    LFM2_MOE,
    LFM3,
)

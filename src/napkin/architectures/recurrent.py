"""Networks with recurrences and convolutions of other kinds: Griffin, LFM2 and LFM3, MiniMax-01, RWKV.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm, sandwich_norm
from napkin.architectures.attention import Attention, Gate, Heads, QkNorm, QkvProjections, Rope, Scores
from napkin.architectures.blocks import LAYER, RMS, RMS_OFFSET, Block, Routing, gated_mlp, moe
from napkin.architectures.common import (
    FULL,
    WINDOWED,
    activation,
    depth,
    head_size,
    in_pairs,
    indices,
    kv_heads_of,
    on,
    rope_of,
    rotary_dim,
    runs_of,
    width,
)
from napkin.architectures.mixing import CONV, LINEAR, agree, kinds, network, positive, scaled
from napkin.architectures.recurrent_blocks import channel_mix, lightning, rg_lru, short_conv, wkv
from napkin.inputs.model import Config
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Scale
from napkin.record import replace


def recurrent_gemma(config: Config) -> Model:
    """RecurrentGemma (arXiv:2404.07839): RG-LRU blocks, and local attention, in a repeated pattern."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    pattern = config.items("block_types") or []
    if not pattern or any(entry not in ("recurrent", "attention") for entry in pattern):
        raise config.refuse("block_types", "napkin knows recurrent and attention alone")
    function = activation(config, "hidden_activation", "hidden_act")
    inner = config.optional_integer("lru_width") or hidden
    config.divides("lru_width", inner, heads, "(lru_width)")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim),
        projections=QkvProjections(bias=on(config, "attention_bias"), out_bias=True),
        scores=Scores(window=config.integer("attention_window_size")),
        rope=Rope(rotary_dim(config, head_dim, 0.5)),
    )
    mix = partial(
        rg_lru, width=hidden, inner=inner, heads=heads, kernel=config.integer("conv1d_width"), function=function
    )
    d_ff = positive(config, "intermediate_size", config.integer("intermediate_size") // 2, "the feed-forward width")
    feed = partial(gated_mlp, width=hidden, inner=d_ff, function=function, bias=True)
    config.must_be("embeddings_scale_by_sqrt_dim", True)
    listed = [pattern[i % len(pattern)] for i in range(layers)]
    runs = runs_of(
        listed,
        lambda kind: Layer(kind, pre_norm(hidden, RMS_OFFSET, attend if kind == "attention" else mix, feed)),
    )
    model = network(
        config,
        runs,
        hidden=hidden,
        norm=RMS_OFFSET,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=True,
        softcap=True,
        positions=False,
    )
    stack = model.stacks[0]
    factor = tuple(replace(op, held="bf16") if isinstance(op, Scale) else op for op in stack.before)
    return replace(model, stacks=(replace(stack, before=factor),))


def lfm2(config: Config, *, sparse: bool = False) -> Model:
    """LFM2: gated short convolutions, and attention with normalised queries and keys at some depths; the MLP's stated
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
                normalise=config.flag("norm_topk_prob", otherwise=True),
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


def minimax(config: Config) -> Model:
    """MiniMax-01 (arXiv:2501.08313): lightning attention, full attention at some depths, mixtures of experts in all."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    function = activation(config, "hidden_act")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim),
        scores=Scores(window=config.optional_integer("sliding_window")),
        rope=Rope(rotary_dim(config, head_dim, 1.0)),
    )
    mix = partial(
        lightning,
        width=hidden,
        heads=heads,
        head_dim=head_dim,
        chunk=config.integer("block_size"),
        function=function,
    )
    experts = config.integer("num_local_experts")
    feed = partial(
        moe,
        width=hidden,
        inner=config.integer("intermediate_size"),
        routing=Routing(
            experts,
            min(config.integer("num_experts_per_tok"), experts),
            normalise=True,
            jitter=1 if config.real("router_jitter_noise", required=False) else 0,
        ),
        function=function,
    )
    listed = kinds(
        config, "layer_types", layers, (LINEAR, FULL), lambda: [LINEAR if i % 2 else FULL for i in range(layers)]
    )
    runs = runs_of(
        listed,
        lambda kind: Layer(
            "attention" if kind == FULL else "lightning",
            pre_norm(hidden, RMS, attend if kind == FULL else mix, feed, scale=True, residual_after_norm=True),
        ),
    )
    return network(
        config,
        runs,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        routed=(experts, min(config.integer("num_experts_per_tok"), experts)),
    )


# --- RWKV ------------------------------------------------------------------------------------------------------------


def rwkv(config: Config) -> Model:
    """RWKV-4 (arXiv:2305.13048): time mixing, then channel mixing; a norm of its own before the first layer."""
    hidden, layers = width(config), depth(config)
    inner = config.optional_integer("attention_hidden_size") or hidden
    mix = partial(wkv, width=hidden, inner=inner)
    feed = partial(channel_mix, width=hidden, d_ff=config.optional_integer("intermediate_size") or 4 * hidden)
    layer = Layer("rwkv", pre_norm(hidden, LAYER, mix, feed))
    model = network(
        config,
        ((layers, layer),),
        hidden=hidden,
        norm=LAYER,
        heads=inner,
        kv_heads=inner,
        head_dim=1,
    )
    stack = model.stacks[0]
    first = LAYER("embedding_norm", stack.before[-1].name, hidden)
    return replace(model, stacks=(replace(stack, before=(*stack.before, first)),))

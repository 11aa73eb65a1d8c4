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
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import channel_mix, lightning, rg_lru, short_conv, wkv
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROTARY, HF, SIGMOID_ROUTER
from napkin.operations.model import Layer, Model
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
    factor = tuple(replace(op, held="bf16") if op.name == "embedding_scaled" else op for op in stack.before)
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


# --- records ---------------------------------------------------------------------------------------------------------

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
MINIMAX = Architecture(
    "minimax",
    minimax,
    config_class="MiniMaxConfig",
    aliases={"num_experts": "num_local_experts"},
    defaults={
        "block_size": 256, "head_dim": None, "hidden_act": "silu", "intermediate_size": 14336, "layer_types": None,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    implementation=replace(HF, mixer="torch", router="scores"),
)  # fmt: skip
RECURRENT_GEMMA = Architecture(
    "recurrent_gemma",
    recurrent_gemma,
    config_class="RecurrentGemmaConfig",
    aliases={"layer_types": "layers_block_type", "sliding_window": "attention_window_size"},
    defaults={
        "attention_bias": False, "attention_window_size": 2048,
        "block_types": ["recurrent", "recurrent", "attention"], "conv1d_width": 4,
        "hidden_activation": "gelu_pytorch_tanh", "intermediate_size": 7680, "lru_width": None,
        "num_attention_heads": 10, "num_key_value_heads": None, "tie_word_embeddings": True, "vocab_size": 256000,
    },
    implementation=replace(HF, rotary="values", mixer="torch"),
)  # fmt: skip
RWKV = Architecture(
    "rwkv",
    rwkv,
    config_class="RwkvConfig",
    aliases={"context_length": "max_position_embeddings"},
    defaults={
        "attention_hidden_size": None, "intermediate_size": None, "max_position_embeddings": 1024,
        "tie_word_embeddings": False, "vocab_size": 50277,
    },
)  # fmt: skip

ARCHITECTURES = (LFM2, LFM2_MOE, LFM3, MINIMAX, RECURRENT_GEMMA, RWKV)

"""Jamba: Mamba next to attention, and mixtures of experts.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.blocks import (
    RMS,
    Routing,
    gated_mlp,
    moe,
)
from napkin.architectures.common import FULL, activation, depth, head_size, kv_heads_of, on, runs_of, width
from napkin.architectures.mixing import (
    LINEAR,
    grouped_attention,
    kinds,
    network,
    rank_of,
)
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_blocks import selective
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Layer, Model
from napkin.record import replace


def jamba(config: Config) -> Model:
    """Jamba (arXiv:2403.19887): Mamba with normalized Δ, B, C; attention and mixtures of experts every so often."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
    expert_period, expert_offset = (
        config.integer("expert_layer_period"),
        config.integer("expert_layer_offset", least=0),
    )
    for name, at, every in (("attn", offset, period), ("expert", expert_offset, expert_period)):
        if at >= every:
            raise config.wrong(f"{name}_layer_offset", f"{at} is not below the period {every}")
    config.must_be("sliding_window", None)
    config.must_be("mamba_inner_layernorms", True)
    experts, top_k = config.integer("num_experts"), config.integer("num_experts_per_tok")
    inner_width = config.integer("intermediate_size")
    function = activation(config, "hidden_act")
    attend = grouped_attention(config, hidden, heads, None, bias=False)
    mix = partial(
        selective,
        width=hidden,
        inner=config.integer("mamba_expand") * hidden,
        state=config.integer("mamba_d_state"),
        rank=rank_of(config, "mamba_dt_rank", hidden),
        kernel=config.integer("mamba_d_conv"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        normed=True,
        function=function,
    )
    dense = partial(gated_mlp, width=hidden, inner=inner_width, function=function)
    mixture = partial(
        moe, width=hidden, inner=inner_width, routing=Routing(experts, min(top_k, experts)), function=function
    )
    keys = [(i % period == offset, experts > 1 and i % expert_period == expert_offset) for i in range(layers)]
    listed = [FULL if attends else LINEAR for attends, _ in keys]
    if config.has("layers_block_type"):
        stated = kinds(config, "layers_block_type", layers, (FULL, LINEAR), lambda: listed)
        if list(stated) != listed:
            raise config.refuse("layers_block_type", "contradicts attn_layer_period and attn_layer_offset")

    def layer(key: tuple[bool, bool]) -> Layer:
        attends, sparse = key
        name = f"{'attention' if attends else 'mamba'}_{'moe' if sparse else 'mlp'}"
        return Layer(name, pre_norm(hidden, RMS, attend if attends else mix, mixture if sparse else dense))

    return network(
        config,
        runs_of(keys, layer),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_size(config, hidden, heads),
        routed=(experts, min(top_k, experts)) if experts > 1 else (0, 0),
    )


JAMBA = Architecture(
    "jamba",
    jamba,
    config_class="JambaConfig",
    aliases={"num_local_experts": "num_experts"},
    defaults={
        "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
        "hidden_act": "silu", "intermediate_size": 14336, "mamba_conv_bias": True, "mamba_d_conv": 4,
        "mamba_d_state": 16, "mamba_dt_rank": "auto", "mamba_expand": 2, "mamba_proj_bias": False,
        "max_position_embeddings": 262144, "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2,
        "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 65536,
    },
    implementation=replace(HF, mixer="apart", router="tokens"),
)  # fmt: skip

ARCHITECTURES = (JAMBA,)

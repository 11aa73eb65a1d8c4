"""Jamba: Mamba next to attention, and mixtures of experts.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.blocks import Block, Routing, gated_mlp, moe
from napkin.architectures.reading import FULL, activation, balance_loss, on, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_parts import (
    LINEAR,
    Hybrid,
    grouped_attention,
    grouped_sizes,
    hybrid,
    kinds,
    rank_of,
)
from napkin.architectures.state_space import Selective
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.record import replace


def jamba(config: Config) -> Model:
    """Return Jamba (arXiv:2403.19887): Mamba with normalized Δ, B, C; attention and mixtures of experts every so
    often."""
    return hybrid(_read(config))


def _read(config: Config) -> Hybrid:
    sizes, function = grouped_sizes(config), activation(config, "hidden_act")
    config.must_be("sliding_window", None)
    experts, top_k = config.integer("num_experts"), config.integer("num_experts_per_tok")
    routing, inner = Routing(experts, min(top_k, experts)), config.integer("intermediate_size")
    layers = _layers(config, sizes.layers, experts > 1)
    mixers: dict[str, Block] = {"attention": grouped_attention(sizes, None, bias=False), "mamba": _mamba(config)}
    feeds: dict[str, Block] = {
        "mlp": partial(gated_mlp, width=sizes.hidden, inner=inner, function=function),
        "moe": partial(moe, width=sizes.hidden, inner=inner, routing=routing, function=function),
    }
    balance = balance_loss(config, experts, routing.top_k) if experts > 1 else None
    return Hybrid(sizes, layers, mixers, feeds, balance=balance)


def _mamba(config: Config) -> Block:
    config.must_be("mamba_inner_layernorms", True)
    hidden = width(config)
    return Selective(
        width=hidden,
        inner=config.integer("mamba_expand") * hidden,
        state=config.integer("mamba_d_state"),
        rank=rank_of(config, "mamba_dt_rank", hidden),
        kernel=config.integer("mamba_d_conv"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        normed=True,
        function=activation(config, "hidden_act"),
    )


def _layers(config: Config, layers: int, sparse: bool) -> tuple[tuple[str, str], ...]:
    """Read which layers attend, and which have experts if there are any (`sparse`)."""
    attends, routes = (_every_so_often(config, name, layers) for name in ("attn", "expert"))
    if config.has("layers_block_type"):
        listed = [FULL if one else LINEAR for one in attends]
        stated = kinds(config, "layers_block_type", layers, (FULL, LINEAR), lambda: listed)
        if list(stated) != listed:
            raise config.refuse("layers_block_type", "contradicts attn_layer_period and attn_layer_offset")
    return tuple(
        ("attention" if attending else "mamba", "moe" if sparse and routed else "mlp")
        for attending, routed in zip(attends, routes, strict=True)
    )


def _every_so_often(config: Config, name: str, layers: int) -> list[bool]:
    """Read which layers a period and an offset below it name."""
    period, offset = config.integer(f"{name}_layer_period"), config.integer(f"{name}_layer_offset", least=0)
    if offset >= period:
        raise config.wrong(f"{name}_layer_offset", f"{offset} is not below the period {period}")
    return [i % period == offset for i in range(layers)]


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
    modules={
        "mixer_in_proj": "mamba.in_proj", "mixer_x_proj": "mamba.x_proj", "mixer_dt_proj": "mamba.dt_proj",
        "mixer_out_proj": "mamba.out_proj", "gate": "feed_forward.gate_proj", "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj", "router": "feed_forward.router", "experts": "feed_forward.experts",
    },
)  # fmt: skip

ARCHITECTURES = (JAMBA,)

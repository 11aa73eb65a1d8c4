"""Lara Mini: gated delta-rule layers next to attention in windows and in full, and experts in every layer.

Field names and arrangements are facts of the class of Hugging Face transformers 5.24.0
(src/transformers/models/lara_mini/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_FP32, Block, Routing, gated_mlp, moe
from napkin.architectures.delta_rule import SPLIT_DELTA, gated_delta, stated_sizes
from napkin.architectures.families.recurrent.qwen3_next import QWEN3_5_MOE_TEXT
from napkin.architectures.reading import FULL, WINDOWED, activation, balance_loss, chosen_experts, on
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_parts import LINEAR, Hybrid, grouped_sizes, heads_of, hybrid, kinds
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.record import replace

_PERIOD = (LINEAR, WINDOWED, LINEAR, FULL, WINDOWED)
_MIXERS = {LINEAR: "delta", WINDOWED: "sliding", FULL: "full"}


def _routing(config: Config) -> Routing:
    experts, top_k = chosen_experts(config, "num_experts", "num_experts_per_tok")
    return Routing(experts, top_k, normalize=config.flag("norm_topk_prob"), upcast=True)


def _mixture(config: Config, hidden: int, routing: Routing) -> Block:
    function = activation(config, "hidden_act")
    shared = config.integer("shared_expert_intermediate_size")
    return partial(
        moe,
        width=hidden,
        inner=config.integer("moe_intermediate_size"),
        routing=routing,
        function=function,
        shared=partial(gated_mlp, width=hidden, inner=shared, function=function, prefix="shared/"),
    )


def _lara_mini(config: Config) -> Model:
    """Return the network: attention has rotary positions in its windows only."""
    sizes = grouped_sizes(config)
    bias = on(config, "attention_bias")
    attention = Attention(heads_of(sizes), projections=QkvProjections(bias=bias, out_bias=bias), norm=QkNorm(RMS_FP32))
    windowed = attention.scored(window=config.integer("sliding_window"))
    mixers: dict[str, Block] = {
        "full": attention,
        "sliding": replace(windowed, rope=Rope(sizes.head_dim)),
        "delta": replace(gated_delta(config, SPLIT_DELTA, stated_sizes(config)), arithmetic="fp32"),
    }
    listed = kinds(
        config,
        "layer_types",
        sizes.layers,
        (LINEAR, FULL, WINDOWED),
        lambda: [_PERIOD[i % len(_PERIOD)] for i in range(sizes.layers)],
    )
    routing = _routing(config)
    return hybrid(
        Hybrid(
            sizes,
            tuple((_MIXERS[kind], "moe") for kind in listed),
            mixers,
            {"moe": _mixture(config, sizes.hidden, routing)},
            RMS_FP32,
            balance=balance_loss(config, routing.experts, routing.top_k),
        )
    )


LARA_MINI = Architecture(
    "lara_mini",
    _lara_mini,
    config_class="LaraMiniConfig",
    implementation=replace(
        HF, fp32_norm_weight=True, router="tokens", shares=new_shares, norms_inline=True, fp32_logits=True
    ),
    modules=QWEN3_5_MOE_TEXT.modules,
    defaults={
        "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "layer_types": None,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 8,
        "linear_num_value_heads": 16, "linear_value_head_dim": 128, "max_position_embeddings": 131072,
        "moe_intermediate_size": 512, "norm_topk_prob": True, "num_attention_heads": 16, "num_experts": 128,
        "num_experts_per_tok": 4, "num_key_value_heads": 4, "shared_expert_intermediate_size": 512,
        "sliding_window": 512, "tie_word_embeddings": True, "vocab_size": 151936,
    },
)  # fmt: skip

ARCHITECTURES = (LARA_MINI,)

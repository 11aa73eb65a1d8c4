"""MiniMax-01: lightning attention next to softmax attention, and mixtures of experts.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention, Heads, Rope, Scores
from napkin.architectures.blocks import RMS, Routing, moe
from napkin.architectures.common import (
    FULL,
    activation,
    depth,
    head_size,
    kv_heads_of,
    rotary_dim,
    runs_of,
    width,
)
from napkin.architectures.mixing import LINEAR, kinds, network
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_blocks import lightning
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Layer, Model
from napkin.record import replace


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
            normalize=True,
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

ARCHITECTURES = (MINIMAX,)

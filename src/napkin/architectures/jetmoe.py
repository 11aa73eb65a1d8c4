"""JetMoE (arXiv:2404.07413)."""

from __future__ import annotations

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Rope
from napkin.architectures.blocks import RMS, Operations
from napkin.architectures.common import activation, balance_loss, chosen_experts, depth, width
from napkin.architectures.dimensions import decoder_of, dimensions_of
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.experts import ExpertMatmul
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Multiply
from napkin.operations.roles import COLUMN, KEY, VALUE
from napkin.operations.router import Router
from napkin.operations.views import Concat, Slice
from napkin.record import replace


def jetmoe(config: Config) -> Model:
    """Return JetMoE: queries and outputs of attention are chosen among experts, as the feed-forward is; keys and values
    are the same for all choices of a token."""
    hidden, layers = width(config), depth(config)
    kv_heads, size = config.integer("num_key_value_heads"), config.integer("kv_channels")
    experts, top_k = chosen_experts(config, "num_local_experts", "num_experts_per_tok")
    config.ignore("num_attention_heads")  # the class computes it
    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, kv_heads * top_k, kv_heads, size, length)
    function, inner = activation(config, "activation_function"), config.integer("intermediate_size")
    wide, rope = kv_heads * size, Rope(size)

    def router(name: str, source: str) -> Router:
        return Router(name, (source,), hidden, experts, top_k, score="softmax_top_k")

    def linear(name: str, source: str, by: str, d_in: int, d_out: int, rows: str, makes: str) -> ExpertMatmul:
        return ExpertMatmul(name, (source, by), d_in, d_out, experts, top_k, rows, makes)

    def attend(source: str) -> Operations:
        return (
            router("attention_router", source),
            linear("q", source, "attention_router", hidden, wide, "tokens", "choices"),
            Matmul("kv", (source,), hidden, 2 * wide, False, COLUMN),
            Slice("k", ("kv",), wide, role=KEY),
            Slice("v", ("kv",), wide, role=VALUE),
            rope("q_rope", "q", kv_heads * top_k, size),
            rope("k_rope", "k", kv_heads, size),
            Concat("k_repeated", ("k_rope",), top_k * wide),
            Concat("v_repeated", ("v",), top_k * wide),
            AttentionCore(
                "attention", ("q_rope", "k_repeated", "v_repeated"), kv_heads * top_k, kv_heads * top_k, size, size
            ),
            linear("o", "attention", "attention_router", wide, hidden, "choices", "tokens"),
        )

    def feed(source: str) -> Operations:
        return (
            router("router", source),
            linear("gate_up", source, "router", hidden, 2 * inner, "tokens", "sorted"),
            Slice("gate", ("gate_up",), top_k * inner),
            Slice("up", ("gate_up",), top_k * inner),
            Activation("activation", ("gate",), top_k * inner, function),
            Multiply("gated", ("activation", "up"), top_k * inner),
            linear("down", "gated", "router", inner, hidden, "sorted", "tokens"),
        )

    layer = Layer("moe", pre_norm(hidden, RMS, attend, feed))
    balance = balance_loss(config, experts, top_k, each=3)  # the class records the logits of attention's router twice
    return decoder_of(sizes, ((layers, layer),), RMS, balance=balance)


JETMOE = Architecture(
    "jetmoe",
    jetmoe,
    config_class="JetMoeConfig",
    aliases={"head_dim": "kv_channels"},
    implementation=replace(HF, router="tokens", fp32_logits=True),
    defaults={
        "activation_function": "silu", "intermediate_size": 5632, "kv_channels": 128,
        "max_position_embeddings": 4096, "num_experts_per_tok": 2, "num_key_value_heads": 16,
        "num_local_experts": 8, "tie_word_embeddings": True, "vocab_size": 32000,
    },
)  # fmt: skip

ARCHITECTURES = (JETMOE,)

"""JetMoE (arXiv:2404.07413)."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS, Operations
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions_of
from napkin.architectures.reading import activation, balance_loss, chosen_experts, depth, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.experts import ExpertMatmul
from napkin.operations.implementations import HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Multiply
from napkin.operations.roles import COLUMN, KEY, VALUE
from napkin.operations.router import Router
from napkin.operations.views import Concat, Slice
from napkin.record import record, replace


@record
class JetMoeReading:
    """What a config.json says of JetMoE. Query heads: `kv_heads` for each expert that a token chooses."""

    sizes: Dimensions
    experts: int
    top_k: int
    inner: int
    function: str
    balance: Operation | None


def read(config: Config) -> JetMoeReading:
    """Read a config.json."""
    hidden, layers = width(config), depth(config)
    kv_heads, head_dim = config.integer("num_key_value_heads"), config.integer("kv_channels")
    experts, top_k = chosen_experts(config, "num_local_experts", "num_experts_per_tok")
    config.ignore("num_attention_heads")  # the class computes it
    length = config.optional_integer("max_position_embeddings")
    return JetMoeReading(
        dimensions_of(config, hidden, layers, kv_heads * top_k, kv_heads, head_dim, length),
        experts,
        top_k,
        config.integer("intermediate_size"),
        activation(config, "activation_function"),
        balance_loss(config, experts, top_k, each=2),  # one router for attention, one for the experts
    )


def _router(of: JetMoeReading, name: str, source: str) -> Router:
    return Router(name, (source,), of.sizes.hidden, of.experts, of.top_k, score="softmax_top_k")


def _attention(of: JetMoeReading, source: str) -> Operations:
    """Return attention whose queries and output projections are chosen among experts; the keys and values of a token
    are the same for all its choices."""
    sizes, top_k = of.sizes, of.top_k
    hidden, heads, kv_heads, size = sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim
    kv_width, rope, reads = kv_heads * size, Rope(size), (source, "attention_router")
    return (
        _router(of, "attention_router", source),
        ExpertMatmul("q", reads, hidden, kv_width, of.experts, top_k, "tokens", "choices"),
        Matmul("kv", (source,), hidden, 2 * kv_width, False, COLUMN),
        Slice("k", ("kv",), kv_width, role=KEY),
        Slice("v", ("kv",), kv_width, role=VALUE),
        rope("q_rope", "q", heads, size),
        rope("k_rope", "k", kv_heads, size),
        Concat("k_repeated", ("k_rope",), top_k * kv_width),
        Concat("v_repeated", ("v",), top_k * kv_width),
        AttentionCore("attention", ("q_rope", "k_repeated", "v_repeated"), heads, heads, size, size),
        ExpertMatmul("o", ("attention", "attention_router"), kv_width, hidden, of.experts, top_k, "choices", "tokens"),
    )


def _feed_forward(of: JetMoeReading, source: str) -> Operations:
    hidden, inner, experts, top_k = of.sizes.hidden, of.inner, of.experts, of.top_k
    return (
        _router(of, "router", source),
        ExpertMatmul("gate_up", (source, "router"), hidden, 2 * inner, experts, top_k, "tokens", "sorted"),
        Slice("gate", ("gate_up",), top_k * inner),
        Slice("up", ("gate_up",), top_k * inner),
        Activation("activation", ("gate",), top_k * inner, of.function),
        Multiply("gated", ("activation", "up"), top_k * inner),
        ExpertMatmul("down", ("gated", "router"), inner, hidden, experts, top_k, "sorted", "tokens"),
    )


def jetmoe(config: Config) -> Model:
    """Return JetMoE: mixtures of experts in attention and in the feed-forward."""
    of = read(config)
    layer = Layer("moe", pre_norm(of.sizes.hidden, RMS, partial(_attention, of), partial(_feed_forward, of)))
    return decoder_of(of.sizes, ((of.sizes.layers, layer),), RMS, balance=of.balance)


JETMOE = Architecture(
    "jetmoe",
    jetmoe,
    config_class="JetMoeConfig",
    aliases={"head_dim": "kv_channels"},
    implementation=replace(
        HF, router="tokens", fp32_logits=True, checkpoints=False, linear_router=True, looped_in_4="joined"
    ),
    defaults={
        "activation_function": "silu", "intermediate_size": 5632, "kv_channels": 128,
        "max_position_embeddings": 4096, "num_experts_per_tok": 2, "num_key_value_heads": 16,
        "num_local_experts": 8, "tie_word_embeddings": True, "vocab_size": 32000,
    },
    modules={
        "attention_router": "self_attention.experts.router.layer", "q": "self_attention.experts.input_linear",
        "kv": "self_attention.kv_proj", "o": "self_attention.experts.output_linear", "router": "mlp.router.layer",
        "gate_up": "mlp.input_linear", "down": "mlp.output_linear",
    },
)  # fmt: skip

ARCHITECTURES = (JETMOE,)

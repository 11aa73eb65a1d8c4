"""ZAYA: compressed convolutional attention and experts whose routers hand their state on, config.json → operations.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/zaya/).
"""

from __future__ import annotations

from napkin.architectures.attention import Rope
from napkin.architectures.blocks import RMS, Operations
from napkin.architectures.common import (
    activation,
    depth,
    embedding,
    head,
    headless,
    kv_heads_of,
    on,
    runs_of,
    tied,
    width,
)
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.mixing import kinds
from napkin.architectures.record import Architecture
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.base import COLUMN, KEY, QUERY, ROW, VALUE
from napkin.operations.experts import Experts, Router
from napkin.operations.implementations import PARTIAL_ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.norms import UnitNorm
from napkin.operations.pointwise import Activation, Add, Affine, GroupMean, Scale
from napkin.operations.recurrence import ConvPair, HalfShifted
from napkin.operations.views import Cast, Concat, SideInput, Slice
from napkin.record import replace

HYBRID, SLIDING = "hybrid", "hybrid_sliding"
ROTARY_SHARE = 0.5
"""Of a head, where the file says nothing of rotation."""


def zaya(config: Config) -> Model:
    """ZAYA1 (arXiv:2511.17127): each layer compressed convolutional attention, then one of the experts or none, which a
    network with a state of its own chooses; learned scales on both sides of each residual sum, which is fp32."""
    hidden, layers = width(config), depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    kv_heads = kv_heads_of(config, heads)
    config.must_be("num_experts_per_tok", 1)
    listed = kinds(config, "layer_types", layers, (HYBRID, SLIDING), lambda: [HYBRID] * layers)
    window = config.integer("sliding_window") if SLIDING in listed else None
    config.ignore("sliding_window")
    if kv_heads * head_dim % 2:
        raise config.wrong("head_dim", f"{kv_heads} values of {head_dim} numbers have no halves")
    bias = on(config, "attention_bias")
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    kernels = (config.integer("cca_time0"), config.integer("cca_time1"))
    router_width, experts = config.integer("router_hidden_size"), config.integer("num_experts")
    inner, function = config.integer("moe_intermediate_size"), activation(config, "hidden_act")
    ropes = {kind: Rope(_rotary(config, kind, head_dim)) for kind in sorted(set(listed))}

    def attend(kind: str) -> Operations:
        source = "attention_norm"
        rope = ropes[kind]
        return (
            Matmul("q", (source,), hidden, q_width, bias, COLUMN, role=QUERY),
            Matmul("k", (source,), hidden, kv_width, bias, COLUMN, role=KEY),
            Concat("qk", ("q", "k"), q_width + kv_width),
            Add("q_and_k", ("q", "k"), q_width),
            Scale("q_past", ("q_and_k",), q_width),
            GroupMean("k_past", ("q_past",), kv_width),
            ConvPair("convolved", ("qk",), q_width + kv_width, head_dim, kernels),
            Slice("q_convolved", ("convolved",), q_width),
            Slice("k_convolved", ("convolved",), kv_width),
            Add("q_sum", ("q_convolved", "q_past"), q_width),
            Add("k_sum", ("k_convolved", "k_past"), kv_width),
            Matmul("v_now", (source,), hidden, kv_width // 2, bias, COLUMN),
            Matmul("v_later", (source,), hidden, kv_width // 2, bias, COLUMN),
            HalfShifted("v", ("v_now", "v_later"), kv_width, hidden, role=VALUE),
            UnitNorm("q_norm", ("q_sum",), head_dim, heads),
            UnitNorm("k_norm", ("k_sum",), head_dim, kv_heads, learned=True),
            rope("q_rope", "q_norm", heads, head_dim),
            rope("k_rope", "k_norm", kv_heads, head_dim),
            AttentionCore(
                "attention",
                ("q_rope", "k_rope", "v"),
                heads,
                kv_heads,
                head_dim,
                head_dim,
                window=window if kind == SLIDING else None,
            ),
            Matmul("o", ("attention",), q_width, hidden, bias, ROW),
        )

    def choose(number: int) -> Operations:
        state: Operations = (Matmul("router_state", ("mlp_norm",), hidden, router_width, True),)
        if number:
            state = (
                Matmul("router_own", ("mlp_norm",), hidden, router_width, True),
                SideInput("router_before", (), router_width, fp32=number > 1),
                Scale("router_scaled", ("router_before",), router_width, learned=True),
                Add("router_state", ("router_own", "router_scaled"), router_width),
            )
        return (
            *state,
            RMS("router_norm", "router_state", router_width),
            Matmul("router_first", ("router_norm",), router_width, router_width, True),
            Activation("router_first_act", ("router_first",), router_width, "gelu"),
            Matmul("router_second", ("router_first_act",), router_width, router_width, True),
            Activation("router_second_act", ("router_second",), router_width, "gelu"),
            Router("router", ("router_second_act",), router_width, experts + 1, 1, balanced="buffer"),
        )

    def layer(key: tuple[str, int]) -> Layer:
        kind, number = key
        operations = (
            Cast("attention_narrowed", ("x",), hidden),
            RMS("attention_norm", "attention_narrowed", hidden),
            *attend(kind),
            *_merged("attention", "o", "x", hidden),
            Cast("mlp_narrowed", ("attention_residual",), hidden),
            RMS("mlp_norm", "mlp_narrowed", hidden),
            *choose(number),
            Experts("experts", ("mlp_norm", "router"), hidden, inner, experts, 1, function=function),
            *_merged("mlp", "experts", "attention_residual", hidden),
        )
        return Layer("sliding" if kind == SLIDING else "attention", operations)

    vocabulary = config.integer("vocab_size")
    none = headless(config)
    before = (*embedding(vocabulary, hidden), Affine("embedding_scaled", ("embedding",), hidden))
    after = head(hidden, vocabulary, norm=RMS, bias=on(config, "lm_head_bias"), none=none)
    narrowed = (Cast("narrowed", ("x",), hidden), replace(after[0], reads=("narrowed",)), *after[1:])
    config.notes.append(f"a token may pass all {experts} experts by: its code sends it through one all the same")
    config.notes.append(f"routers' states, {router_width:,} numbers a token, are not counted in what stages send")
    return decoder_only(
        Dimensions(
            config.name,
            config.model_type,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            vocabulary,
            config.optional_integer("max_position_embeddings"),
            tied(config) and not none,
        ),
        (*before, Cast("widened", ("embedding_scaled",), hidden, fp32=True)),
        runs_of([(kind, min(i, 2)) for i, kind in enumerate(listed)], layer),
        narrowed,
    )


def _merged(name: str, branch: str, stream: str, hidden: int) -> Operations:
    """Return a residual sum, each side shifted and scaled by learned vectors."""
    return (
        Affine(f"{name}_scaled", (branch,), hidden),
        Affine(f"{name}_kept", (stream,), hidden),
        Add(f"{name}_residual", (f"{name}_scaled", f"{name}_kept"), hidden),
    )


def _rotary(config: Config, kind: str, head_dim: int) -> int:
    """Numbers of a head that rotate in layers of a kind."""
    stated = config.mapping("rope_parameters", required=False)
    share: object = ROTARY_SHARE
    if stated is not None:
        inside = stated.get(kind)
        if not isinstance(inside, dict):
            raise config.wrong("rope_parameters", f"says nothing of {kind} layers")
        share = inside.get("partial_rotary_factor", 1.0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise config.wrong("rope_parameters", f"{printable(repr(share), 60)} is not a share of a head above 0, up to 1")
    return -2 * (-int(head_dim * share) // 2)  # in pairs


# --- records ---------------------------------------------------------------------------------------------------------

ZAYA = Architecture(
    "zaya",
    zaya,
    config_class="ZayaConfig",
    defaults={
        "attention_bias": False, "cca_time0": 2, "cca_time1": 2, "head_dim": 128, "hidden_act": "silu",
        "layer_types": None, "lm_head_bias": False, "max_position_embeddings": 131072, "moe_intermediate_size": 2048,
        "num_attention_heads": 8, "num_experts": 16, "num_experts_per_tok": 1, "num_key_value_heads": 2,
        "router_hidden_size": 256, "sliding_window": None, "tie_word_embeddings": True, "vocab_size": 262272,
    },
    implementation=replace(PARTIAL_ROTARY, by_kind=True, router="scores", native_scores="raised", masked_choice=True),
)  # fmt: skip

ARCHITECTURES = (ZAYA,)

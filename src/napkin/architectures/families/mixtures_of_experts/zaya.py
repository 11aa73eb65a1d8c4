"""ZAYA: compressed convolutional attention and experts whose routers hand their state on, config.json → operations.

Field names and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/zaya/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS, Operations
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.reading import activation, depth, kv_heads_of, on, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_parts import kinds
from napkin.autograd.tensors import Tensor
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.convolutions import ConvPair, HalfShifted
from napkin.operations.experts import Experts
from napkin.operations.implementations import PARTIAL_ROTARY, Running
from napkin.operations.learned import Affine
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.norms import UnitNorm
from napkin.operations.pointwise import Activation, Add, GroupMean, Scale
from napkin.operations.roles import COLUMN, KEY, QUERY, ROW, VALUE
from napkin.operations.router import Router
from napkin.operations.views import Cast, Concat, SideInput, Slice
from napkin.record import record, replace

HYBRID, SLIDING = "hybrid", "hybrid_sliding"
ROTARY_SHARE = 0.5
"""Of a head, if the file says nothing of rotation."""


@record
class _Zaya:
    """ZAYA1, as config.json describes it.

    kinds         of each layer's attention      window  of those with one
    ropes         {kind: rotary embedding}       bias    of attention's projections
    kernels       of the two convolutions
    router_width  of the routers' states         experts, inner, function  of the experts
    head_bias     the head has one
    """

    sizes: Dimensions
    kinds: Sequence[str]
    window: int | None
    ropes: Mapping[str, Rope]
    bias: bool
    kernels: tuple[int, int]
    router_width: int
    experts: int
    inner: int
    function: str
    head_bias: bool


def zaya(config: Config) -> Model:
    """Return ZAYA1 (arXiv:2511.17127): each layer compressed convolutional attention, then one of the experts or none,
    which a network with a state of its own chooses; learned scales on both sides of each residual sum, which is
    fp32."""
    read = _read(config)
    config.notes.append(f"a token may pass all {read.experts} experts by: its class sends it through one all the same")
    config.notes.append(f"routers' states, {read.router_width:,} elements per token, are not counted in stages' sends")
    hidden, rows = read.sizes.hidden, read.sizes.vocabulary
    after = head(hidden, rows, norm=RMS, bias=read.head_bias, none=read.sizes.headless)
    return decoder_only(
        read.sizes,
        (
            *embedding(rows, hidden),
            Affine("embedding_scaled", ("embedding",), hidden),
            Cast("widened", ("embedding_scaled",), hidden, fp32=True),
        ),
        runs_of([(kind, min(i, 2)) for i, kind in enumerate(read.kinds)], partial(_layer, read)),
        (Cast("narrowed", ("x",), hidden), replace(after[0], reads=("narrowed",)), *after[1:]),
    )


def _read(config: Config) -> _Zaya:
    hidden, layers = width(config), depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    kv_heads = kv_heads_of(config, heads)
    config.must_be("num_experts_per_tok", 1)
    listed = kinds(config, "layer_types", layers, (HYBRID, SLIDING), lambda: [HYBRID] * layers)
    window = config.integer("sliding_window") if SLIDING in listed else None
    config.ignore("sliding_window")
    if kv_heads * head_dim % 2:
        raise config.wrong("head_dim", f"{kv_heads} values of {head_dim} elements have no halves")
    max_length = config.optional_integer("max_position_embeddings")
    return _Zaya(
        dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, max_length),
        listed,
        window,
        {kind: Rope(_rotary(config, kind, head_dim)) for kind in sorted(set(listed))},
        on(config, "attention_bias"),
        (config.integer("cca_time0"), config.integer("cca_time1")),
        config.integer("router_hidden_size"),
        config.integer("num_experts"),
        config.integer("moe_intermediate_size"),
        activation(config, "hidden_act"),
        on(config, "lm_head_bias"),
    )


def _layer(read: _Zaya, key: tuple[str, int]) -> Layer:
    """Return a layer of a kind; its number, up to 2, tells the first two apart from the rest."""
    kind, number = key
    hidden = read.sizes.hidden
    operations = (
        Cast("attention_narrowed", ("x",), hidden),
        RMS("attention_norm", "attention_narrowed", hidden),
        *_attention(read, kind, "attention_norm"),
        *_merged("attention", "o", "x", hidden),
        Cast("mlp_narrowed", ("attention_residual",), hidden),
        RMS("mlp_norm", "mlp_narrowed", hidden),
        *_router(read, number),
        Experts("experts", ("mlp_norm", "router"), hidden, read.inner, read.experts, 1, function=read.function),
        *_merged("mlp", "experts", "attention_residual", hidden),
    )
    return Layer("sliding" if kind == SLIDING else "attention", operations)


def _attention(read: _Zaya, kind: str, source: str) -> Operations:
    """Return attention whose queries and keys pass a convolution and half of whose values is the token before's."""
    sizes, bias = read.sizes, read.bias
    hidden, heads, kv_heads, head_dim = sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    window, rope = read.window if kind == SLIDING else None, read.ropes[kind]
    read_by_core = ("q_rope", "k_rope", "v")
    return (
        Matmul("q", (source,), hidden, q_width, bias, COLUMN, role=QUERY),
        Matmul("k", (source,), hidden, kv_width, bias, COLUMN, role=KEY),
        Concat("qk", ("q", "k"), q_width + kv_width),
        Add("q_and_k", ("q", "k"), q_width),
        Scale("q_past", ("q_and_k",), q_width),
        GroupMean("k_past", ("q_past",), kv_width, q_width),
        ConvPair("convolved", ("qk",), q_width + kv_width, head_dim, read.kernels),
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
        AttentionCore("attention", read_by_core, heads, kv_heads, head_dim, head_dim, window=window),
        Matmul("o", ("attention",), q_width, hidden, bias, ROW),
    )


def _router(read: _Zaya, number: int) -> Operations:
    """Return a router, which adds the state of the layer before to its own except in the first layer."""
    hidden, wide = read.sizes.hidden, read.router_width
    state: Operations = (Matmul("router_state", ("mlp_norm",), hidden, wide, True),)
    if number:
        state = (
            Matmul("router_own", ("mlp_norm",), hidden, wide, True),
            SideInput("router_before", (), wide, fp32=number > 1),
            Scale("router_scaled", ("router_before",), wide, learned=True),
            Add("router_state", ("router_own", "router_scaled"), wide),
        )
    return (
        *state,
        RMS("router_norm", "router_state", wide),
        Matmul("router_first", ("router_norm",), wide, wide, True),
        Activation("router_first_act", ("router_first",), wide, "gelu"),
        Matmul("router_second", ("router_first_act",), wide, wide, True),
        Activation("router_second_act", ("router_second",), wide, "gelu"),
        Router("router", ("router_second_act",), wide, read.experts + 1, 1, balanced="buffer"),
    )


def _merged(name: str, branch: str, stream: str, hidden: int) -> Operations:
    """Return a residual sum, each side shifted and scaled by learned vectors."""
    return (
        Affine(f"{name}_scaled", (branch,), hidden),
        Affine(f"{name}_kept", (stream,), hidden),
        Add(f"{name}_residual", (f"{name}_scaled", f"{name}_kept"), hidden),
    )


def _rotary(config: Config, kind: str, head_dim: int) -> int:
    """Read how many elements of a head rotate in layers of a kind."""
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


def _masked_choice(run: Running, weights: Tensor) -> Tensor:
    """Mask the weights of choices without an expert."""
    none = run.tape.new(weights.count, "bool", "no expert", no_grad=True)
    return run.tape.record("masked_fill", (weights,), run.tape.new(weights.count, weights.dtype, "masked"), (none,))


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
    implementation=replace(
        PARTIAL_ROTARY, by_kind=True, router="scores", native_scores="raised", chosen=_masked_choice,
        linear_router=True,
    ),
    modules={
        "q": "self_attn.qkv_proj.q_proj", "k": "self_attn.qkv_proj.k_proj",
        "v_now": "self_attn.qkv_proj.v_proj_current", "v_later": "self_attn.qkv_proj.v_proj_delayed",
        "router_state": "mlp.gate.down_proj", "router_first": "mlp.gate.router_mlp.fc1",
        "router_second": "mlp.gate.router_mlp.fc2", "router": "mlp.gate.router_mlp.out_proj",
        "router_own": "mlp.gate.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (ZAYA,)

"""Gemma 3n and Gemma 4: layers that share keys and values, and inputs of each layer's own beside the residual stream.

The facts are those of Hugging Face transformers 5.23.0 (src/transformers/models/gemma3n and gemma4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from napkin.architectures import arrangements, common
from napkin.architectures.attention import Rope
from napkin.architectures.blocks import RMS_BARE, RMS_FP32, Operations, gated_mlp
from napkin.architectures.common import CHUNKED, FULL, WINDOWED
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.attention import AttentionCore
from napkin.operations.base import COLUMN, KEY, LAYERS, LENT, QUERY, ROW, VALUE, Operation
from napkin.operations.embedding import Embedding
from napkin.operations.experts import Experts, Router
from napkin.operations.implementations import HF, ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Multiply, Scale
from napkin.operations.streams import (
    AddToOthers,
    Blend,
    ClampedMatmul,
    Correct,
    ExpertScale,
    GaussianTopK,
    Magnitude,
    Rescale,
    Stack,
    Stream,
    StreamMean,
)
from napkin.operations.views import Cast, Lend, Reused, Slice
from napkin.record import replace

NORM = RMS_FP32
OWN, LENDS, BORROWS = "own", "lends", "borrows"
"""Keys and values of a layer: its own; its own, which later layers read too; those of an earlier one."""
WORDS = {OWN: (), LENDS: ("lending",), BORROWS: ("borrowing",)}
INPUTS = "per_layer_inputs"


# --- layers that share keys and values -------------------------------------------------------------------------------


def kinds_of(config: Config, layers: int, period: int) -> Sequence[str]:
    """The attention of each layer: full in each `period`-th where config.json does not list it."""
    kinds = common.layer_types(config, layers, lambda i: WINDOWED if (i + 1) % period else FULL)
    if CHUNKED in kinds:
        raise config.refuse("layer_types", "napkin does not know chunks in this class")
    return kinds


def sharing(config: Config, kinds: Sequence[str]) -> list[str]:
    """How each layer has its keys and values: the last `num_kv_shared_layers` read those of the last layer of their
    kind before."""
    shared = config.integer("num_kv_shared_layers", least=0)
    if not shared:
        return [OWN] * len(kinds)
    first = len(kinds) - shared
    if first < 1 or set(kinds[:first]) != set(kinds):
        raise config.wrong(
            "num_kv_shared_layers", f"{shared} of {len(kinds)} layers leave no layer of each kind that lends its keys"
        )
    lenders = {kind: i for i, kind in enumerate(kinds[:first])}.values()
    return [LENDS if i in lenders else OWN if i < first else BORROWS for i in range(len(kinds))]


class Heads(NamedTuple):
    """Sizes of a layer's attention. `one_product`: keys and values are the norms of one product."""

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    bias: bool
    window: int | None
    one_product: bool = False


def attention(source: str, size: Heads, mode: str, kind: str) -> Operations:
    """Grouped-query attention with norms of query, key and value, rotary query and key; its keys and values may be an
    earlier layer's."""
    q_width, kv_width = size.heads * size.head_dim, size.kv_heads * size.head_dim
    rope = Rope(size.head_dim)
    operations: list[Operation] = [
        Matmul("q", (source,), size.width, q_width, size.bias, COLUMN, role=QUERY),
        NORM("q_norm", "q", size.head_dim, size.heads),
        rope("q_rope", "q_norm", size.heads, size.head_dim),
    ]
    key, value = f"{LENT}{kind}_keys", f"{LENT}{kind}_values"
    if mode != BORROWS:
        key, value = "k_rope", "v_norm"
        operations.append(Matmul("k", (source,), size.width, kv_width, size.bias, COLUMN, role=KEY))
        if not size.one_product:
            operations.append(Matmul("v", (source,), size.width, kv_width, size.bias, COLUMN, role=VALUE))
        operations += [
            NORM("k_norm", "k", size.head_dim, size.kv_heads),
            rope("k_rope", "k_norm", size.kv_heads, size.head_dim),
            RMS_BARE("v_norm", "k" if size.one_product else "v", size.head_dim, size.kv_heads),
        ]
    if mode == LENDS:
        operations += [Lend(f"{kind}_keys", (key,)), Lend(f"{kind}_values", (value,))]
    core = AttentionCore(
        "attention",
        ("q_rope", key, value),
        size.heads,
        size.kv_heads,
        size.head_dim,
        size.head_dim,
        window=size.window,
    )
    return (*operations, core, Matmul("o", ("attention",), q_width, size.width, size.bias, ROW))


# --- inputs of each layer's own --------------------------------------------------------------------------------------


def layers_inputs(rows: int, hidden: int, layers: int, each: int) -> Operations:
    """`each` numbers a token for every layer: looked up in a table, plus a projection of the token's embedding."""
    wide = layers * each
    return (
        Embedding("per_layer_embedding", (), rows, wide, role=LAYERS),
        Scale("per_layer_embedding_scaled", ("per_layer_embedding",), wide),
        Matmul("per_layer_projection", ("embedding_scaled",), hidden, wide),
        Scale("per_layer_projection_scaled", ("per_layer_projection",), wide),
        NORM("per_layer_projection_norm", "per_layer_projection_scaled", each, layers),
        Add("per_layer_sum", ("per_layer_projection_norm", "per_layer_embedding_scaled"), wide),
        Scale("per_layer_sum_scaled", ("per_layer_sum",), wide),
        Lend(INPUTS, ("per_layer_sum_scaled",)),
    )


def layer_input(source: str, hidden: int, each: int, function: str) -> Operations:
    """norm((activation(source·G) ⊙ the layer's input)·P)."""
    return (
        Matmul("per_layer_gate", (source,), hidden, each),
        Activation("per_layer_activation", ("per_layer_gate",), each, function),
        Slice("per_layer_input", (LENT + INPUTS,), each),
        Multiply("per_layer_gated", ("per_layer_activation", "per_layer_input"), each),
        Matmul("per_layer_projection", ("per_layer_gated",), each, hidden),
        NORM("per_layer_norm", "per_layer_projection", hidden),
    )


# --- Gemma 3n --------------------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """What sets one layer of Gemma 3n apart."""

    kind: str
    mode: str
    inner: int
    sparse: bool


def gemma3n(config: Config) -> Model:
    """Gemma 3n's language model: AltUp's streams (arXiv:2301.13310), a learnt augmented residual (LAuReL,
    arXiv:2411.07501), inputs of each layer's own, first layers whose MLP cuts its activations by their spread."""
    hidden, layers = common.width(config), common.depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    kv_heads = common.kv_heads_of(config, heads)
    config.divides("num_attention_heads", hidden, heads, "(hidden_size)")  # as the class insists
    rows, each = config.integer("vocab_size"), config.integer("hidden_size_per_layer_input")
    streams, rank = config.integer("altup_num_inputs", least=2), config.integer("laurel_rank")
    if config.integer("altup_active_idx", least=0) >= streams:
        raise config.wrong("altup_active_idx", f"is not one of {streams} streams, from 0")
    config.must_be("altup_correct_scale", True)
    config.real("altup_coef_clip")
    function = common.activation(config, "hidden_activation")
    kinds = kinds_of(config, layers, 5)
    window = config.integer("sliding_window")
    size = Heads(hidden, heads, kv_heads, head_dim, config.flag("attention_bias"), None)
    modes, inner, sparse = sharing(config, kinds), _inner_sizes(config, layers), _sparse(config, layers)
    plans = [_Plan(*one) for one in zip(kinds, modes, inner, sparse, strict=True)]

    def make(plan: _Plan) -> Layer:
        name = "full" if plan.kind == FULL else "sliding"
        attend = attention(
            "attention_norm", size._replace(window=window if plan.kind == WINDOWED else None), plan.mode, name
        )
        feed = gated_mlp("mlp_norm", width=hidden, inner=plan.inner, function=function)
        if plan.sparse:
            feed = _cut(feed, plan.inner)
        norm, router = (
            NORM("predict_norm", "active", hidden),
            Matmul("predict_router", ("predict_scaled",), hidden, streams),
        )
        operations = (
            Stream("active", ("x",), hidden),
            *modalities("predict", norm, router, hidden, streams),
            Matmul("predict_coefficients", ("predict_modalities",), streams, streams * streams),
            Blend("predictions", ("x", "predict_coefficients"), hidden, streams),
            Stream("active_prediction", ("predictions",), hidden),
            NORM("attention_norm", "active_prediction", hidden),
            Matmul("laurel_left", ("attention_norm",), hidden, rank),
            Matmul("laurel_right", ("laurel_left",), rank, hidden),
            NORM("laurel_norm", "laurel_right", hidden),
            Add("laurel", ("attention_norm", "laurel_norm"), hidden),
            *attend,
            NORM("attention_post_norm", "o", hidden),
            Add("attention_residual", ("active_prediction", "attention_post_norm"), hidden),
            Add("laurel_residual", ("attention_residual", "laurel"), hidden),
            Scale("laurel_scaled", ("laurel_residual",), hidden),
            NORM("mlp_norm", "laurel_scaled", hidden),
            *feed,
            NORM("mlp_post_norm", "down", hidden),
            Add("mlp_residual", ("laurel_scaled", "mlp_post_norm"), hidden),
            *modalities(
                "correct",
                Reused("correct_norm", ("mlp_residual",), norm),
                Reused("correct_router", ("correct_scaled",), router),
                hidden,
                streams,
            ),
            ClampedMatmul("correct_coefficients", ("correct_modalities",), streams, streams),
            Correct("corrected", ("predictions", "mlp_residual", "correct_coefficients"), hidden, streams),
            Stream("first", ("corrected",), hidden, copied=True),
            Scale("first_scaled", ("first",), hidden, learnt=True),
            *layer_input("first_scaled", hidden, each, function),
            AddToOthers("streams", ("corrected", "per_layer_norm"), hidden, streams),
        )
        return Layer("_".join((name, *WORDS[plan.mode], *["sparse"] * plan.sparse)), operations)

    runs = common.runs_of(plans, make)
    none = common.headless(config)
    after = (
        *to_one(hidden, streams),
        *common.head(hidden, rows, norm=NORM, softcap=_capped(config), none=none),
    )
    after = tuple(replace(op, reads=("streams_mean",)) if op.name == "final_norm" else op for op in after)
    model = decoder_only(
        Dimensions(
            config.name,
            config.model_type,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            rows,
            config.optional_integer("max_position_embeddings"),
            common.tied(config) and not none,
        ),
        (
            *common.embedding(rows, hidden, scale=True),
            *layers_inputs(config.integer("vocab_size_per_layer_input"), hidden, layers, each),
            *from_one(hidden, streams),
        ),
        runs,
        after,
    )
    return replace(model, streams=streams)


def _inner_sizes(config: Config, layers: int) -> list[int]:
    """Each layer's MLP: one number for all, or a list."""
    given = config.raw("intermediate_size")
    if not isinstance(given, list):
        return [config.integer("intermediate_size")] * layers
    if len(given) != layers or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in given):
        raise config.wrong("intermediate_size", f"is not a whole number, or a list of {layers}")
    return given


FIRST_SPARSE = 10
"""Layers that cut their activations where config.json does not say which, in networks of more."""


def _sparse(config: Config, layers: int) -> list[bool]:
    """Which layers cut their activations: those of a share above 0."""
    given = config.items("activation_sparsity_pattern", required=False)
    if given is None:
        return [layers > FIRST_SPARSE and i < FIRST_SPARSE for i in range(layers)]
    for share in given:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
            raise config.wrong("activation_sparsity_pattern", f"{printable(repr(share), 60)} is not a share from 0")
    if len(given) != layers:
        raise config.wrong("activation_sparsity_pattern", f"has {len(given)} entries for {layers} layers")
    return [share > 0 for share in given]


def _cut(feed: Operations, inner: int) -> Operations:
    """A gated MLP whose gate is cut by its spread before its activation."""
    found: list[Operation] = []
    for op in feed:
        found.append(replace(op, reads=("gate_cut",)) if op.name == "activation" else op)
        if op.name == "gate":
            found.append(GaussianTopK("gate_cut", ("gate",), inner))
    return tuple(found)


# --- Gemma 4 ---------------------------------------------------------------------------------------------------------


class _Sort(NamedTuple):
    """What sets one layer of Gemma 4 apart."""

    kind: str
    mode: str


def gemma4(config: Config) -> Model:
    """Gemma 4's language model: full attention has heads of its own size, and keys and values of one product where
    asked for; inputs of each layer's own; experts beside the MLP of every layer."""
    hidden, layers = common.width(config), common.depth(config)
    heads, rows = config.integer("num_attention_heads"), config.integer("vocab_size")
    config.must_be("use_bidirectional_attention", "vision")
    kinds = [*kinds_of(config, layers, 6)[:-1], FULL]  # the last one's, whatever the file says
    sizes = _heads_by_kind(config, hidden, heads, kinds)
    inner, function = config.integer("intermediate_size"), common.activation(config, "hidden_activation")
    twice = config.flag("use_double_wide_mlp")
    each = 0
    if "hidden_size_per_layer_input" in config.defaults:
        each = config.integer("hidden_size_per_layer_input", least=0)
    else:  # files of the other class name what theirs does not have
        config.must_be("hidden_size_per_layer_input", 0)
        config.must_be("enable_moe_block", False)
    if not each:
        config.ignore("vocab_size_per_layer_input")
    mixture = _mixture(config, hidden, function)

    def make(plan: _Sort) -> Layer:
        wide = inner * (1 + (twice and plan.mode == BORROWS))
        name = "full" if plan.kind == FULL else "sliding"
        feed = gated_mlp("mlp_norm", width=hidden, inner=wide, function=function)
        operations = arrangements.sandwich_norm(
            hidden,
            NORM,
            lambda source: attention(source, sizes[plan.kind], plan.mode, name),
            lambda source: (*feed, *mixture),
        )
        if each:
            operations += (
                *layer_input("mlp_residual", hidden, each, function),
                Add("per_layer_residual", ("mlp_residual", "per_layer_norm"), hidden),
            )
        operations += (Scale("layer_scaled", (operations[-1].name,), hidden),)
        return Layer("_".join((name, *WORDS[plan.mode])), operations)

    runs = common.runs_of([_Sort(*one) for one in zip(kinds, sharing(config, kinds), strict=True)], make)
    none = common.headless(config)
    before = common.embedding(rows, hidden, scale=True)
    if each:
        table = layers_inputs(config.integer("vocab_size_per_layer_input"), hidden, layers, each)
        before += (*table, Slice("stream", ("embedding_scaled",), hidden))
    return decoder_only(
        Dimensions(
            config.name,
            config.model_type,
            hidden,
            layers,
            heads,
            sizes[WINDOWED].kv_heads,
            sizes[WINDOWED].head_dim,
            rows,
            config.optional_integer("max_position_embeddings"),
            common.tied(config) and not none,
        ),
        before,
        runs,
        common.head(hidden, rows, norm=NORM, softcap=_capped(config), none=none),
    )


def _capped(config: Config) -> bool:
    return config.real("final_logit_softcapping", required=False) is not None


def _heads_by_kind(config: Config, hidden: int, heads: int, kinds: Sequence[str]) -> dict[str, Heads]:
    """Sizes of both kinds of attention. A file of later releases lists what full layers have of their own under
    per_layer_config, an earlier one says it for all of them."""
    one_product = config.flag("attention_k_eq_v")
    head_dim = config.integer("head_dim")
    kv_heads = common.kv_heads_of(config, heads)
    own = {WINDOWED: (head_dim, kv_heads)}
    if config.has("per_layer_config"):
        config.ignore("global_head_dim", "num_global_key_value_heads")
        own |= _listed(config, heads, kinds, head_dim, kv_heads)
    else:
        few = config.optional_integer("num_global_key_value_heads") if one_product else None
        config.ignore("num_global_key_value_heads")
        if few is not None and heads % few:
            raise config.wrong("num_global_key_value_heads", f"{heads} attention heads are not a multiple of {few}")
        own[FULL] = (config.integer("global_head_dim"), few or kv_heads)
    bias, window = config.flag("attention_bias"), config.integer("sliding_window")
    return {
        kind: Heads(
            hidden,
            heads,
            few,
            size,
            bias,
            window if kind == WINDOWED else None,
            one_product and kind == FULL,
        )
        for kind, (size, few) in own.items()
    }


def _listed(
    config: Config, heads: int, kinds: Sequence[str], head_dim: int, kv_heads: int
) -> dict[str, tuple[int, int]]:
    """Head size and key/value heads of each kind of attention, from a mapping of layers to what they have instead."""
    field = "per_layer_config"
    given = config.mapping(field) or {}
    sizes = {"head_dim": [head_dim] * len(kinds), "num_key_value_heads": [kv_heads] * len(kinds)}
    for layer, changes in given.items():
        if not (isinstance(layer, str) and layer.isdecimal() and int(layer) < len(kinds) and isinstance(changes, dict)):
            raise config.wrong(field, f"{printable(repr(layer), 60)} is not a layer with a mapping of its own")
        for name, value in changes.items():
            if name not in sizes:
                raise config.refuse(field, f"napkin does not know what {printable(repr(name), 60)} changes here")
            if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value > LARGEST_DIMENSION:
                raise config.wrong(field, f"{printable(repr(value), 60)} is not a whole number")
            sizes[name][int(layer)] = value
    found: dict[str, tuple[int, int]] = {}
    for kind, *both in zip(kinds, sizes["head_dim"], sizes["num_key_value_heads"], strict=True):
        if found.setdefault(kind, (both[0], both[1])) != tuple(both):
            raise config.wrong(field, f"layers of {kind} differ")
        if heads % both[1]:
            raise config.wrong(field, f"{heads} attention heads are not a multiple of {both[1]} key/value heads")
    return found


def _mixture(config: Config, hidden: int, function: str) -> Operations:
    """Experts that read what the MLP's norm reads, and both branches' norms and sum; nothing where there are none."""
    if not config.flag("enable_moe_block", otherwise=False):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
        return ()
    experts, chosen = common.chosen_experts(config, "num_experts", "top_k_experts")
    inner = config.integer("moe_intermediate_size")
    return (
        NORM("mlp_branch_norm", "down", hidden),
        RMS_BARE("router_norm", "attention_residual", hidden),
        Scale("router_weighted", ("router_norm",), hidden, learnt=True),
        Scale("router_scaled", ("router_weighted",), hidden),
        Router("router", ("router_scaled",), hidden, experts, chosen, normalise=True),
        ExpertScale("expert_weights", ("router",), experts, chosen),
        NORM("experts_norm", "attention_residual", hidden),
        Experts("experts", ("experts_norm", "expert_weights"), hidden, inner, experts, chosen, function=function),
        NORM("experts_branch_norm", "experts", hidden),
        Add("branches", ("mlp_branch_norm", "experts_branch_norm"), hidden),
    )


# --- AltUp -----------------------------------------------------------------------------------------------------------


def modalities(prefix: str, norm: Operation, router: Operation, hidden: int, streams: int) -> Operations:
    """tanh(norm(x)·W), one number a token for each stream, the tanh in fp32."""
    return (
        norm,
        Scale(f"{prefix}_scaled", (norm.name,), hidden),
        router,
        Cast(f"{prefix}_wide", (router.name,), streams, wide=True),
        Activation(f"{prefix}_tanh", (f"{prefix}_wide",), streams, "tanh"),
        Cast(f"{prefix}_modalities", (f"{prefix}_tanh",), streams),
    )


def from_one(hidden: int, streams: int) -> Operations:
    """The embedding as the first of several streams: the others are projections of it, of its magnitude."""
    operations: list[Operation] = [Magnitude("magnitude", ("embedding_scaled",), hidden)]
    for i in range(1, streams):
        operations += [
            Matmul(f"altup_projection_{i}", ("embedding_scaled",), hidden, hidden),
            Rescale(f"stream_{i}", (f"altup_projection_{i}", "magnitude"), hidden),
        ]
    parts = ("embedding_scaled", *(f"stream_{i}" for i in range(1, streams)))
    return (*operations, Stack("streams", parts, streams * hidden))


def to_one(hidden: int, streams: int) -> Operations:
    """The mean of the first stream and of projections of the others, of its magnitude."""
    operations: list[Operation] = [Stream("stream_0", ("x",), hidden), Magnitude("magnitude", ("stream_0",), hidden)]
    for i in range(1, streams):
        operations += [
            Stream(f"stream_{i}", ("x",), hidden),
            Matmul(f"altup_unembed_projection_{i}", (f"stream_{i}",), hidden, hidden),
            Rescale(f"rescaled_{i}", (f"altup_unembed_projection_{i}", "magnitude"), hidden),
        ]
    parts = ("stream_0", *(f"rescaled_{i}" for i in range(1, streams)))
    return (
        *operations,
        Stack("stacked", parts, streams * hidden),
        StreamMean("streams_mean", ("stacked",), hidden, streams),
    )


# --- records ---------------------------------------------------------------------------------------------------------

_GEMMA_IMPLEMENTATION = replace(
    HF,
    by_kind=True,
    router="scores",
    powered=True,
    wide_weight=True,
    buffers=(ROTARY, ("scale", ""), ("scalar", "")),
)
_GEMMA3N_IMPLEMENTATION = replace(
    _GEMMA_IMPLEMENTATION, bounded_ids=True, buffers=(ROTARY, ("scale", ""), ("scalar", ""), ("factors", ""))
)
GEMMA3N_TEXT = Architecture(
    "gemma3n_text",
    gemma3n,
    config_class="Gemma3nTextConfig",
    defaults={
        "activation_sparsity_pattern": None, "altup_active_idx": 0, "altup_coef_clip": 120.0,
        "altup_correct_scale": True, "altup_num_inputs": 4, "attention_bias": False, "final_logit_softcapping": 30.0,
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 256,
        "intermediate_size": 16384, "laurel_rank": 64, "layer_types": None, "max_position_embeddings": 32768,
        "num_attention_heads": 8, "num_key_value_heads": 2, "num_kv_shared_layers": 15, "sliding_window": 512,
        "tie_word_embeddings": True, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
    },
    implementation=_GEMMA3N_IMPLEMENTATION,
    wrappers=(Wrapper("gemma3n", "Gemma3nConfig", implementation=_GEMMA3N_IMPLEMENTATION),),
)  # fmt: skip
GEMMA4_TEXT = Architecture(
    "gemma4_text",
    gemma4,
    config_class="Gemma4TextConfig",
    defaults={
        "attention_bias": False, "attention_k_eq_v": False, "enable_moe_block": False,
        "final_logit_softcapping": None, "global_head_dim": 512, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 256, "intermediate_size": 9216,
        "layer_types": None, "max_position_embeddings": 131072, "moe_intermediate_size": None,
        "num_attention_heads": 8, "num_experts": None, "num_global_key_value_heads": None, "num_key_value_heads": 4,
        "num_kv_shared_layers": 0, "per_layer_config": None, "sliding_window": 512, "tie_word_embeddings": True,
        "top_k_experts": None, "use_bidirectional_attention": None, "use_double_wide_mlp": False,
        "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
    },
    implementation=_GEMMA_IMPLEMENTATION,
    wrappers=(
        Wrapper("gemma4", "Gemma4Config", implementation=replace(_GEMMA_IMPLEMENTATION, copies_ids=True)),
        Wrapper("gemma4_assistant", refused="reads another model's keys and has no training step of its own"),
    ),
)  # fmt: skip
GEMMA4_UNIFIED_TEXT = like(
    GEMMA4_TEXT,
    "gemma4_unified_text",
    config_class="Gemma4UnifiedTextConfig",
    defaults={
        "max_position_embeddings": 262144, "sliding_window": 1024, "use_bidirectional_attention": "vision",
        "enable_moe_block": REQUIRED, "hidden_size_per_layer_input": REQUIRED, "moe_intermediate_size": REQUIRED,
        "num_experts": REQUIRED, "top_k_experts": REQUIRED, "vocab_size_per_layer_input": REQUIRED,
    },
    wrappers=(
        Wrapper(
            "gemma4_unified", "Gemma4UnifiedConfig",
            implementation=replace(_GEMMA_IMPLEMENTATION, copies_ids=True, masked=True),
        ),
        Wrapper("gemma4_unified_assistant", refused="reads another model's keys and has no training step of its own"),
    ),
)  # fmt: skip

ARCHITECTURES = (GEMMA3N_TEXT, GEMMA4_TEXT, GEMMA4_UNIFIED_TEXT)

"""Gemma 3n: layers that share keys and values, inputs of each layer's own, and several residual streams (AltUp).

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from typing import NamedTuple

from napkin.architectures import common
from napkin.architectures.blocks import Operations, gated_mlp
from napkin.architectures.common import FULL, WINDOWED
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.shared_kv import (
    IMPLEMENTATION,
    NORM,
    WORDS,
    Heads,
    attention,
    capped,
    kinds_of,
    layer_input,
    layers_inputs,
    sharing,
)
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.implementations import ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Scale
from napkin.operations.streams import (
    AddToOthers,
    Blend,
    ClampedMatmul,
    Correct,
    GaussianTopK,
    Magnitude,
    Rescale,
    SelectStream,
    StackStreams,
    StreamMean,
)
from napkin.operations.views import Cast, Reused
from napkin.record import replace


class _Plan(NamedTuple):
    """What sets one layer of Gemma 3n apart."""

    kind: str
    mode: str
    inner: int
    sparse: bool


def gemma3n(config: Config) -> Model:
    """Gemma 3n's language model: AltUp's streams (arXiv:2301.13310), a learned augmented residual (LAuReL,
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
            SelectStream("active", ("x",), hidden),
            *modalities("predict", norm, router, hidden, streams),
            Matmul("predict_coefficients", ("predict_modalities",), streams, streams * streams),
            Blend("predictions", ("x", "predict_coefficients"), hidden, streams),
            SelectStream("active_prediction", ("predictions",), hidden),
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
            SelectStream("first", ("corrected",), hidden, copied=True),
            Scale("first_scaled", ("first",), hidden, learned=True),
            *layer_input("first_scaled", hidden, each, function),
            AddToOthers("streams", ("corrected", "per_layer_norm"), hidden, streams),
        )
        return Layer("_".join((name, *WORDS[plan.mode], *["sparse"] * plan.sparse)), operations)

    runs = common.runs_of(plans, make)
    none = common.headless(config)
    after = (
        *to_one(hidden, streams),
        *common.head(hidden, rows, norm=NORM, softcap=capped(config), none=none),
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
    """Return a gated MLP whose gate is cut by its spread before its activation."""
    found: list[Operation] = []
    for op in feed:
        found.append(replace(op, reads=("gate_cut",)) if op.name == "activation" else op)
        if op.name == "gate":
            found.append(GaussianTopK("gate_cut", ("gate",), inner))
    return tuple(found)


def modalities(prefix: str, norm: Operation, router: Operation, hidden: int, streams: int) -> Operations:
    """tanh(norm(x)·W), one number a token for each stream, the tanh in fp32."""
    return (
        norm,
        Scale(f"{prefix}_scaled", (norm.name,), hidden),
        router,
        Cast(f"{prefix}_wide", (router.name,), streams, fp32=True),
        Activation(f"{prefix}_tanh", (f"{prefix}_wide",), streams, "tanh"),
        Cast(f"{prefix}_modalities", (f"{prefix}_tanh",), streams),
    )


def from_one(hidden: int, streams: int) -> Operations:
    """Return the embedding as the first of several streams: the others are projections of it, of its magnitude."""
    operations: list[Operation] = [Magnitude("magnitude", ("embedding_scaled",), hidden)]
    for i in range(1, streams):
        operations += [
            Matmul(f"altup_projection_{i}", ("embedding_scaled",), hidden, hidden),
            Rescale(f"stream_{i}", (f"altup_projection_{i}", "magnitude"), hidden),
        ]
    parts = ("embedding_scaled", *(f"stream_{i}" for i in range(1, streams)))
    return (*operations, StackStreams("streams", parts, streams * hidden))


def to_one(hidden: int, streams: int) -> Operations:
    """Return the mean of the first stream and of projections of the others, of its magnitude."""
    operations: list[Operation] = [
        SelectStream("stream_0", ("x",), hidden),
        Magnitude("magnitude", ("stream_0",), hidden),
    ]
    for i in range(1, streams):
        operations += [
            SelectStream(f"stream_{i}", ("x",), hidden),
            Matmul(f"altup_unembed_projection_{i}", (f"stream_{i}",), hidden, hidden),
            Rescale(f"rescaled_{i}", (f"altup_unembed_projection_{i}", "magnitude"), hidden),
        ]
    parts = ("stream_0", *(f"rescaled_{i}" for i in range(1, streams)))
    return (
        *operations,
        StackStreams("stacked", parts, streams * hidden),
        StreamMean("streams_mean", ("stacked",), hidden, streams),
    )


_IMPLEMENTATION = replace(
    IMPLEMENTATION, bounded_ids=True, buffers=(ROTARY, ("scale", ""), ("scalar", ""), ("factors", ""))
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
    implementation=_IMPLEMENTATION,
    wrappers=(Wrapper("gemma3n", "Gemma3nConfig", implementation=_IMPLEMENTATION),),
)  # fmt: skip

ARCHITECTURES = (GEMMA3N_TEXT,)

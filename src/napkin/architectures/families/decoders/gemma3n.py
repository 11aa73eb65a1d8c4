"""Gemma 3n: layers that share keys and values, inputs of each layer's own, and several residual streams (AltUp).

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures import assembly, reading
from napkin.architectures.blocks import Operations, gated_mlp
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.reading import FULL, WINDOWED
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.shared_kv import (
    IMPLEMENTATION,
    NORM,
    WORDS,
    SharedHeads,
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
from napkin.record import record, replace


class _Gemma3nPlan(NamedTuple):
    """What sets one layer of Gemma 3n apart."""

    kind: str
    mode: str
    inner: int
    sparse: bool


@record
class _Gemma3n:
    """Gemma 3n, as config.json describes it.

    plans       of each layer
    heads       sizes of attention; its window is that of the layers with one
    function    of the MLPs
    streams     residual streams of AltUp     rank  of LAuReL
    input_rows, input_width  of the embedding of each layer's own input
    softcap     the logits have a soft cap
    """

    sizes: Dimensions
    plans: Sequence[_Gemma3nPlan]
    heads: SharedHeads
    function: str
    streams: int
    rank: int
    input_rows: int
    input_width: int
    softcap: bool


def gemma3n(config: Config) -> Model:
    """Return Gemma 3n's language model: AltUp's streams (arXiv:2301.13310), a learned augmented residual (LAuReL,
    arXiv:2411.07501), inputs of each layer's own, first layers whose MLP cuts its activations by their spread."""
    read = _read(config)
    sizes, streams = read.sizes, read.streams
    hidden = sizes.hidden
    ending = assembly.head(hidden, sizes.vocabulary, norm=NORM, softcap=read.softcap, none=sizes.headless)
    model = decoder_only(
        sizes,
        (
            *assembly.embedding(sizes.vocabulary, hidden, scale=True),
            *layers_inputs(read.input_rows, hidden, sizes.layers, read.input_width),
            *from_one(hidden, streams),
        ),
        assembly.runs_of(read.plans, partial(_layer, read)),
        (
            *to_one(hidden, streams),
            *(replace(op, reads=("streams_mean",)) if op.name == "final_norm" else op for op in ending),
        ),
    )
    return replace(model, streams=streams)


def _read(config: Config) -> _Gemma3n:
    hidden, layers = reading.width(config), reading.depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    kv_heads = reading.kv_heads_of(config, heads)
    config.divides("num_attention_heads", hidden, heads, "(hidden_size)")  # as the class insists
    streams = config.integer("altup_num_inputs", least=2)
    if config.integer("altup_active_idx", least=0) >= streams:
        raise config.wrong("altup_active_idx", f"is not one of {streams} streams, from 0")
    config.must_be("altup_correct_scale", True)
    config.real("altup_coef_clip")
    kinds = kinds_of(config, layers, 5)
    parts = (kinds, sharing(config, kinds), _inner_sizes(config, layers), _sparse(config, layers))
    max_length = config.optional_integer("max_position_embeddings")
    return _Gemma3n(
        dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, max_length),
        [_Gemma3nPlan(*one) for one in zip(*parts, strict=True)],
        SharedHeads(hidden, heads, kv_heads, head_dim, config.flag("attention_bias"), config.integer("sliding_window")),
        reading.activation(config, "hidden_activation"),
        streams,
        config.integer("laurel_rank"),
        config.integer("vocab_size_per_layer_input"),
        config.integer("hidden_size_per_layer_input"),
        capped(config),
    )


_VARIABLES = (
    "predictions", "attention_norm", "laurel", "attention_post_norm", "attention_residual", "laurel_scaled", "mlp_norm",
    "down", "mlp_post_norm", "mlp_residual",
)  # fmt: skip
"""What the layer's forward function holds until it returns, each under a name of its own."""


def _layer(read: _Gemma3n, plan: _Gemma3nPlan) -> Layer:
    hidden, streams = read.sizes.hidden, read.streams
    name = "full" if plan.kind == FULL else "sliding"
    norm = NORM("predict_norm", "active", hidden)
    router = Matmul("predict_router", ("predict_scaled",), hidden, streams)
    again = (
        Reused("correct_norm", ("mlp_residual",), norm, again=True),
        Reused("correct_router", ("correct_scaled",), router, again=True),
    )
    operations = (
        SelectStream("active", ("x",), hidden),
        *modalities("predict", norm, router, hidden, streams),
        Matmul("predict_coefficients", ("predict_modalities",), streams, streams * streams),
        Blend("predictions", ("x", "predict_coefficients"), hidden, streams),
        SelectStream("active_prediction", ("predictions",), hidden),
        *_blocks(read, plan, name),
        *modalities("correct", *again, hidden, streams),
        ClampedMatmul("correct_coefficients", ("correct_modalities",), streams, streams),
        Correct("corrected", ("predictions", "mlp_residual", "correct_coefficients"), hidden, streams),
        SelectStream("first", ("corrected",), hidden, copied=True),
        Scale("first_scaled", ("first",), hidden, learned=True),
        *layer_input("first_scaled", hidden, read.input_width, read.function),
        AddToOthers("streams", ("corrected", "per_layer_norm", *_VARIABLES), hidden, streams),
    )
    return Layer("_".join((name, *WORDS[plan.mode], *["sparse"] * plan.sparse)), operations)


def _blocks(read: _Gemma3n, plan: _Gemma3nPlan, name: str) -> Operations:
    """Return attention, with LAuReL next to it, and the MLP on the active stream."""
    hidden, rank = read.sizes.hidden, read.rank
    heads = read.heads if plan.kind == WINDOWED else read.heads._replace(window=None)
    feed = gated_mlp("mlp_norm", width=hidden, inner=plan.inner, function=read.function)
    return (
        NORM("attention_norm", "active_prediction", hidden),
        Matmul("laurel_left", ("attention_norm",), hidden, rank),
        Matmul("laurel_right", ("laurel_left",), rank, hidden),
        NORM("laurel_norm", "laurel_right", hidden),
        Add("laurel", ("attention_norm", "laurel_norm"), hidden),
        *attention("attention_norm", heads, plan.mode, name),
        NORM("attention_post_norm", "o", hidden),
        Add("attention_residual", ("active_prediction", "attention_post_norm"), hidden),
        Add("laurel_residual", ("attention_residual", "laurel"), hidden),
        Scale("laurel_scaled", ("laurel_residual",), hidden),
        NORM("mlp_norm", "laurel_scaled", hidden),
        *(_cut(feed, plan.inner) if plan.sparse else feed),
        NORM("mlp_post_norm", "down", hidden),
        Add("mlp_residual", ("laurel_scaled", "mlp_post_norm"), hidden),
    )


def _inner_sizes(config: Config, layers: int) -> list[int]:
    """Read the width of each layer's MLP: one number for all, or a list."""
    given = config.raw("intermediate_size")
    if not isinstance(given, list):
        return [config.integer("intermediate_size")] * layers
    if len(given) != layers or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in given):
        raise config.wrong("intermediate_size", f"is not a whole number, or a list of {layers}")
    return given


FIRST_SPARSE = 10
"""Layers that cut their activations where config.json does not say which, in networks of more."""


def _sparse(config: Config, layers: int) -> list[bool]:
    """Read which layers cut their activations: those with a share above 0."""
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
    """Return tanh(norm(x)·W), one element per token for each stream, the tanh in fp32."""
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
    IMPLEMENTATION, token_ids="bounded", buffers=(ROTARY, ("scale", ""), ("scalar", ""), ("factors", ""))
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
    modules={
        "per_layer_embedding": "model.embed_tokens_per_layer", "altup_projection_1": "model.altup_projections.0",
        "altup_projection_2": "model.altup_projections.1", "predict_router": "altup.modality_router",
        "predict_coefficients": "altup.prediction_coefs", "laurel_left": "laurel.linear_left",
        "laurel_right": "laurel.linear_right", "correct_coefficients": "altup.correction_coefs",
        "per_layer_gate": "per_layer_input_gate", "altup_unembed_projection_1": "model.altup_unembed_projections.0",
        "altup_unembed_projection_2": "model.altup_unembed_projections.1",
        "altup_projection_3": "model.altup_projections.2",
        "altup_unembed_projection_3": "model.altup_unembed_projections.2",
        "per_layer_model_projection": "model.per_layer_model_projection",
    },
)  # fmt: skip

ARCHITECTURES = (GEMMA3N_TEXT,)

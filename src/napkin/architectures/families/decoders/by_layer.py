"""Decoders whose config.json lists the sizes of each layer: what a search over architectures found, or a schedule.

Structures and fields are those of the code that comes with the weights: DeciLM (Deci/DeciLM-7B, modeling_decilm.py),
Nemotron-NAS (nvidia/Llama-3_3-Nemotron-Super-49B-v1, block_config.py and modeling_decilm.py; arXiv 2411.19146) and
OpenELM (apple/OpenELM, modeling_openelm.py; arXiv 2404.14619).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

from napkin.architectures import reading
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS, Block, Operations, gated_mlp
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions, dimensions_of
from napkin.architectures.record import Architecture, like
from napkin.inputs.load import printable
from napkin.inputs.model import Config, number_in
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add
from napkin.record import replace

MATRIX = -1
"""In place of heads or of an inner width: one matrix takes the branch's place."""


class Sized(NamedTuple):
    """Sizes of one layer: key/value heads, query heads and the width of its feed-forward network; 0 where it has no
    such branch, MATRIX where one matrix takes its place."""

    kv_heads: int
    heads: int
    inner: int


def varied(sizes: Dimensions, layers: Sequence[Sized], attention: Attention, feed: Callable[..., Operations]) -> Model:
    """Return a decoder with layers of these sizes. A layer with neither branch returns its input: it is left out."""
    hidden, bias = sizes.hidden, attention.projections.out_bias

    def branch(source: str, size: int, name: str, made: Block) -> Operations:
        """Return what adds a branch of the normed input to it: nothing where there is none."""
        if not size:
            return ()
        norm, instead = f"{name}_norm", Matmul(f"{name}_matrix", (f"{name}_norm",), hidden, hidden, bias)
        inside = (instead,) if size == MATRIX else made(norm)
        return (RMS(norm, source, hidden), *inside, Add(f"{name}_residual", (source, inside[-1].name), hidden))

    def layer(of: Sized) -> Layer:
        own = replace(attention, heads=replace(attention.heads, heads=of.heads, kv_heads=of.kv_heads))
        first = branch("x", of.heads, "attention", own)
        second = branch(first[-1].name if first else "x", of.inner, "mlp", partial(feed, inner=of.inner))
        words = [word for word, size in (("attention", of.heads), ("mlp", of.inner)) if size]
        return Layer("_and_".join(words), (*first, *second))

    busy = [of for of in layers if of.heads or of.inner]
    attending = [of for of in busy if of.heads > 0]
    shared = gcd(*(of.heads for of in attending)), gcd(*(of.kv_heads for of in attending))
    return decoder_of(replace(sizes, layers=len(busy), heads=shared[0], kv_heads=shared[1]), runs_of(busy, layer), RMS)


def _numbers(config: Config, field: str, layers: int) -> list[int | float]:
    """Read a list with a number above zero for each layer."""
    given = [number_in(value) for value in config.items(field) or []]
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) or v <= 0 for v in given) or len(given) != layers:
        raise config.wrong(field, f"is not a list of {layers} numbers above zero")
    return given


def _whole(config: Config, field: str, layers: int) -> list[int]:
    """Read a list with a whole number above zero for each layer."""
    given = _numbers(config, field, layers)
    if any(value != int(value) for value in given):
        raise config.wrong(field, f"is not a list of {layers} whole numbers")
    return [int(value) for value in given]


def _grouped(config: Config, field: str, heads: Sequence[int], kv_heads: Sequence[int]) -> None:
    for own, few in zip(heads, kv_heads, strict=True):
        if own % few:
            raise config.wrong(field, f"{own} attention heads are not a multiple of {few} key/value heads")


# --- DeciLM and Nemotron-NAS -----------------------------------------------------------------------------------------


def _llama(config: Config, sizes: Dimensions, layers: Sequence[Sized]) -> Model:
    """Return Llama with layers of these sizes."""
    bias = config.flag("attention_bias", otherwise=False)
    attention = Attention(
        Heads(sizes.hidden, 1, 1, sizes.head_dim),
        QkvProjections(bias=bias, out_bias=bias),
        rope=Rope(reading.rotary_dim(config, sizes.head_dim, 1.0)),
    )
    feed = partial(
        gated_mlp,
        width=sizes.hidden,
        function=reading.activation(config, "hidden_act"),
        bias=config.flag("mlp_bias", otherwise=False),
    )
    return varied(sizes, layers, attention, feed)


def deci(config: Config) -> Model:
    """Return DeciLM: Llama with as many key/value heads in each layer as a list says."""
    sizes = dimensions(config, kv_heads=1)
    few = _whole(config, "num_key_value_heads_per_layer", sizes.layers)
    _grouped(config, "num_key_value_heads_per_layer", [sizes.heads] * sizes.layers, few)
    inner = config.integer("intermediate_size")
    return _llama(config, sizes, [Sized(kv_heads, sizes.heads, inner) for kv_heads in few])


def nemotron_nas(config: Config) -> Model:
    """Return Nemotron-NAS: Llama whose layers each have an attention and a feed-forward network of their own, or one
    matrix in its place, or none."""
    sizes = dimensions(config, kv_heads=1)
    blocks = config.items("block_configs") or []
    if len(blocks) != sizes.layers:
        raise config.wrong("block_configs", f"has {len(blocks)} entries for {sizes.layers} layers")
    config.must_be("mlp_bias", config.flag("attention_bias", otherwise=False))
    config.ignore("num_key_value_heads", "intermediate_size")
    layers = []
    for block in blocks:
        group = _chosen(config, block, "attention", "n_heads_in_group")
        ratio = _chosen(config, block, "ffn", "ffn_mult")
        if group > 0 and (group != int(group) or sizes.heads % int(group)):
            raise config.wrong("block_configs", f"{sizes.heads} attention heads are no groups of {group}")
        heads, kv_heads = (sizes.heads, sizes.heads // int(group)) if group > 0 else (int(group), 1)
        # ⅔ · ratio · h rounded up to a multiple of 256, as the gated network of Llama 1
        inner = -(-int(2 * ratio * sizes.hidden / 3) // 256) * 256 if ratio > 0 else int(ratio)
        layers.append(Sized(kv_heads, heads, inner))
    if not any(of.heads > 0 for of in layers):
        raise config.refuse("block_configs", "has no layer with attention")
    return _llama(config, sizes, layers)


_UNKNOWN = ("window_length", "num_sink_tokens", "sparsify", "unshifted_sink", "use_prefill_window_in_sink_attention")


def _chosen(config: Config, block: object, part: str, size: str) -> int | float:
    """Read what a layer has for its attention or feed-forward network: its size, MATRIX, or 0 for none."""
    fields = block.get(part) if isinstance(block, dict) else None
    if not isinstance(fields, dict):
        raise config.wrong("block_configs", f"{printable(repr(block), 60)} has no {part}")
    if fields.get("no_op"):
        return 0
    if fields.get("replace_with_linear"):
        return MATRIX
    for other in _UNKNOWN:
        if fields.get(other):
            raise config.refuse("block_configs", f"napkin does not know what {other} changes here")
    value = number_in(fields.get(size))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 10**6:
        raise config.wrong("block_configs", f"{printable(repr(value), 60)} is no {size} of a layer")
    return value


# --- OpenELM ---------------------------------------------------------------------------------------------------------


def openelm(config: Config) -> Model:
    """Return OpenELM: heads and width of the feed-forward network grow with depth."""
    hidden, layers, head_dim = reading.width(config), reading.depth(config), config.integer("head_dim")
    heads, few = (_whole(config, field, layers) for field in ("num_query_heads", "num_kv_heads"))
    _grouped(config, "num_kv_heads", heads, few)
    ratios, unit = _numbers(config, "ffn_multipliers", layers), config.integer("ffn_dim_divisor")
    config.must_be("ffn_with_glu", True)
    normed = QkNorm(RMS) if config.flag("normalize_qk_projections") else None
    most = config.optional_integer("max_context_length")
    sizes = dimensions_of(config, hidden, layers, heads[0], few[0], head_dim, most)
    attention = Attention(
        Heads(hidden, 1, 1, head_dim), QkvProjections(fused=True), rope=Rope(head_dim, upcast=True), norm=normed
    )
    feed = partial(gated_mlp, width=hidden, function=reading.activation(config, "activation_fn_name"), fused=True)
    widths = (_divisible(ratio * hidden, unit) for ratio in ratios)
    config.must_be("normalization_layer_name", "rms_norm")
    config.ignore("num_gqa_groups", "qkv_multipliers", "rope_freq_constant", "rope_max_length")
    return varied(sizes, [Sized(k, q, inner) for k, q, inner in zip(few, heads, widths, strict=True)], attention, feed)


def _divisible(value: float, unit: int) -> int:
    """Return the nearest multiple of `unit`: at least one of them, at most a tenth below (`make_divisible`)."""
    nearest = max(unit, int(value + unit / 2) // unit * unit)
    return nearest + unit if nearest < 0.9 * value else nearest


DECI = Architecture(
    "deci",
    deci,
    defaults={"hidden_act": "silu", "tie_word_embeddings": False, "head_dim": None},
)
NEMOTRON_NAS = like(DECI, "nemotron-nas", build=nemotron_nas)
OPENELM = Architecture(
    "openelm",
    openelm,
    aliases={
        "model_dim": "hidden_size", "num_transformer_layers": "num_hidden_layers",
        "share_input_output_layers": "tie_word_embeddings",
    },
    defaults={
        "activation_fn_name": "swish", "ffn_with_glu": True, "normalize_qk_projections": True,
        "tie_word_embeddings": True,
    },
    modules={
        "qkv": "attn.qkv_proj", "o": "attn.out_proj", "gate_up": "ffn.proj_1", "down": "ffn.proj_2",
        "embedding": "transformer.token_embeddings",
    },
)  # fmt: skip

ARCHITECTURES = (DECI, NEMOTRON_NAS, OPENELM)

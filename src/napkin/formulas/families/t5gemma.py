"""T5Gemma: Gemma's layers as an encoder and a decoder, each with sizes and a token table of its own.

The facts are those of Hugging Face transformers 5.23.0 (src/transformers/models/t5gemma).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from napkin.formulas.blocks import RMS_OFFSET, Block, Operations, Rope, attention, gated_mlp
from napkin.formulas.families import common
from napkin.formulas.families.common import CHUNKED, FULL, WINDOWED
from napkin.formulas.families.encoder_decoder import parts_of
from napkin.formulas.layer import (
    MEMORY,
    VOCABULARY,
    Add,
    Dropout,
    Embedding,
    Layer,
    Matmul,
    Model,
    Parts,
    Scale,
    Softcap,
    stack_of,
)
from napkin.inputs.model import Config
from napkin.record import record

NORM = RMS_OFFSET


@record
class Side:
    """Sizes of one side. `capped`: attention's scores and the logits pass through soft caps."""

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    function: str
    bias: bool
    window: int | None
    kinds: Sequence[str]
    vocabulary: int
    capped: tuple[bool, bool]
    max_length: int | None


def side(config: Config, period: int) -> Side:
    """Read one side's block. Every `period`-th layer attends to all tokens where the block does not list its layers."""
    width, layers = common.width(config), common.depth(config)
    heads = config.integer("num_attention_heads")
    config.divides("num_attention_heads", width, heads, "(hidden_size)")  # as the class insists
    kinds = common.layer_types(config, layers, lambda i: WINDOWED if (i + 1) % period else FULL)
    if CHUNKED in kinds:
        raise config.refuse("layer_types", "napkin does not know chunks in this class")
    logits = _stated(config, "final_logit_softcapping")
    config.ignore("tie_word_embeddings", "is_decoder", "cross_attention_hidden_size")  # the whole's, and derived
    return Side(
        width,
        heads,
        common.kv_heads_of(config, heads),
        config.integer("head_dim"),
        config.integer("intermediate_size"),
        common.activation(config, "hidden_activation"),
        config.flag("attention_bias"),
        config.optional_integer("sliding_window"),
        kinds,
        config.integer("vocab_size"),
        # attention's cap is on where the file leaves it out, off where it is null
        ("attn_logit_softcapping" not in config.fields or _stated(config, "attn_logit_softcapping"), logits),
        config.optional_integer("max_position_embeddings"),
    )


def _stated(config: Config, field: str) -> bool:
    return config.real(field, required=False) is not None


def branch(name: str, source: str, width: int, block: Block) -> Operations:
    """y = x + dropout(norm(block(norm(x))))."""
    inside = block(f"{name}_norm")
    return (
        NORM(f"{name}_norm", source, width),
        *inside,
        NORM(f"{name}_post_norm", inside[-1].name, width),
        Add(f"{name}_residual", (source, f"{name}_post_norm"), width, True),
    )


def attends(of: Side, causal: bool, kind: str) -> Block:
    """Self-attention. Both ways, a window reaches so many tokens before and after."""
    window = of.window if kind == WINDOWED else None
    return partial(
        attention,
        width=of.width,
        heads=of.heads,
        kv_heads=of.kv_heads,
        head_dim=of.head_dim,
        bias=of.bias,
        out_bias=of.bias,
        rope=Rope(of.head_dim),
        window=window if causal or window is None else window + 1,
        causal=causal,
        softcap=of.capped[0],
    )


def across(of: Side, memory_width: int) -> Block:
    """Attention to the encoder's output, without positions."""
    return partial(
        attention,
        width=of.width,
        heads=of.heads,
        kv_heads=of.kv_heads,
        head_dim=of.head_dim,
        bias=of.bias,
        out_bias=of.bias,
        causal=False,
        softcap=of.capped[0],
        memory=MEMORY,
        memory_width=memory_width,
        prefix="cross_",
    )


def feed(of: Side) -> Block:
    return partial(gated_mlp, width=of.width, inner=of.inner, function=of.function, dropout=True)


def layers_of(of: Side, make: Callable[[str], Operations], stack: str) -> Parts:
    """A side's layers; both kinds of attention are named where it has both."""
    both = len(set(of.kinds)) > 1
    words = {WINDOWED: "sliding", FULL: "full"}
    return common.runs_of(of.kinds, lambda kind: Layer(words[kind] if both else stack, make(kind)))


def t5gemma(config: Config) -> Model:
    """T5Gemma (arXiv:2504.06225): Gemma 2 on both sides, a cross-attention in each layer of the decoder."""
    encoder, decoder = (side(config.nested(name, "t5_gemma_module"), 2) for name in ("encoder", "decoder"))
    has_decoder, has_head = parts_of(config)
    if not has_decoder:
        raise config.refuse("architectures", "napkin does not know the encoder of this family alone")
    config.must_be("is_encoder_decoder", True)
    config.ignore("vocab_size", "initializer_range")  # each side has its own

    def encodes(kind: str) -> Operations:
        first = branch("attention", "x", encoder.width, attends(encoder, False, kind))
        return (*first, *branch("mlp", "attention_residual", encoder.width, feed(encoder)))

    def decodes(kind: str) -> Operations:
        width = decoder.width
        return (
            *branch("attention", "x", width, attends(decoder, True, kind)),
            *branch("cross", "attention_residual", width, across(decoder, encoder.width)),
            *branch("mlp", "cross_residual", width, feed(decoder)),
        )

    head: Operations = ()
    if has_head:
        rows = decoder.vocabulary
        head = (Matmul("lm_head", ("final_dropped",), decoder.width, rows, False, VOCABULARY),)
        head += (Softcap("logits_capped", ("lm_head",), rows),) if decoder.capped[1] else ()
    stacks = (
        stack_of("encoder", looked_up(encoder), layers_of(encoder, encodes, "encoder"), last(encoder)),
        stack_of("decoder", looked_up(decoder), layers_of(decoder, decodes, "decoder"), (*last(decoder), *head)),
    )
    return Model(
        name=config.name,
        stacks=stacks,
        tied=common.tied(config) and has_head,
        hidden=decoder.width,
        heads=gcd(encoder.heads, decoder.heads),  # what tensor-parallel ranks must divide on both sides
        kv_heads=decoder.kv_heads,
        head_dim=decoder.head_dim,
        vocabulary=decoder.vocabulary,
        max_length=decoder.max_length,
    )


def looked_up(of: Side) -> Operations:
    """The side's own table, scaled by a tensor that each pass makes."""
    return (
        Embedding("embedding", (), of.vocabulary, of.width),
        Scale("embedding_scaled", ("embedding",), of.width, cast=True),
        Dropout("embedding_dropped", ("embedding_scaled",), of.width),
    )


def last(of: Side) -> Operations:
    return (NORM("final_norm", "x", of.width), Dropout("final_dropped", ("final_norm",), of.width))

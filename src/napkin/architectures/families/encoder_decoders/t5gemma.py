"""T5Gemma: Gemma 2's layers as an encoder and a decoder, each with sizes and a token embedding of its own.

The facts are those of Hugging Face transformers 5.23.0 (src/transformers/models/t5gemma).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from napkin.architectures import assembly, reading
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkNorm, QkvProjections, Rope, Scores
from napkin.architectures.blocks import RMS_OFFSET, Block, NormStyle, Operations, gated_mlp
from napkin.architectures.encoder_decoder import parts_of
from napkin.architectures.reading import CHUNKED, FULL, WINDOWED
from napkin.architectures.record import Architecture, ConfigClass
from napkin.inputs.model import Config
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import HF_EAGER, MASKS, POSITION_IDS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts, Stack, stack_of
from napkin.operations.pointwise import Add, Dropout, Scale, Softcap
from napkin.operations.roles import LM_HEAD, MEMORY, VOCABULARY
from napkin.record import record, replace

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


def side(config: Config, period: int, *, caps_scores: bool = True) -> Side:
    """Read one side's block. Every `period`-th layer attends to all tokens if the block does not list its layers."""
    width, layers = reading.width(config), reading.depth(config)
    heads = config.integer("num_attention_heads")
    config.divides("num_attention_heads", width, heads, "(hidden_size)")  # as the class insists
    kinds = reading.layer_types(config, layers, lambda i: WINDOWED if (i + 1) % period else FULL)
    if CHUNKED in kinds:
        raise config.refuse("layer_types", "napkin does not know chunks in this class")
    # attention's cap is on where the file leaves it out, off if it is null
    scores = "attn_logit_softcapping" not in config.fields or _stated(config, "attn_logit_softcapping")
    logits = _stated(config, "final_logit_softcapping")
    config.must_be("use_bidirectional_attention", False)
    config.ignore("tie_word_embeddings", "is_decoder", "is_encoder_decoder", "add_cross_attention")  # the whole's
    config.ignore("cross_attention_hidden_size")  # derived
    return Side(
        width,
        heads,
        reading.kv_heads_of(config, heads),
        config.integer("head_dim"),
        config.integer("intermediate_size"),
        reading.activation(config, "hidden_activation"),
        config.flag("attention_bias"),
        config.optional_integer("sliding_window"),
        kinds,
        config.integer("vocab_size"),
        (caps_scores and scores, logits),
        config.optional_integer("max_position_embeddings"),
    )


def _stated(config: Config, field: str) -> bool:
    return config.real(field, required=False) is not None


def branch(name: str, source: str, width: int, block: Block) -> Operations:
    """Return y = x + dropout(norm(block(norm(x))))."""
    inside = block(f"{name}_norm")
    return (
        NORM(f"{name}_norm", source, width),
        *inside,
        NORM(f"{name}_post_norm", inside[-1].name, width),
        Add(f"{name}_residual", (source, f"{name}_post_norm"), width, True),
    )


def attends(of: Side, *, causal: bool, norm: NormStyle | None = None, window: int | None = None) -> Block:
    """Return self-attention with rotary positions."""
    return Attention(
        Heads(of.width, of.heads, of.kv_heads, of.head_dim),
        projections=QkvProjections(bias=of.bias, out_bias=of.bias),
        norm=QkNorm(norm) if norm is not None else None,
        scores=Scores(window=window, causal=causal, softcap=of.capped[0]),
        rope=Rope(of.head_dim),
    )


def across(of: Side, memory_width: int) -> Block:
    """Return attention to the encoder's output, without positions."""
    return Attention(
        Heads(of.width, of.heads, of.kv_heads, of.head_dim, memory_width=memory_width),
        projections=QkvProjections(bias=of.bias, out_bias=of.bias),
        scores=Scores(causal=False, softcap=of.capped[0]),
        memory=MEMORY,
        prefix="cross_",
    )


def feed(of: Side) -> Block:
    """Return a side's gated MLP."""
    return partial(gated_mlp, width=of.width, inner=of.inner, function=of.function, dropout=True)


def layers_of(of: Side, make: Callable[[str], Operations], stack: str) -> Parts:
    """Return a side's layers; both kinds of attention are named if it has both."""
    both = len(set(of.kinds)) > 1
    words = {WINDOWED: "sliding", FULL: "full"}
    return assembly.runs_of(of.kinds, lambda kind: Layer(words[kind] if both else stack, make(kind)))


def checked_classes(config: Config) -> bool:
    """Return whether the class that is named has a head. Refuse (3) the encoder alone."""
    has_decoder, has_head = parts_of(config)
    if not has_decoder:
        raise config.refuse("architectures", "napkin does not know the encoder of this family by itself")
    config.must_be("is_encoder_decoder", True)
    config.ignore("vocab_size", "initializer_range")  # each side has its own
    return has_head


def t5gemma(config: Config) -> Model:
    """Return T5Gemma (arXiv:2504.06225): Gemma 2 on both sides, a cross-attention in each layer of the decoder."""
    encoder, decoder = (side(config.nested(name, "t5_gemma_module"), 2) for name in ("encoder", "decoder"))
    has_head = checked_classes(config)

    def encodes(kind: str) -> Operations:
        both_ways = encoder.window + 1 if kind == WINDOWED and encoder.window else None  # this many before and after
        first = branch("attention", "x", encoder.width, attends(encoder, causal=False, window=both_ways))
        return (*first, *branch("mlp", "attention_residual", encoder.width, feed(encoder)))

    def decodes(kind: str) -> Operations:
        width, window = decoder.width, decoder.window if kind == WINDOWED else None
        return (
            *branch("attention", "x", width, attends(decoder, causal=True, window=window)),
            *branch("cross", "attention_residual", width, across(decoder, encoder.width)),
            *branch("mlp", "cross_residual", width, feed(decoder)),
        )

    stacks = (
        stack_of("encoder", looked_up(encoder), layers_of(encoder, encodes, "encoder"), last(encoder)),
        stack_of("decoder", looked_up(decoder), layers_of(decoder, decodes, "decoder"), head_of(decoder, has_head)),
    )
    return network(config, stacks, encoder, decoder, has_head)


def network(config: Config, stacks: tuple[Stack, ...], encoder: Side, decoder: Side, has_head: bool) -> Model:
    """Return the network of two stacks."""
    return Model(
        name=config.name,
        stacks=stacks,
        tied=reading.tied(config) and has_head,
        hidden=decoder.width,
        heads=gcd(encoder.heads, decoder.heads),  # what tensor-parallel ranks must divide on both sides
        kv_heads=decoder.kv_heads,
        head_dim=decoder.head_dim,
        vocabulary=decoder.vocabulary,
        max_length=decoder.max_length,
    )


def looked_up(of: Side) -> Operations:
    """Return the side's own embedding, scaled by a tensor that each pass makes."""
    return (
        Embedding("embedding", (), of.vocabulary, of.width),
        Scale("embedding_scaled", ("embedding",), of.width, cast=True),
        Dropout("embedding_dropped", ("embedding_scaled",), of.width),
    )


def last(of: Side) -> Operations:
    """Return the norm and dropout that end a side's stack."""
    return (NORM("final_norm", "x", of.width), Dropout("final_dropped", ("final_norm",), of.width))


def head_of(of: Side, there: bool) -> Operations:
    """Return what follows the decoder's layers."""
    if not there:
        return last(of)
    head = Matmul("lm_head", ("final_dropped",), of.width, of.vocabulary, False, VOCABULARY, role=LM_HEAD)
    capped = (Softcap("logits_capped", ("lm_head",), of.vocabulary),) if of.capped[1] else ()
    return (*last(of), head, *capped)


CALLS: dict[str, object] = {"passes": (MASKS, POSITION_IDS), "closure": ("tables", "masks")}
T5GEMMA = Architecture(
    "t5gemma",
    t5gemma,
    config_class="T5GemmaConfig",
    defaults={"tie_word_embeddings": True},
    blocks=(
        ConfigClass(
            "t5_gemma_module",
            "T5GemmaModuleConfig",
            defaults={
                "attention_bias": False, "final_logit_softcapping": 30.0, "head_dim": 256,
                "hidden_activation": "gelu_pytorch_tanh", "intermediate_size": 9216, "layer_types": None,
                "max_position_embeddings": 8192, "num_attention_heads": 8, "num_key_value_heads": 4,
                "sliding_window": 4096, "vocab_size": 256000,
            },
        ),
    ),
    implementation=replace(HF_EAGER, shifted=False, **CALLS),
    modules={
        "encoder/embedding": "model.encoder.embed_tokens", "decoder/embedding": "model.decoder.embed_tokens",
        "cross_q": "cross_attn.q_proj", "cross_k": "cross_attn.k_proj", "cross_v": "cross_attn.v_proj",
        "cross_o": "cross_attn.o_proj", "lm_head": "lm_head.out_proj",
    },
)  # fmt: skip

ARCHITECTURES = (T5GEMMA,)

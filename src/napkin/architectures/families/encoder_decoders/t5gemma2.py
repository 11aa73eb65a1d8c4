"""T5Gemma 2: one token embedding for both sides, and decoder layers that attend to both sides' keys at once.

The facts are those of Hugging Face transformers 5.23.0 (src/transformers/models/t5gemma2).
"""

from __future__ import annotations

from napkin.architectures import reading
from napkin.architectures.blocks import Block, Operations
from napkin.architectures.families.encoder_decoders.t5gemma import (
    CALLS,
    NORM,
    Side,
    attends,
    branch,
    checked_classes,
    feed,
    head_of,
    last,
    layers_of,
    network,
    side,
)
from napkin.architectures.reading import ALONE, WINDOWED
from napkin.architectures.record import Architecture, ConfigClass
from napkin.inputs.model import Config
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import HF, ROTARY
from napkin.operations.model import Model, stack_of
from napkin.operations.pointwise import Dropout, Scale
from napkin.operations.roles import MEMORY
from napkin.operations.views import ConcatTokens, Overwrite, Reused, reuse
from napkin.record import replace

PERIOD = 6
"""One layer in this many attends to all tokens."""


def t5gemma2(config: Config) -> Model:
    """Return T5Gemma 2 (arXiv:2512.14856): Gemma 3 on both sides, one token embedding for both and the head, and in the
    decoder one attention over its own keys and the encoder's, which the same projections make."""
    encoder, decoder = _read_sides(config)
    has_head = checked_classes(config)
    tie = reading.tied(config)

    def encodes(kind: str) -> Operations:
        first = branch("attention", "x", encoder.width, _both_ways(encoder, kind))
        return (*first, *branch("mlp", "attention_residual", encoder.width, feed(encoder)))

    def decodes(kind: str) -> Operations:
        first = branch("attention", "x", decoder.width, _merged(decoder, kind))
        return (*first, *branch("mlp", "attention_residual", decoder.width, feed(decoder)))

    embedded = _marked(encoder, None)
    reused = _marked(decoder, embedded if tie else None)
    ending = head_of(decoder, has_head)
    stacks = (
        stack_of("encoder", embedded, layers_of(encoder, encodes, "encoder"), last(encoder)),
        stack_of("decoder", reused, layers_of(decoder, decodes, "decoder"), ending),
    )
    return replace(network(config, stacks, encoder, decoder, has_head), tied=tie and has_head)


def _read_sides(config: Config) -> tuple[Side, Side]:
    """Read encoder and decoder of T5Gemma 2, which have one width and one vocabulary."""
    outer = config.nested("encoder", "t5gemma2_encoder")
    texts = (outer.nested("text_config", "t5gemma2_text"), config.nested("decoder", "t5gemma2_decoder"))
    outer.ignore(*outer.fields)  # what is not the text's is vision's
    config.notes.append(f"{ALONE} t5gemma2 is counted, vision is not")
    encoder, decoder = (_read_side(text) for text in texts)
    for field, one, other in (
        ("hidden_size", encoder.width, decoder.width),
        ("vocab_size", encoder.vocabulary, decoder.vocabulary),
    ):
        if one != other:
            raise texts[1].wrong(field, f"{other} is not the encoder's {one}, as the class insists")
    return encoder, decoder


def _read_side(text: Config) -> Side:
    read = side(text, text.optional_integer("sliding_window_pattern") or PERIOD, caps_scores=False)
    if read.window is None:
        raise text.refuse("sliding_window", "is null, which the class does not run with")
    return read


def _marked(of: Side, embedded: Operations | None) -> Operations:
    """Return the token embedding, scaled, and a learned vector for the token that ends an image; or another side's."""
    made: Operations = (
        Embedding("embedding", (), of.vocabulary, of.width),
        Scale("embedding_scaled", ("embedding",), of.width),
        Overwrite("embedding_marked", ("embedding_scaled",), of.width),
        Dropout("embedding_dropped", ("embedding_marked",), of.width),
    )
    if embedded is None:
        return made
    return tuple(reuse(op) if op.weights() else op for op in embedded)


def _both_ways(of: Side, kind: str) -> Block:
    """Return the encoder's attention: half of a window's tokens come before, half after."""
    made = attends(of, causal=False, norm=NORM)

    def block(source: str) -> Operations:
        *ahead, core, out = made(source)
        if kind == WINDOWED and of.window:
            core = replace(core, window=(of.window + 1) // 2, ahead=of.window // 2 + 1)
        return (*ahead, core, out)

    return block


def _merged(of: Side, kind: str) -> Block:
    """Return the decoder's attention: products and norm of its keys make the encoder's too, which are not rotated."""
    made = attends(of, causal=True, norm=NORM, window=of.window if kind == WINDOWED else None)
    width = of.kv_heads * of.head_dim

    def block(source: str) -> Operations:
        *ahead, core, out = made(source)
        own = {op.name: op for op in ahead}
        return (
            *ahead,
            Reused("cross_k", (MEMORY,), own["k"], again=True),
            Reused("cross_v", (MEMORY,), own["v"], again=True),
            Reused("cross_k_norm", ("cross_k",), own["k_norm"], again=True),
            ConcatTokens("keys", ("k_rope", "cross_k_norm"), width),
            ConcatTokens("values", ("v", "cross_v"), width),
            replace(core, reads=("q_rope", "keys", "values"), merged=True),
            out,
        )

    return block


_T5GEMMA2_TEXT = ConfigClass(
    "t5gemma2_text",
    "T5Gemma2TextConfig",
    defaults={
        "attention_bias": False, "final_logit_softcapping": None, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "intermediate_size": 9216, "layer_types": None,
        "max_position_embeddings": 131072, "num_attention_heads": 8, "num_key_value_heads": 4,
        "sliding_window": 4096, "sliding_window_pattern": 6, "vocab_size": 262208,
    },
    aliases={"_sliding_window_pattern": "sliding_window_pattern"},
)  # fmt: skip
T5GEMMA2 = Architecture(
    "t5gemma2",
    t5gemma2,
    config_class="T5Gemma2Config",
    defaults={"tie_word_embeddings": True},
    blocks=(
        _T5GEMMA2_TEXT,
        replace(_T5GEMMA2_TEXT, model_type="t5gemma2_decoder", config_class="T5Gemma2DecoderConfig"),
    ),
    implementation=replace(
        HF, by_kind=True, shifted=False, kernel_mask="windows", buffers=(ROTARY, ("scale", "")), **CALLS
    ),
    modules={
        "encoder/embedding": "model.encoder.text_model.embed_tokens", "lm_head": "lm_head.out_proj",
        "decoder/embedding": "model.decoder.embed_tokens",
    },
)  # fmt: skip

ARCHITECTURES = (T5GEMMA2,)

"""Whisper (arXiv:2212.04356): an encoder of sound and a decoder of text.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0 (src/transformers/models/whisper/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Scaling, Scores
from napkin.architectures.blocks import LAYER, Block, Operations, plain_mlp
from napkin.architectures.encoder_decoder import decoder_alone, decoder_layer, parts_of, runs_alone
from napkin.architectures.reading import activation, depth, tied, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.convolutions import FrameConv
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import MASKS, OWN_LABELS
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Stack, stack_of
from napkin.operations.pointwise import Activation, Add, Dropout
from napkin.operations.roles import LM_HEAD, MEMORY, POSITION, VOCABULARY
from napkin.operations.views import ByHeads
from napkin.record import record, replace

FRAMES = 2
"""Frames of sound for each token of the encoder: the second convolution takes every second step."""
KERNEL = 3
"""Steps of both convolutions."""


@record
class _Sizes:
    """What config.json says of Whisper; pairs are (encoder, decoder). `bins`: channels of a frame."""

    name: str
    hidden: int
    layers: tuple[int, int]
    heads: tuple[int, int]
    inner: tuple[int, int]
    positions: tuple[int, int]
    function: str
    bins: int
    rows: int
    tied: bool
    has_head: bool


def _sizes(config: Config, has_head: bool) -> _Sizes:
    hidden = width(config)
    heads = config.integer("num_attention_heads"), config.integer("decoder_attention_heads")
    for field, count in zip(("num_attention_heads", "decoder_attention_heads"), heads, strict=True):
        config.divides(field, hidden, count, "(hidden_size)")
    config.ignore("scale_embedding", "use_weighted_layer_sum", "classifier_proj_size", "is_encoder_decoder")
    config.ignore("apply_spec_augment", "median_filter_width", *(name for name in config.fields if "mask_" in name))
    return _Sizes(
        config.name,
        hidden,
        (depth(config), config.integer("decoder_layers", default=False)),
        heads,
        (config.integer("encoder_ffn_dim"), config.integer("decoder_ffn_dim")),
        (config.integer("max_source_positions"), config.integer("max_target_positions")),
        activation(config, "activation_function"),
        config.integer("num_mel_bins"),
        config.integer("vocab_size"),
        tied(config) and has_head,
        has_head,
    )


def _by_heads(core: AttentionCore) -> Operations:
    """Return the core, reading copies of query, key and value that are laid out by heads."""
    widths = (core.heads * core.qk_dim, core.kv_heads * core.qk_dim, core.kv_heads * core.v_dim)
    copies = tuple(ByHeads(f"{name}_by_heads", (name,), wide) for name, wide in zip(core.reads, widths, strict=True))
    return (*copies, replace(core, reads=tuple(copy.name for copy in copies)))


def _layer(sizes: _Sizes, decoder: bool, alone: bool = False) -> Layer:
    hidden, heads = sizes.hidden, sizes.heads[decoder]
    shaped = Attention(
        Heads(hidden, heads, heads, hidden // heads),
        projections=QkvProjections(bias=True, out_bias=True, key_bias=False),
        scaling=Scaling(queries=True),
        core=_by_heads,
    )
    attend = replace(shaped, scores=Scores(causal=decoder))
    feed: Block = partial(plain_mlp, width=hidden, inner=sizes.inner[decoder], function=sizes.function, dropout=True)
    if not decoder:
        return Layer("encoder", pre_norm(hidden, LAYER, attend, feed, dropout=(True, True)))
    across = replace(shaped, scores=Scores(causal=False), memory=MEMORY, prefix="cross_")
    make = decoder_alone if alone else decoder_layer
    return Layer("decoder", make(hidden, LAYER, attend, across, feed, before=True))


def _encoder(sizes: _Sizes) -> Stack:
    hidden = sizes.hidden
    before: Operations = (
        FrameConv("conv1", (), sizes.bins, hidden, KERNEL, FRAMES, FRAMES),
        Activation("conv1_activation", ("conv1",), FRAMES * hidden, "gelu"),
        FrameConv("conv2", ("conv1_activation",), hidden, hidden, KERNEL, FRAMES, 1),
        Activation("conv2_activation", ("conv2",), hidden, "gelu"),
        Embedding("position_embedding", (), sizes.positions[0], hidden, role=POSITION, trained=False),
        Add("positions_added", ("conv2_activation", "position_embedding"), hidden),
        Dropout("embedding_dropped", ("positions_added",), hidden),
    )
    return stack_of("encoder", before, ((sizes.layers[0], _layer(sizes, False)),), (LAYER("final_norm", "x", hidden),))


def _decoder(sizes: _Sizes, alone: bool = False) -> Stack:
    hidden, rows = sizes.hidden, sizes.rows
    head = (Matmul("lm_head", ("final_norm",), hidden, rows, False, VOCABULARY, role=LM_HEAD),)
    return stack_of(
        "decoder",
        embedding(rows, hidden, positions=sizes.positions[1], dropout=True),
        ((sizes.layers[1], _layer(sizes, True, alone)),),
        (LAYER("final_norm", "x", hidden), *(head if sizes.has_head else ())),
    )


def _whisper(config: Config) -> Model:
    """Return both stacks, or the decoder alone where `architectures` names the class with a causal head."""
    alone = runs_alone(config)
    sizes = _sizes(config, True if alone else parts_of(config)[1])
    decoder, heads = _decoder(sizes, alone), sizes.heads[alone]
    length = sizes.positions[alone]
    if not alone:
        config.notes.append(
            f"the encoder reads sound: {FRAMES} frames of {sizes.bins} bins for each of its tokens, of which the class "
            f"takes exactly {length:,} (--seq {length})"
        )
    return Model(
        name=sizes.name,
        stacks=(decoder,) if alone else (_encoder(sizes), decoder),
        tied=sizes.tied,
        hidden=sizes.hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=sizes.hidden // heads,
        vocabulary=sizes.rows,
        max_length=length,
        max_target=None if alone else sizes.positions[1],
    )


WHISPER = Architecture(
    "whisper",
    _whisper,
    config_class="WhisperConfig",
    aliases={
        "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
    },
    defaults={
        "activation_function": "gelu", "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "encoder_ffn_dim": 1536,
        "max_source_positions": 1500, "max_target_positions": 448, "num_attention_heads": 6, "num_mel_bins": 80,
        "tie_word_embeddings": True, "vocab_size": 51865,
    },
    implementation=replace(OWN_LABELS, positions="each", passes=(MASKS,), buffers=(), closure=("masks",)),
    modules={
        "conv1": "model.encoder.conv1", "conv2": "model.encoder.conv2", "embedding": "model.decoder.embed_tokens",
        "encoder/position_embedding": "model.encoder.embed_positions",
        "decoder/position_embedding": "model.decoder.embed_positions", "o": "self_attn.out_proj", "up": "fc1",
        "down": "fc2", "cross_q": "encoder_attn.q_proj", "cross_k": "encoder_attn.k_proj",
        "cross_v": "encoder_attn.v_proj", "cross_o": "encoder_attn.out_proj", "lm_head": "proj_out",
    },
)  # fmt: skip

ARCHITECTURES = (WHISPER,)

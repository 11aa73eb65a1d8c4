"""ProphetNet (arXiv:2001.04063): an encoder-decoder that predicts several tokens at each position.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0
(src/transformers/models/prophetnet/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Scores
from napkin.architectures.blocks import LAYER, Operations, plain_mlp
from napkin.architectures.encoder_decoder import parts_of, root_table, runs_alone, shared_embedding
from napkin.architectures.idle import idle
from napkin.architectures.reading import activation, tied, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import HF_EAGER
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Stack, stack_of
from napkin.operations.pointwise import Add
from napkin.operations.roles import COLUMN, LM_HEAD, MEMORY, ROW, SEGMENT, VOCABULARY
from napkin.operations.streams_apart import NgramAttention, Streamed, StreamedLinear
from napkin.record import replace

RUN, HELD, ABSENT = "run", "held", "absent"
"""Attention of the decoder to an encoder: with one, in a class without one, in one that lacks these layers too."""


def _streamed(op: Operation, streams: int) -> Operation:
    """Return an operation that runs on this many vectors a token in place of one."""
    layer = op.linear()
    if layer is None:
        return Streamed(op.name, op.reads, op, streams)
    d_in, d_out, bias, shard = layer.d_in, layer.d_out, layer.bias, layer.shard
    return StreamedLinear(op.name, op.reads, d_in, d_out, bias, shard, streams, role=op.role, module=op.module)


def _decoder_layer(hidden: int, heads: int, ngram: int, buckets: int, inner: int, function: str, crosses: str) -> Layer:
    """Return a layer whose linear layers run on the main stream and `ngram` predicted ones. crosses: whether attention
    to an encoder is RUN, HELD or ABSENT."""
    streams = 1 + ngram
    q, k, v, o = (Matmul(name, ("x",), hidden, hidden, True, COLUMN) for name in ("q", "k", "v", "o"))
    distances = Matmul("distances", ("x",), hidden, buckets * heads, True, COLUMN)
    own = (
        *(_streamed(op, streams) for op in (q, k, v, distances)),
        NgramAttention("attention", ("q", "k", "v", "distances"), heads, hidden // heads, ngram),
        _streamed(replace(o, reads=("attention",), shard=ROW), streams),
    )
    biased = QkvProjections(bias=True, out_bias=True)
    across = Attention(
        Heads(hidden, heads, heads, hidden // heads),
        projections=biased,
        scores=Scores(causal=False),
        memory=MEMORY,
        prefix="cross_",
    )("attention_norm")
    crossed: Operations = tuple(op if MEMORY in op.reads else _streamed(op, streams) for op in across)
    crossed = (
        *crossed,
        Add("cross_residual", ("attention_norm", crossed[-1].name), hidden, True),
        LAYER("cross_norm", "cross_residual", hidden),
    )
    source = "cross_norm" if crosses == RUN else "attention_norm"
    feed = plain_mlp(source, width=hidden, inner=inner, function=function, dropout=True)
    wide = tuple(_streamed(op, streams) if op.linear() is not None else op for op in feed)
    operations: Operations = (
        *((idle("unused_cross_attention", crossed),) if crosses == HELD else ()),
        *own,
        Add("attention_residual", ("x", "o"), hidden, True),
        LAYER("attention_norm", "attention_residual", hidden),
        *(crossed if crosses == RUN else ()),
        *wide,
        Add("mlp_residual", (source, wide[-1].name), hidden, True),
        LAYER("mlp_norm", "mlp_residual", hidden),
    )
    return Layer("decoder", operations)


def _prophetnet(config: Config) -> Model:
    """Return the network as it is trained: the main stream, and one for each token that is predicted ahead."""
    hidden, rows, ngram = width(config), config.integer("vocab_size"), config.integer("ngram")
    heads = config.integer("num_attention_heads"), config.integer("num_decoder_attention_heads")
    for field, count in zip(("num_attention_heads", "num_decoder_attention_heads"), heads, strict=True):
        config.divides(field, hidden, count, "(hidden_size)")
    layers = config.integer("num_hidden_layers", default=False), config.integer("num_decoder_layers", default=False)
    positions, function = config.integer("max_position_embeddings"), activation(config, "activation_function")
    has_decoder, has_head, crosses = True, True, RUN
    if runs_alone(config):
        crosses = HELD if config.flag("add_cross_attention") else ABSENT
    else:
        has_decoder, has_head = parts_of(config)
        if not has_decoder:
            raise config.refuse("architectures", "napkin does not know the encoder of this family by itself")
        config.must_be("is_encoder_decoder", True)
        config.must_be("add_cross_attention", True)
        config.must_be("is_decoder", False)
    config.must_be("tie_word_embeddings", True)
    config.ignore("relative_max_distance", "disable_ngram_loss", "eps")
    attend = Attention(
        Heads(hidden, heads[0], heads[0], hidden // heads[0]),
        projections=QkvProjections(bias=True, out_bias=True),
        scores=Scores(causal=False),
    )
    feed = partial(plain_mlp, width=hidden, inner=config.integer("encoder_ffn_dim"), function=function, dropout=True)
    encoder = Layer("encoder", post_norm(hidden, LAYER, attend, feed, dropout=(True, True)))
    decoder = _decoder_layer(
        hidden, heads[1], ngram, config.integer("num_buckets"), config.integer("decoder_ffn_dim"), function, crosses
    )
    before = embedding(rows, hidden, positions=positions, norm=LAYER, dropout=True)
    root = root_table(before, tied=True)
    ahead = Embedding("ngram_embedding", (), ngram, hidden, role=SEGMENT)
    head = StreamedLinear("lm_head", ("x",), hidden, rows, False, VOCABULARY, ngram, role=LM_HEAD)
    config.notes.append(f"each position has {1 + ngram} vectors in the decoder, of which {ngram} pass the head")
    decodes = stack_of("decoder", (ahead, *shared_embedding(before)), ((layers[1], decoder),), (head,) * has_head)
    stacks: tuple[Stack, ...]
    if crosses == RUN:
        stacks = (stack_of("encoder", (root, *before), ((layers[0], encoder),), ()), decodes)
    else:
        stacks = (replace(decodes, before=(root, ahead, *before)),)
    return Model(
        name=config.name,
        stacks=stacks,
        tied=has_head and tied(config),
        hidden=hidden,
        heads=heads[0],
        kv_heads=heads[0],
        head_dim=hidden // heads[0],
        vocabulary=rows,
        max_length=positions,
    )


PROPHETNET = Architecture(
    "prophetnet",
    _prophetnet,
    config_class="ProphetNetConfig",
    aliases={"num_encoder_attention_heads": "num_attention_heads", "num_encoder_layers": "num_hidden_layers"},
    defaults={
        "activation_function": "gelu", "add_cross_attention": True, "decoder_ffn_dim": 4096, "encoder_ffn_dim": 4096,
        "max_position_embeddings": 512, "ngram": 2, "num_attention_heads": 16, "num_buckets": 32,
        "num_decoder_attention_heads": 16, "tie_word_embeddings": True, "vocab_size": 30522,
    },
    implementation=replace(HF_EAGER, fp32_loss=False, shifted=False, buffers=(), checkpoints=True),
    modules={
        "root_embedding": "prophetnet.word_embeddings", "encoder/embedding": "prophetnet.encoder.word_embeddings",
        "decoder/embedding": "prophetnet.decoder.word_embeddings",
        "encoder/position_embedding": "prophetnet.encoder.position_embeddings",
        "decoder/position_embedding": "prophetnet.decoder.position_embeddings",
        "ngram_embedding": "prophetnet.decoder.ngram_embeddings", "q": "self_attn.query_proj",
        "k": "self_attn.key_proj", "v": "self_attn.value_proj", "o": "self_attn.out_proj",
        "distances": "self_attn.relative_pos_embeddings", "up": "feed_forward.intermediate",
        "down": "feed_forward.output", "cross_q": "cross_attn.query_proj", "cross_k": "cross_attn.key_proj",
        "cross_v": "cross_attn.value_proj", "cross_o": "cross_attn.out_proj",
    },
)  # fmt: skip

ARCHITECTURES = (PROPHETNET,)

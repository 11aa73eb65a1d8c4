"""MobileBERT: config.json → list of operations (transformers 5.23.0, src/transformers/models/mobilebert/)."""

from __future__ import annotations

from napkin.architectures.blocks import LAYER, NormStyle, Operations, plain_mlp
from napkin.architectures.masked import (
    BARE,
    MASKED,
    MaskedSizes,
    bert_modules,
    encoder,
    heads_apart,
    pooler,
    purpose_of,
)
from napkin.architectures.reading import activation, depth, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import IDS, OWN_LABELS, ROTARY, SUMMED
from napkin.operations.linear import JoinedHead, Matmul, PerSequence
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Dropout
from napkin.operations.roles import COLUMN, KEY, LM_HEAD, POSITION, QUERY, ROW, SEGMENT, VALUE
from napkin.operations.views import Concat
from napkin.record import record, replace

NORMS = {"no_norm": NormStyle("affine", "affine", bias=True), "layer_norm": LAYER}


@record
class _MobileBert:
    """MobileBERT, as config.json describes it.

    narrow             width of a layer between its bottlenecks; hidden_size if there are none (`between`)
    shared             queries and keys read a bottleneck of their own
    values_narrow      values read the bottleneck, like queries and keys
    mlps               of each layer
    embedding_width    of a token's embedding   trigrams  a token's neighbors' embeddings are read with its own
    segments           kinds of segments
    pools              the first token passes a layer and a tanh
    """

    sizes: MaskedSizes
    norm: NormStyle
    between: bool
    narrow: int
    shared: bool
    values_narrow: bool
    mlps: int
    embedding_width: int
    trigrams: bool
    positions: int
    segments: int
    pools: bool


def mobilebert(config: Config) -> Model:
    """Return MobileBERT (arXiv:2004.02984): layers that run between bottlenecks, several MLPs each, affine maps in
    place of norms, and a narrow token embedding of which neighboring tokens are read together.

    The masked head's matrix is the embedding and the columns that it lacks, put together on every pass.
    """
    read = _read(config)
    layer = Layer("encoder", _layer(read))
    model = encoder(
        read.sizes,
        _embedding(read),
        ((read.sizes.layers, layer),),
        _head(read),
        tie=read.sizes.purpose != BARE,
    )
    return heads_apart(model, config)


def _read(config: Config) -> _MobileBert:
    hidden, between = width(config), config.flag("use_bottleneck")
    narrow = config.integer("intra_bottleneck_size") if between else hidden
    config.must_be("true_hidden_size", narrow)
    if not between:
        config.ignore("intra_bottleneck_size")
    embedding_width, trigrams = config.integer("embedding_size"), config.flag("trigram_input")
    if embedding_width > hidden:
        raise config.wrong("embedding_size", f"{embedding_width} is more than hidden_size {hidden}")
    if not trigrams and embedding_width == hidden:
        raise config.refuse("trigram_input", "off, with an embedding as wide as the network, it leaves a matrix unused")
    values_narrow, shared = config.flag("use_bottleneck_attention"), config.flag("key_query_shared_bottleneck")
    if between and values_narrow is shared:
        raise config.refuse(
            "use_bottleneck_attention", "the class runs with either this or key_query_shared_bottleneck"
        )
    return _MobileBert(
        _read_sizes(config, narrow),
        NORMS[config.text("normalization_type", known=NORMS)],
        between,
        narrow,
        shared,
        values_narrow,
        config.integer("num_feedforward_networks"),
        embedding_width,
        trigrams,
        config.integer("max_position_embeddings"),
        config.integer("type_vocab_size"),
        config.flag("classifier_activation"),
    )


def _read_sizes(config: Config, narrow: int) -> MaskedSizes:
    heads = config.integer("num_attention_heads")
    head_dim = config.divides("num_attention_heads", narrow, heads, "(width of the attention)")
    purpose = purpose_of(config, pretraining=True)
    return MaskedSizes(
        config.name,
        width(config),
        depth(config),
        heads,
        head_dim,
        config.integer("intermediate_size"),
        activation(config, "hidden_act"),
        config.integer("vocab_size"),
        purpose,
        config.optional_integer("max_position_embeddings"),
    )


def _bottleneck(name: str, norm: NormStyle, hidden: int, narrow: int) -> Operations:
    return (Matmul(name, ("x",), hidden, narrow, True), norm(f"{name}_norm", name, narrow))


def _layer(read: _MobileBert) -> Operations:
    hidden, narrow, between = read.sizes.hidden, read.narrow, read.between
    operations, last = _attention(read), "attention_norm"
    for i in range(read.mlps):
        prefix, final = f"mlp_{i}_", i == read.mlps - 1
        path = "" if final else f"ffn.{i}."
        up, *between_both, down = plain_mlp(
            last, width=narrow, inner=read.sizes.inner, function=read.sizes.function, prefix=prefix
        )
        operations += (
            replace(up, module=path + "intermediate.dense"),
            *between_both,
            replace(down, module=path + "output.dense"),
            Add(f"{prefix}residual", (last, f"{prefix}down"), narrow, final and not between),
            read.norm(f"{prefix}norm", f"{prefix}residual", narrow),
        )
        last = f"{prefix}norm"
    if not between:
        return operations
    return (
        *operations,
        Matmul("widened", (last,), narrow, hidden, True),
        Add("residual", ("x", "widened"), hidden, True),
        read.norm("norm", "residual", hidden),
    )


def _attention(read: _MobileBert) -> Operations:
    """Return the bottlenecks, attention between them, residual addition and norm."""
    hidden, narrow, norm = read.sizes.hidden, read.narrow, read.norm
    heads, head_dim = read.sizes.heads, read.sizes.head_dim
    source, keys, values = "x", "x", "x"
    operations: Operations = ()
    if read.between:
        operations = _bottleneck("bottleneck", norm, hidden, narrow)
        source = keys = "bottleneck_norm"
        values = source if read.values_narrow else "x"
        if read.shared:
            operations += _bottleneck("attention_bottleneck", norm, hidden, narrow)
            keys = "attention_bottleneck_norm"
    return (
        *operations,
        Matmul("q", (keys,), narrow, narrow, True, COLUMN, role=QUERY),
        Matmul("k", (keys,), narrow, narrow, True, COLUMN, role=KEY),
        Matmul("v", (values,), narrow if values == keys else hidden, narrow, True, COLUMN, role=VALUE),
        AttentionCore("attention", ("q", "k", "v"), heads, heads, head_dim, head_dim, causal=False),
        Matmul("o", ("attention",), narrow, narrow, True, ROW),
        Add("attention_residual", (source, "o"), narrow, not read.between),
        norm("attention_norm", "attention_residual", narrow),
    )


def _head(read: _MobileBert) -> Operations:
    """Return what follows the layers: the pooler, the head of masked tokens, or both and that of the next sentence."""
    hidden, sizes = read.sizes.hidden, read.sizes
    pooled: Operations = pooler(hidden, "x") if read.pools else ()
    if sizes.purpose == BARE:
        return pooled
    head: Operations = (
        Matmul("head_dense", ("x",), hidden, hidden, True),
        Activation("head_activation", ("head_dense",), hidden, sizes.function),
        LAYER("head_norm", "head_activation", hidden),
        JoinedHead("lm_head", ("head_norm",), hidden, sizes.vocabulary, read.embedding_width, role=LM_HEAD),
    )
    if sizes.purpose == MASKED:
        return head
    source = "pooler_activation" if read.pools else "x"
    next_sentence = PerSequence("next_sentence", (source,), hidden, 2, True, first=not read.pools)
    return (*pooled, next_sentence, *head)


def _embedding(read: _MobileBert) -> Operations:
    """Return embeddings of a token, or of it and its neighbors, projected to h; positions and segments of width h."""
    hidden = read.sizes.hidden
    last, size = "embedding", read.embedding_width
    operations: Operations = (Embedding("embedding", (), read.sizes.vocabulary, size),)
    if read.trigrams:
        last, size = "trigrams", 3 * size
        operations += (Concat(last, ("embedding",) * 3, size),)
    return (
        *operations,
        Matmul("project_in", (last,), size, hidden, True),
        Embedding("position_embedding", (), read.positions, hidden, role=POSITION),
        Add("positions_added", ("project_in", "position_embedding"), hidden),
        Embedding("segment_embedding", (), read.segments, hidden, role=SEGMENT),
        Add("segments_added", ("positions_added", "segment_embedding"), hidden),
        read.norm("embedding_norm", "segments_added", hidden),
        Dropout("embedding_dropped", ("embedding_norm",), hidden),
    )


# --- records ---------------------------------------------------------------------------------------------------------

MOBILEBERT = Architecture(
    "mobilebert",
    mobilebert,
    config_class="MobileBertConfig",
    defaults={
        "classifier_activation": True, "embedding_size": 128, "hidden_act": "relu", "intermediate_size": 512,
        "intra_bottleneck_size": 128, "key_query_shared_bottleneck": True, "max_position_embeddings": 512,
        "normalization_type": "no_norm", "num_attention_heads": 4, "num_feedforward_networks": 4,
        "tie_word_embeddings": True, "trigram_input": True, "type_vocab_size": 2, "use_bottleneck": True,
        "use_bottleneck_attention": False, "vocab_size": 30522,
    },
    implementation=replace(
        OWN_LABELS, positions="buffer", segments="each", buffers=(ROTARY, IDS), closure=("tables",),
        variables=(SUMMED,),
    ),
    modules=bert_modules("mobilebert") | {
        "project_in": "mobilebert.embeddings.embedding_transformation", "bottleneck": "bottleneck.input.dense",
        "attention_bottleneck": "bottleneck.attention.dense", "widened": "output.bottleneck.dense",
    },
)  # fmt: skip

ARCHITECTURES = (MOBILEBERT,)

"""MobileBERT: config.json → list of operations (transformers 5.23.0, src/transformers/models/mobilebert/)."""

from __future__ import annotations

from napkin.architectures.blocks import LAYER, NormStyle, Operations, plain_mlp
from napkin.architectures.common import activation, depth, width
from napkin.architectures.masked import BARE, MASKED, PRETRAINING, Sizes, encoder, must_tie, purpose_of
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import IDS, OWN_LABELS, ROTARY
from napkin.operations.linear import JoinedHead, Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Dropout
from napkin.operations.roles import COLUMN, KEY, LM_HEAD, POSITION, QUERY, ROW, SEGMENT, VALUE
from napkin.operations.views import Concat
from napkin.record import replace

NORMS = {"no_norm": NormStyle("affine", "affine", bias=True), "layer_norm": LAYER}


def _bottleneck(name: str, norm: NormStyle, hidden: int, narrow: int) -> Operations:
    return (Matmul(name, ("x",), hidden, narrow, True), norm(f"{name}_norm", name, narrow))


def mobilebert(config: Config) -> Model:
    """MobileBERT (arXiv:2004.02984): layers that run between bottlenecks, several MLPs each, affine maps in place of
    norms, and a narrow token embedding of which neighboring tokens are read together. The masked head's matrix is the
    embedding and the columns that it lacks, put together on every pass."""
    hidden, layers = width(config), depth(config)
    between = config.flag("use_bottleneck")
    narrow = config.integer("intra_bottleneck_size") if between else hidden
    config.must_be("true_hidden_size", narrow)
    heads, inner = config.integer("num_attention_heads"), config.integer("intermediate_size")
    head_dim = config.divides("num_attention_heads", narrow, heads, "(width of the attention)")
    mlps = config.integer("num_feedforward_networks")
    function = activation(config, "hidden_act")
    norm = NORMS[config.text("normalization_type", known=NORMS)]
    vocabulary, table = config.integer("vocab_size"), config.integer("embedding_size")
    if table > hidden:
        raise config.wrong("embedding_size", f"{table} is more than hidden_size {hidden}")
    purpose = purpose_of(config, pretraining=True)
    max_length = config.optional_integer("max_position_embeddings")
    from_bottleneck = config.flag("use_bottleneck_attention")
    shared = config.flag("key_query_shared_bottleneck")
    if between and from_bottleneck is shared:
        raise config.refuse(
            "use_bottleneck_attention", "the class runs with either this or key_query_shared_bottleneck"
        )
    if not between:
        config.ignore("intra_bottleneck_size")
    pools = config.flag("classifier_activation")
    if purpose == BARE:
        config.ignore("tie_word_embeddings")
    else:
        must_tie(config)
    source, keys, values = "x", "x", "x"
    operations: Operations = ()
    if between:
        operations = _bottleneck("bottleneck", norm, hidden, narrow)
        source = keys = "bottleneck_norm"
        values = source if from_bottleneck else "x"
        if shared:
            operations += _bottleneck("attention_bottleneck", norm, hidden, narrow)
            keys = "attention_bottleneck_norm"
    operations += (
        Matmul("q", (keys,), narrow, narrow, True, COLUMN, role=QUERY),
        Matmul("k", (keys,), narrow, narrow, True, COLUMN, role=KEY),
        Matmul("v", (values,), narrow if values == keys else hidden, narrow, True, COLUMN, role=VALUE),
        AttentionCore("attention", ("q", "k", "v"), heads, heads, head_dim, head_dim, causal=False),
        Matmul("o", ("attention",), narrow, narrow, True, ROW),
        Add("attention_residual", (source, "o"), narrow, not between),
        norm("attention_norm", "attention_residual", narrow),
    )
    last = "attention_norm"
    for i in range(mlps):
        prefix, final = (f"mlp_{i}_", i == mlps - 1)
        operations += (
            *plain_mlp(last, width=narrow, inner=inner, function=function, prefix=prefix),
            Add(f"{prefix}residual", (last, f"{prefix}down"), narrow, final and not between),
            norm(f"{prefix}norm", f"{prefix}residual", narrow),
        )
        last = f"{prefix}norm"
    if between:
        operations += (
            Matmul("widened", (last,), narrow, hidden, True),
            Add("residual", ("x", "widened"), hidden, True),
            norm("norm", "residual", hidden),
        )
    head: Operations = (
        Matmul("head_dense", ("x",), hidden, hidden, True),
        Activation("head_activation", ("head_dense",), hidden, function),
        LAYER("head_norm", "head_activation", hidden),
        JoinedHead("lm_head", ("head_norm",), hidden, vocabulary, table, role=LM_HEAD),
    )
    pooler: Operations = (
        Matmul("pooler", ("x",), hidden, hidden, True),
        Activation("pooler_activation", ("pooler",), hidden, "tanh"),
    )
    pooler = pooler if pools else ()
    next_sentence = Matmul("next_sentence", ("pooler_activation" if pools else "x",), hidden, 2, True)
    return encoder(
        Sizes(config.name, hidden, layers, heads, head_dim, inner, function, vocabulary, purpose, max_length),
        _embedding(config, norm, hidden, vocabulary, table),
        ((layers, Layer("encoder", operations)),),
        {BARE: pooler, MASKED: head, PRETRAINING: (*pooler, next_sentence, *head)}[purpose],
        tie=purpose != BARE,
    )


def _embedding(config: Config, norm: NormStyle, hidden: int, vocabulary: int, table: int) -> Operations:
    """Return embeddings of a token, or of it and its neighbors, projected to h; positions and segments of width h."""
    last, size = "embedding", table
    operations: Operations = (Embedding("embedding", (), vocabulary, table),)
    if config.flag("trigram_input"):
        last, size = "trigrams", 3 * table
        operations += (Concat(last, ("embedding",) * 3, size),)
    elif table == hidden:
        raise config.refuse("trigram_input", "off, with a table as wide as the network, it leaves a matrix unused")
    return (
        *operations,
        Matmul("project_in", (last,), size, hidden, True),
        Embedding("position_embedding", (), config.integer("max_position_embeddings"), hidden, role=POSITION),
        Add("positions_added", ("project_in", "position_embedding"), hidden),
        Embedding("segment_embedding", (), config.integer("type_vocab_size"), hidden, role=SEGMENT),
        Add("segments_added", ("positions_added", "segment_embedding"), hidden),
        norm("embedding_norm", "segments_added", hidden),
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
    ),
)  # fmt: skip

ARCHITECTURES = (MOBILEBERT,)

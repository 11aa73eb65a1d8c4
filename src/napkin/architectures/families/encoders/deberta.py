"""DeBERTa: content and relative positions in separate score terms; config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import post_norm
from napkin.architectures.assembly import embedding
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections
from napkin.architectures.blocks import LAYER, LAYER_WRITTEN, Block, NormStyle, Operations, plain_mlp
from napkin.architectures.masked import (
    BIDIRECTIONAL,
    MASKED,
    MaskedSizes,
    bert_modules,
    encoder,
    heads_apart,
    masked_head,
    sizes_of,
)
from napkin.architectures.reading import LOADED_IN_BOTH, on
from napkin.architectures.record import Architecture, like
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.attention.disentangled import HeadMajorAttention, RelativeScores, TableMatmul
from napkin.operations.base import Operation
from napkin.operations.convolutions import Conv
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import EAGER, IDS, INNER, OWN_LABELS, PAIRS, ROTARY, SUMMED
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts
from napkin.operations.norms import Norm
from napkin.operations.pointwise import Activation, Add, Dropout, Scale
from napkin.operations.roles import DISTANCE, HEADS, KEY, QUERY, VALUE
from napkin.operations.views import Reused, Slice
from napkin.record import record, replace


@record
class _Distances:
    """How DeBERTa's attention sees relative positions: which scores it adds, from how many rows of the embedding."""

    rows: int
    content_to_position: bool
    position_to_content: bool


def _distances(config: Config, buckets: bool) -> _Distances | None:
    """Read the distances: two rows for each up to max_relative_positions (below 1: the positions), or for a bucket."""
    given = config.raw("pos_att_type", required=False)
    kinds = given.lower().split("|") if isinstance(given, str) else given or []
    if not isinstance(kinds, list) or any(kind not in ("c2p", "p2c", "") for kind in kinds):
        raise config.refuse("pos_att_type", f"napkin does not know {printable(repr(given), 60)}")
    relative = on(config, "relative_attention")
    reach = config.integer("max_relative_positions", least=-1)
    bucketed = config.optional_integer("position_buckets", least=-1) if buckets else None
    if not relative:
        return None
    span = config.integer("max_position_embeddings") if reach < 1 else reach
    if bucketed is not None and bucketed > 0:
        span = bucketed
    return _Distances(2 * span, "c2p" in kinds, "p2c" in kinds)


def _position_scores(
    hidden: int, heads: int, distances: _Distances | None, *, own: bool, key_bias: bool, within: bool, query: str = "q"
) -> tuple[Operation, ...]:
    """Return content-to-position and position-to-content scores. `own`: the embedding of positions has projections of
    its own, else it goes through the queries' and keys'. `query`: the name of the queries, which are scaled before all
    scores (v1) or not."""
    if distances is None:
        return ()
    operations: list[Operation] = []
    rows, head_dim = distances.rows, hidden // heads
    wanted = (
        ("c2p", "position_keys", "k", query, distances.content_to_position, key_bias, "" if within else "scores"),
        ("p2c", "position_queries", "q", "k", distances.position_to_content, True, "table" if within else "scores"),
    )
    for name, table, letter, content, there, bias, divided in wanted:
        project = TableMatmul(table, ("relative_positions",), rows, hidden, hidden, bias, within, not within)
        if own and there:
            operations.append(project)
        elif not own:  # both are made, whichever scores are added
            operations.append(Reused(f"{table}_by_{letter}", ("relative_positions",), project, again=True))
        if there:
            reads = (content, operations[-1].name)
            operations.append(RelativeScores(name, reads, heads, head_dim, rows, within, divided, not within))
    return tuple(operations)


@record
class _Read:
    """What config.json says: sizes, width of the token embedding, rows of positions and segments, distances."""

    sizes: MaskedSizes
    embedding_width: int
    positions: int
    segments: int
    distances: _Distances | None


def _read(config: Config, buckets: bool) -> _Read:
    sizes = sizes_of(config)
    config.must_be("legacy", True)
    config.must_be("talking_head", False)
    config.ignore("padding_idx")
    return _Read(
        sizes,
        config.optional_integer("embedding_size") or sizes.hidden,
        config.integer("max_position_embeddings") if config.flag("position_biased_input") else 0,
        config.integer("type_vocab_size", least=0),
        _distances(config, buckets),
    )


def _embedding(read: _Read, norm: NormStyle = LAYER) -> Operations:
    """Return the embeddings, and the relative positions that all layers read."""
    hidden = read.sizes.hidden
    parts = embedding(read.sizes.vocabulary, read.embedding_width, positions=read.positions, segments=read.segments)
    if read.embedding_width != hidden:
        parts = (*parts, Matmul("project_in", (parts[-1].name,), read.embedding_width, hidden))
    parts = (
        *parts,
        norm("embedding_norm", parts[-1].name, hidden),
        Scale("embedding_masked", ("embedding_norm",), hidden, masks=True),
        Dropout("embedding_dropped", ("embedding_masked",), hidden),
    )
    if read.distances is None:
        return parts
    return (*parts, Embedding("relative_positions", (), read.distances.rows, hidden, role=DISTANCE))


def _network(
    read: _Read, attend: Block, before: Operations, *, first: Operations = (), norm: NormStyle = LAYER
) -> Model:
    """Return the network. `first`: what the first layer has in addition."""
    sizes = read.sizes
    feed = partial(plain_mlp, width=sizes.hidden, inner=sizes.inner, function=sizes.function)
    once = post_norm(sizes.hidden, norm, attend, feed, dropout=(True, True))
    alike = Layer("encoder", once)
    runs: Parts = ((sizes.layers, alike),)
    if first:
        runs = ((1, Layer("encoder_with_convolution", (*once, *first), beyond=first[0].name)),)
        if sizes.layers > 1:
            runs += ((sizes.layers - 1, alike),)
    masked = masked_head(sizes.hidden, sizes.vocabulary, sizes.function, table_width=read.embedding_width)
    head = masked if sizes.purpose == MASKED else ()
    return encoder(sizes, before, runs, head, tie=sizes.purpose == MASKED)


def _added_bias(letter: str, hidden: int) -> Operations:
    """Return a bias that no matmul has."""
    return (
        Parameters(f"{letter}_bias", (), (("bias", (hidden,)),), HEADS),
        Add(f"{letter}_biased", (letter, f"{letter}_bias"), hidden),
    )


def deberta(config: Config) -> Model:
    """Return DeBERTa (arXiv:2006.03654): content and relative positions in separate score terms."""
    read = _read(config, buckets=False)
    config.notes.append(LOADED_IN_BOTH)
    hidden, heads, head_dim = read.sizes.hidden, read.sizes.heads, read.sizes.head_dim

    def attend(source: str) -> Operations:
        core = AttentionCore(
            "attention",
            ("q_scaled", "k", "v_biased"),
            heads,
            heads,
            head_dim,
            head_dim,
            causal=False,
        )
        return (
            Matmul("in_proj", (source,), hidden, 3 * hidden),
            *(
                Slice(letter, ("in_proj",), hidden, role=role)
                for letter, role in (("q", QUERY), ("k", KEY), ("v", VALUE))
            ),
            *_added_bias("q", hidden),
            *_added_bias("v", hidden),
            Scale("q_scaled", ("q_biased",), hidden, cast=True),
            *_position_scores(hidden, heads, read.distances, own=True, key_bias=False, within=True, query="q_scaled"),
            core,
            Matmul("o", ("attention",), hidden, hidden, True),
        )

    return heads_apart(_network(read, attend, _embedding(read, LAYER_WRITTEN), norm=LAYER_WRITTEN), config)


@record
class _Convolution:
    """A convolution next to the first layer: tokens that it covers, channels of a group, and its activation."""

    kernel: int
    group: int
    function: str

    def operations(self, hidden: int) -> Operations:
        """Return what the first layer has in addition."""
        return (
            Conv("convolution", ("x",), hidden, self.kernel, group=self.group),
            Scale("convolution_masked", ("convolution",), hidden, masks=True, held="bool"),
            Dropout("convolution_dropped", ("convolution_masked",), hidden),
            Activation("convolution_activation", ("convolution_dropped",), hidden, self.function),
            Add("convolution_added", ("mlp_norm", "convolution_activation"), hidden),
            LAYER("convolution_norm", "convolution_added", hidden),
            Scale("convolution_output", ("convolution_norm",), hidden, masks=True),
        )


def _convolution(config: Config, hidden: int) -> _Convolution | None:
    kernel = config.optional_integer("conv_kernel_size", least=0)
    if not kernel:
        config.ignore("conv_groups", "conv_act")
        return None
    groups = config.optional_integer("conv_groups") or 1
    group = config.divides("conv_groups", hidden, groups, "(hidden_size)")
    return _Convolution(kernel, group, config.optional_text("conv_act") or "tanh")


def _norms_distances(config: Config) -> bool:
    """Read whether the relative positions go through a norm."""
    norm = config.optional_text("norm_rel_ebd") or "none"
    if any(part.strip() not in ("none", "layer_norm") for part in norm.lower().split("|")):
        raise config.refuse("norm_rel_ebd", f"napkin does not know {printable(norm, 60)!r}")
    return "layer_norm" in norm.lower()


def deberta_v2(config: Config) -> Model:
    """Return DeBERTa v2 and v3 (arXiv:2111.09543): distances in logarithmic buckets, projections that may be the
    content's own, a convolution next to the first layer if the config has one."""
    read = _read(config, buckets=True)
    hidden, heads, head_dim = read.sizes.hidden, read.sizes.heads, read.sizes.head_dim
    if config.optional_integer("attention_head_size") not in (None, head_dim):
        raise config.refuse("attention_head_size", "is not hidden_size / num_attention_heads")
    share = on(config, "share_att_key") if config.has("share_att_key") else False
    normed, convolution = _norms_distances(config), _convolution(config, hidden)

    def attend(source: str) -> Operations:
        *projections, core, out = Attention(
            Heads(hidden, heads, heads, head_dim),
            projections=QkvProjections(bias=True, out_bias=True),
            scores=BIDIRECTIONAL,
        )(source)
        positions = _position_scores(hidden, heads, read.distances, own=not share, key_bias=True, within=False)
        apart = HeadMajorAttention(core.name, core.reads, heads, heads, head_dim, head_dim, causal=False)
        return (*projections, *positions, apart, out)

    before = _embedding(read)
    if normed:
        before = (*before, Norm("relative_norm", (before[-1].name,), hidden, "layer", bias=True))
    first = convolution.operations(hidden) if convolution is not None else ()
    return heads_apart(_network(read, attend, before, first=first), config)


# --- records ---------------------------------------------------------------------------------------------------------

DEBERTA = Architecture(
    "deberta",
    deberta,
    config_class="DebertaConfig",
    defaults={
        "hidden_act": "gelu", "intermediate_size": 3072, "legacy": True, "max_position_embeddings": 512,
        "max_relative_positions": -1, "num_attention_heads": 12, "pos_att_type": None, "position_biased_input": True,
        "relative_attention": False, "tie_word_embeddings": True, "type_vocab_size": 0, "vocab_size": 50265,
    },
    implementation=replace(
        OWN_LABELS, mask="each", positions="buffer", segments="each", kernels=(EAGER,), buffers=(ROTARY, IDS),
        closure=("tables", "distances"), passes=(PAIRS,), variables=(SUMMED, INNER),
    ),
    modules=bert_modules("deberta") | {
        "relative_positions": "deberta.encoder.rel_embeddings", "in_proj": "attention.self.in_proj",
        "position_queries": "attention.self.pos_q_proj", "position_keys": "attention.self.pos_proj",
    },
)  # fmt: skip
DEBERTA_V2 = like(
    DEBERTA,
    "deberta-v2",
    build=deberta_v2,
    config_class="DebertaV2Config",
    defaults={"intermediate_size": 6144, "num_attention_heads": 24, "vocab_size": 128100},
    implementation=replace(
        OWN_LABELS, positions="buffer", kernels=(EAGER,), buffers=(ROTARY, IDS),
        closure=("tables", "distances"), passes=(PAIRS,), variables=(SUMMED, INNER),
    ),
    modules=bert_modules("deberta") | {
        "relative_positions": "deberta.encoder.rel_embeddings", "q": "attention.self.query_proj",
        "k": "attention.self.key_proj", "v": "attention.self.value_proj",
    },
)  # fmt: skip

ARCHITECTURES = (DEBERTA, DEBERTA_V2)

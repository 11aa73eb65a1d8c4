"""Reformer (arXiv:2001.04451): attention of chunks, by place or by hash, in reversible layers.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/reformer/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import embedding, runs_of
from napkin.architectures.blocks import LAYER, Operations, plain_mlp
from napkin.architectures.dimensions import decoder_only, dimensions_of
from napkin.architectures.reading import DEEPEST, activation, checked, never_tied, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.embedding import Embedding
from napkin.operations.implementations import HF_EAGER
from napkin.operations.learned import Parameters
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.roles import COLUMN, KEY, LM_HEAD, POSITION, QUERY, REPLICATED, ROW, VALUE, VOCABULARY
from napkin.operations.streams_apart import ChunkAttention
from napkin.operations.views import Concat
from napkin.record import record, replace

LOCAL, HASHED = "local", "lsh"


@record
class _ChunkedAttention:
    """Attention of both kinds: each has its chunks."""

    hidden: int
    heads: int
    head_dim: int
    cores: dict[str, ChunkAttention]

    def __call__(self, kind: str, source: str) -> Operations:
        """Return a layer's attention; one linear layer makes queries and keys of what is hashed."""
        inner = self.heads * self.head_dim
        names = (("q", QUERY), ("k", KEY), ("v", VALUE)) if kind == LOCAL else (("q", QUERY), ("v", VALUE))
        return (
            *(
                Matmul(name, (source,), self.hidden, inner, False, COLUMN, role=role, module=f"{kind}_{name}")
                for name, role in names
            ),
            self.cores[kind],
            Matmul("o", ("attention",), inner, self.hidden, False, ROW),
        )


def _core(config: Config, kind: str, heads: int, head_dim: int) -> ChunkAttention:
    """Read the chunks of one kind of attention."""
    around = sum(config.integer(f"{kind}_num_chunks_{side}", least=0) for side in ("before", "after"))
    reads = ("q", "k", "v") if kind == LOCAL else ("q", "v")
    core = partial(
        ChunkAttention, "attention", reads, heads, head_dim, config.integer(f"{kind}_attn_chunk_length"), around
    )
    if kind == LOCAL:
        return core()
    buckets = config.raw("num_buckets", required=False)
    if isinstance(buckets, list):
        total = sum(size for size in buckets if isinstance(size, int))
    else:
        total = config.integer("num_buckets") if buckets is not None else -1
    return core(hashes=config.integer("num_hashes"), buckets=total, most=config.integer("max_position_embeddings"))


def _positions(config: Config, hidden: int) -> Operation:
    """Read the weights of the positions: one table, or one for each axis of a grid."""
    if not config.flag("axial_pos_embds"):
        config.ignore("axial_pos_shape", "axial_pos_embds_dim")
        return Embedding("position_embedding", (), config.integer("max_position_embeddings"), hidden, role=POSITION)
    shape, sizes = config.items("axial_pos_shape") or [], config.items("axial_pos_embds_dim") or []
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in (*shape, *sizes))
    if not whole or len(shape) != len(sizes) or sum(sizes) != hidden:
        raise config.wrong("axial_pos_embds_dim", f"are not sizes of each axis that add up to {hidden}")
    tables = [(f"axis_{i}", both) for i, both in enumerate(zip(shape, sizes, strict=True))]
    return Parameters("positions", (), tuple(tables), REPLICATED)


def _reformer(config: Config) -> Model:
    """Return Reformer's language model, whose two residual streams the head reads together."""
    kinds = config.items("attn_layers") or []
    if not 0 < len(kinds) <= DEEPEST:
        raise config.wrong("attn_layers", "lists no layers")
    kinds = checked(config, "attn_layers", kinds, len(kinds), (LOCAL, HASHED))
    stated = config.optional_integer("num_hidden_layers")
    if stated is not None and stated > len(kinds):
        raise config.wrong("num_hidden_layers", f"{stated} layers are more than attn_layers lists")
    kinds = kinds[:stated]
    never_tied(config)  # the head reads two streams
    config.ignore("is_decoder", "hash_seed", "chunk_size_lm_head", "axial_norm_std")
    hidden, heads = width(config), config.integer("num_attention_heads")
    head_dim = config.integer("attention_head_size")
    sizes = dimensions_of(config, hidden, len(kinds), heads, heads, head_dim, config.integer("max_position_embeddings"))
    attention = _ChunkedAttention(
        hidden, heads, head_dim, {kind: _core(config, kind, heads, head_dim) for kind in (LOCAL, HASHED)}
    )
    feed = partial(
        plain_mlp,
        width=hidden,
        inner=config.integer("feed_forward_size"),
        function=activation(config, "hidden_act"),
        dropout=True,
    )

    def layer(kind: str) -> Layer:
        attend = partial(attention, kind)
        return Layer(kind, pre_norm(hidden, LAYER, attend, feed, dropout=(True, True)))

    head = Matmul("lm_head", ("final_norm",), 2 * hidden, sizes.vocabulary, True, VOCABULARY, role=LM_HEAD)
    rows = (("bias", (sizes.vocabulary,)),)
    idle = Parameters("unused_bias", (), rows, REPLICATED, trained=False)  # the class holds two, tied to nothing
    after = (Concat("both", ("x", "x"), 2 * hidden), LAYER("final_norm", "both", 2 * hidden))
    return decoder_only(
        sizes,
        (_positions(config, hidden), *embedding(sizes.vocabulary, hidden, dropout=True)),
        runs_of(kinds, layer),
        after if sizes.headless else (idle, *after, head),
    )


REFORMER = Architecture(
    "reformer",
    _reformer,
    config_class="ReformerConfig",
    defaults={
        "attention_head_size": 64, "axial_pos_embds": True, "axial_pos_embds_dim": [64, 192],
        "axial_pos_shape": [64, 64], "feed_forward_size": 512, "hidden_act": "relu", "local_attn_chunk_length": 64,
        "local_num_chunks_after": 0, "local_num_chunks_before": 1, "lsh_attn_chunk_length": 64,
        "lsh_num_chunks_after": 0, "lsh_num_chunks_before": 1, "max_position_embeddings": 4096,
        "num_attention_heads": 12, "num_buckets": None, "num_hashes": 1, "tie_word_embeddings": False,
        "vocab_size": 320,
    },
    implementation=replace(HF_EAGER, checkpoints=False),
    modules={
        "embedding": "reformer.embeddings.word_embeddings",
        "position_embedding": "reformer.embeddings.position_embeddings.embedding",
        "local_q": "attention.self_attention.query",
        "lsh_q": "attention.self_attention.query_key", "local_k": "attention.self_attention.key",
        "local_v": "attention.self_attention.value",
        "lsh_v": "attention.self_attention.value", "o": "attention.output.dense", "up": "feed_forward.dense.dense",
        "down": "feed_forward.output.dense", "lm_head": "lm_head.decoder",
    },
)  # fmt: skip

ARCHITECTURES = (REFORMER,)

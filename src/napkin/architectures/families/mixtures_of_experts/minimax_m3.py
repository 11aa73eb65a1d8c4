"""MiniMax-M3's language model: attention to blocks of keys that an indexer chooses for each group of heads, and gated
networks with a clamped swiglu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkNorm, Rope, Scores
from napkin.architectures.blocks import RMS_OFFSET, Block, Operations, Routing, moe
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions_of
from napkin.architectures.reading import balance_loss, checked, chosen_experts, depth, kv_heads_of, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.attention.compressed import BlockIndexer
from napkin.operations.attention.core import AttentionCore
from napkin.operations.base import Operation
from napkin.operations.implementations import PARTIAL_ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Clamp, Multiply, Scale
from napkin.operations.roles import COLUMN, ROW
from napkin.operations.views import Slice
from napkin.record import record, replace

FULL, BLOCKS = "full_attention", "minimax_m3_sparse"
SPARSE, DENSE = "sparse", "dense"
PUBLISHED = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
}
"""Fields as the published file has them, inside `sparse_attention_config`."""


class MiniMaxPlan(NamedTuple):
    """What sets one layer apart from the others."""

    attention: str
    feed: str


@record
class BlockIndexSizes:
    """Sizes of the indexer that chooses blocks of keys: its heads, their elements, the keys of a block, and how many
    blocks a query sees."""

    heads: int
    head_dim: int
    block: int
    chosen: int


@record
class ExpertSizes:
    """Widths of an expert and of the shared expert, and how tokens choose."""

    inner: int
    shared: int
    routing: Routing


@record
class MiniMaxReading:
    """What a config.json says of MiniMax-M3's language model.

    rotary   elements of a head that rotate
    experts  None where all layers are dense; `dense`: width of those, None if there are none
    """

    sizes: Dimensions
    plans: Sequence[MiniMaxPlan]
    rotary: int
    index: BlockIndexSizes
    experts: ExpertSizes | None
    dense: int | None
    balance: Operation | None


def read(config: Config) -> MiniMaxReading:
    """Read a config.json."""
    config.ignore("hidden_act", "swiglu_alpha", "swiglu_limit", "router_jitter_noise", "index_local_blocks")
    config.ignore("intermediate_size", "shared_intermediate_size", "dense_intermediate_size")  # of layers there are
    hidden, layers, heads = width(config), depth(config), config.integer("num_attention_heads")
    kv_heads, head_dim = kv_heads_of(config, heads), config.integer("head_dim")
    published = config.mapping("sparse_attention_config", required=False) or {}
    index = BlockIndexSizes(*(_size(config, name, published) for name in PUBLISHED))
    config.divides("num_attention_heads", heads, index.heads, "attention heads")
    rotary = _rotary(config, head_dim)
    top_k = chosen_experts(config, "num_local_experts", "num_experts_per_tok")
    attentions, feeds = _attentions(config, layers, published), _feeds(config, layers)
    experts, balance = None, None
    if SPARSE in feeds:
        routing = Routing(*top_k, score="sigmoid", normalize=True, balanced="buffer")
        experts = ExpertSizes(config.integer("intermediate_size"), config.integer("shared_intermediate_size"), routing)
        balance = balance_loss(config, *top_k)
    length = config.optional_integer("max_position_embeddings")
    return MiniMaxReading(
        dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, length),
        [MiniMaxPlan(*one) for one in zip(attentions, feeds, strict=True)],
        rotary,
        index,
        experts,
        config.integer("dense_intermediate_size") if DENSE in feeds else None,
        balance,
    )


def layer(of: MiniMaxReading, plan: MiniMaxPlan) -> Layer:
    """Return a layer."""
    sizes, hidden = of.sizes, of.sizes.hidden
    heads = Heads(hidden, sizes.heads, sizes.kv_heads, sizes.head_dim)
    attend = Attention(heads, rope=Rope(of.rotary), norm=QkNorm(RMS_OFFSET))
    if plan.attention == BLOCKS:
        window = of.index.chosen * of.index.block
        attend = replace(attend, scores=Scores(window=window, anywhere=True, own_mask=True), core=partial(_indexed, of))
    name = ("moe" if plan.feed == SPARSE else "dense") + "_blocks" * (plan.attention == BLOCKS)
    return Layer(name, pre_norm(hidden, RMS_OFFSET, attend, _feed_forward(of, plan)))


def _indexed(of: MiniMaxReading, core: AttentionCore) -> Operations:
    """Return the indexer, which reads what attention reads, and attention to the blocks that it chooses."""
    index, reads = of.index, ("attention_norm",)
    rotary = min(of.rotary, index.head_dim)
    return (
        BlockIndexer("indexer", reads, of.sizes.hidden, index.heads, index.head_dim, index.block, rotary),
        core,
    )


def _feed_forward(of: MiniMaxReading, plan: MiniMaxPlan) -> Block:
    hidden, experts = of.sizes.hidden, of.experts
    if plan.feed == DENSE:
        assert of.dense is not None
        return partial(_swiglu, width=hidden, inner=of.dense)
    assert experts is not None
    return partial(
        moe,
        width=hidden,
        inner=experts.inner,
        routing=experts.routing,
        function="swiglu_oai",
        shared=partial(_swiglu, width=hidden, inner=experts.shared, prefix="shared/"),
        scaled=True,
        shared_first=True,
    )


def minimax_m3(config: Config) -> Model:
    """Return MiniMax-M3's language model."""
    of = read(config)
    return decoder_of(of.sizes, runs_of(of.plans, partial(layer, of)), RMS_OFFSET, balance=of.balance)


def _swiglu(source: str, *, width: int, inner: int, prefix: str = "") -> Operations:
    """Return down((up + 1) ⊙ gate ⊙ σ(α·gate)), gate and up clamped to an interval, from one projection."""
    gate, up, both = prefix + "gate", prefix + "up", prefix + "gate_up"
    return (
        Matmul(both, (source,), width, 2 * inner, False, COLUMN),
        Slice(gate, (both,), inner),
        Slice(up, (both,), inner),
        Clamp(f"{gate}_cut", (gate,), inner),
        Clamp(f"{up}_cut", (up,), inner),
        Scale(f"{gate}_scaled", (f"{gate}_cut",), inner),
        Activation(f"{gate}_score", (f"{gate}_scaled",), inner, "sigmoid"),
        Multiply(f"{prefix}glu", (f"{gate}_cut", f"{gate}_score"), inner),
        Scale(f"{up}_shifted", (f"{up}_cut",), inner),  # + 1: as a factor of 1, it keeps nothing
        Multiply(f"{prefix}gated", (f"{up}_shifted", f"{prefix}glu"), inner),
        Matmul(f"{prefix}down", (f"{prefix}gated",), inner, width, False, ROW),
    )


def _rotary(config: Config, head_dim: int) -> int:
    """Read how many elements of a head rotate, in pairs: all if no field says so."""
    config.ignore("rotary_dim")  # rope_parameters say it
    parameters = config.mapping("rope_parameters", required=False) or {}
    part = parameters.get("partial_rotary_factor", config.real("partial_rotary_factor", required=False))
    if part is None:
        part = 1.0
    if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 < part <= 1:
        raise config.wrong("partial_rotary_factor", f"{printable(repr(part), 60)} is not a fraction from 0 to 1")
    return -2 * (-int(head_dim * part) // 2)


def _size(config: Config, field: str, published: Mapping[str, object]) -> int:
    """Read a size of the indexer, under the class's name or the published one."""
    stated = published.get(PUBLISHED[field])
    if stated is None:
        return config.integer(field)
    config.ignore(field)
    if isinstance(stated, bool) or not isinstance(stated, int) or not 1 <= stated <= 10**9:
        raise config.wrong("sparse_attention_config", f"{PUBLISHED[field]} is not a whole number from 1")
    return stated


def _attentions(config: Config, layers: int, published: Mapping[str, object]) -> Sequence[str]:
    """Read the attention of each layer: by either list, or full in all."""
    frequency = published.get("sparse_attention_freq")
    given = config.items("layer_types", required=False)
    if given is None and isinstance(frequency, list):
        given = [BLOCKS if on else FULL for on in frequency]
    return [FULL] * layers if given is None else checked(config, "layer_types", given, layers, (FULL, BLOCKS))


def _feeds(config: Config, layers: int) -> Sequence[str]:
    """Read whether each layer is dense or a mixture of experts: by either list, or mixtures in all."""
    frequency = config.items("moe_layer_freq", required=False)
    given = config.items("mlp_layer_types", required=False)
    if given is None and frequency is not None:
        given = [SPARSE if on else DENSE for on in frequency]
    return [SPARSE] * layers if given is None else checked(config, "mlp_layer_types", given, layers, (SPARSE, DENSE))


MINIMAX_M3 = Architecture(
    "minimax_m3_vl_text",
    minimax_m3,
    config_class="MiniMaxM3VLTextConfig",
    aliases={"num_experts": "num_local_experts"},
    implementation=replace(PARTIAL_ROTARY, router="scores"),
    wrappers=(Wrapper("minimax_m3_vl"),),
    defaults={
        "dense_intermediate_size": 12288, "head_dim": 128, "index_block_size": 128, "index_head_dim": 128,
        "index_n_heads": 4, "index_topk_blocks": 16, "intermediate_size": 3072, "layer_types": None,
        "max_position_embeddings": 524288, "mlp_layer_types": None, "num_attention_heads": 64,
        "num_experts_per_tok": 4, "num_key_value_heads": 4, "num_local_experts": 128,
        "shared_intermediate_size": 3072, "tie_word_embeddings": False, "vocab_size": 200064,
    },
)  # fmt: skip

ARCHITECTURES = (MINIMAX_M3,)

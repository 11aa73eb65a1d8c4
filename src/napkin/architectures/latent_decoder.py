"""Decoders with multi-head latent attention: what sets one apart, what its config.json says, and its operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import Arrangement, hyper_connected, pre_norm
from napkin.architectures.assembly import embedding, head, last_layer, runs_of
from napkin.architectures.attention_parts import Rope, Scores
from napkin.architectures.blocks import PLAIN, RMS, Block, Gating, Operations, Routing, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of, prediction_modules, predictions
from napkin.architectures.latent_attention import LatentAttention, LatentSizes
from napkin.architectures.layer_plans import Sparse, after_first
from napkin.architectures.reading import activation, chosen_experts, depth, head_size, on, routing_groups, tied, width
from napkin.inputs.model import Config
from napkin.operations.attention.indexer import Indexer
from napkin.operations.hyper_connections import CopyToStreams, ReadStreams
from napkin.operations.model import Layer, Model
from napkin.operations.views import Cast
from napkin.record import record, replace


class LatentPlan(NamedTuple):
    """The properties that differ between layers: whether a layer has experts, and its own indexer."""

    sparse: bool
    indexed: bool


@record
class LatentReading:
    """What a config.json says of a decoder with latent attention: nothing below reads it again.

    index    makes the operation that chooses the keys, where sparse attention has one
    cast     the embedding's scale is an integer: the product has the integer's type first (operations.pointwise.Scale)
    streams  of the residual, if there are hyper-connections
    """

    sizes: Dimensions
    attention: LatentAttention
    plans: Sequence[LatentPlan]
    dense: Block | None
    sparse: Block | None
    index: Callable[[str, str], Indexer] | None
    cast: bool
    streams: int
    untied: bool
    predictions: int


Branches = Callable[[LatentPlan, Block, Block], tuple[Block, Block]]
"""(what sets a layer apart, attention, feed-forward) → both as this model has them."""


@record
class LatentDecoder:
    """What sets a decoder with latent attention apart from DeepSeek-V3.

    rotary       how its rotary elements are paired (attention.Rope)
    where        which layers have experts; None: none
    softmax      the router's scores are a softmax, not sigmoids balanced by a bias
    native       the router runs in the type of its input, not in fp32, and its softmax is divided by the chosen's sum
    scaled       constants multiply embedding, residual branches and logits
    rank_stated  a config without q_lora_rank has none. DeepSeek-V2's published files state the rank or null, and tools
                 that drop nulls from a file leave out only the latter
    indexer      sparse attention (DeepSeek-V3.2): reads which layers have an indexer, which chooses the keys that a
                 query sees
    attention    this model's queries, gates and sinks
    branches     reads what this model has around attention and feed-forward
    streams      the field of the number of hyper-connected streams, which do not mix; the head's matmul runs in fp32,
                 and gate and up of experts are clamped
    """

    rotary: Rope = Rope(0, "interleaved")
    where: Sparse | None = after_first
    softmax: bool = False
    native: bool = False
    scaled: bool = False
    rank_stated: bool = False
    indexer: Callable[[Config, int], list[bool]] | None = None
    attention: Callable[[LatentAttention], LatentAttention] = lambda usual: usual
    branches: Callable[[Config, int], Branches] = lambda config, hidden: lambda plan, attend, feed: (attend, feed)
    streams: str = ""

    def __call__(self, config: Config) -> Model:
        """Return the network that a config.json describes."""
        reading = _read(config, self)
        return _build(reading, self, self.branches(config, reading.sizes.hidden))


# --- what its config.json says ---------------------------------------------------------------------------------------


def _read(config: Config, of: LatentDecoder) -> LatentReading:
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    config.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "rope_interleave")
    nope, rotary = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    v_dim = config.optional_integer("v_head_dim")
    if v_dim is None:
        v_dim = head_size(config, hidden, heads, own=False)
    function = activation(config, "hidden_act")
    indexed = of.indexer is not None
    attention = LatentAttention(
        LatentSizes(hidden, heads, _query_rank(config, of), config.integer("kv_lora_rank"), nope, v_dim),
        replace(of.rotary, dim=rotary),
        bias=on(config, "attention_bias") if _knows(config, "attention_bias") else False,
        scores=Scores(window=config.integer("index_topk") if indexed else None, anywhere=indexed),
    )
    if indexed:
        config.ignore("mlp_bias")  # nothing reads it
    bias = on(config, "mlp_bias") if _knows(config, "mlp_bias") and not indexed else False
    sparse_at = of.where(config, layers) if of.where is not None else lambda i: False
    indexes = of.indexer(config, layers) if of.indexer is not None else [False] * layers
    plans = [LatentPlan(sparse_at(i), indexes[i]) for i in range(layers)]
    dense = None if all(plan.sparse for plan in plans) else _mlp(config, hidden, function, bias)
    sparse = _experts(config, of, hidden, function, bias) if any(plan.sparse for plan in plans) else None
    if dense is None:
        config.ignore("intermediate_size")
    if sparse is None:
        config.ignore("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts")
        config.ignore("topk_method", "norm_topk_prob")
    if of.streams:
        config.ignore("hc_eps", "hc_magnitude", "learnable_sink_init", "swiglu_limit")
    index = _index(config, hidden, rotary) if indexed else None
    streams = config.integer(of.streams) if of.streams else 1
    length = config.optional_integer("max_position_embeddings")
    return LatentReading(
        dimensions_of(config, hidden, layers, heads, heads, nope + rotary, length),
        of.attention(attention),
        plans,
        dense,
        sparse,
        index,
        # scale_emb: 12 if it is omitted, an integer like most that are stated
        of.scaled and not isinstance(config.raw("scale_emb", required=False), float),
        streams,
        not tied(config),
        0 if of.streams else predictions(config),
    )


def _query_rank(config: Config, of: LatentDecoder) -> int | None:
    if of.rank_stated and "q_lora_rank" not in config.fields:
        config.notes.append("q_lora_rank is not stated: read as null, queries without a low-rank step")
        return None
    return config.optional_integer("q_lora_rank")


def _knows(config: Config, field: str) -> bool:
    return config.has(field) or field in config.defaults


def _mlp(config: Config, hidden: int, function: str, bias: bool) -> Block:
    """Return the dense feed-forward block."""
    return partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function, bias=bias)


def _experts(config: Config, of: LatentDecoder, hidden: int, function: str, bias: bool) -> Block:
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    inner, sigmoid = config.integer("moe_intermediate_size"), not of.softmax
    # how the best are found: DeepSeek-V2 takes their scores too from what is left of all
    masked = not (sigmoid or of.native) and config.raw("topk_method", required=False) == "group_limited_greedy"
    config.ignore("topk_method")
    groups, chosen_groups = routing_groups(config, experts)
    shared: Block | None = None
    number = config.optional_integer("n_shared_experts", least=0)
    if number:
        shared = partial(gated_mlp, width=hidden, inner=number * inner, function=function, bias=bias, prefix="shared/")
    routing = Routing(
        experts,
        top_k,
        score="sigmoid" if sigmoid else "softmax",
        normalize=(sigmoid or of.native) and config.flag("norm_topk_prob", otherwise=True),
        upcast=not of.native,
        balanced="buffer" if sigmoid else "",
        masked=masked,
        groups=groups,
        chosen_groups=chosen_groups,
    )
    routed, gating = ("silu", Gating(clamped=True)) if of.streams else (function, PLAIN)
    return partial(moe, width=hidden, inner=inner, routing=routing, function=routed, gating=gating, shared=shared)


def each_indexed(config: Config, layers: int) -> list[bool]:
    """Read whether each layer has its own indexer, or takes the keys that an earlier one chose; each has one
    if a config does not say."""
    return _indexers(config, [True] * layers)


def each_fourth_indexed(config: Config, layers: int) -> list[bool]:
    """Read the same; by default the first layer has one, and each fourth from the second on."""
    return _indexers(config, [i == 0 or i % 4 == 1 for i in range(layers)])


def _indexers(config: Config, otherwise: list[bool]) -> list[bool]:
    config.ignore("layer_types")
    given, layers = config.items("indexer_types", required=False), len(otherwise)
    if given is None:
        given = _by_schedule(config, layers)
    else:
        config.ignore(*_SCHEDULE)
    if given is None:
        return otherwise
    if len(given) != layers or set(map(str, given)) - {"full", "shared"} or given[0] != "full":
        raise config.wrong("indexer_types", f"is not a list of {layers} times full or shared, the first one full")
    return [entry == "full" for entry in given]


_SCHEDULE = ("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")


def _by_schedule(config: Config, layers: int) -> list[object] | None:
    """Read which layers choose keys (full) from a pattern (FSSF…) or a period and its offset; None: no field says."""
    if not any(config.has(field) and config.matters(field) for field in _SCHEDULE):
        return None
    pattern = config.raw("index_topk_pattern", required=False)
    period = config.optional_integer("index_topk_freq", least=0) or 1
    offset = config.optional_integer("index_skip_topk_offset", least=0)
    if pattern is None:
        first = 2 if offset is None else offset
        return ["full" if max(i - first + 1, 0) % period == 0 else "shared" for i in range(layers)]
    words = {"F": "full", "S": "shared"}
    return [words.get(entry, entry) for entry in pattern] if isinstance(pattern, (str, list)) else [pattern]


def _index(config: Config, hidden: int, rotary: int) -> Callable[[str, str], Indexer]:
    rank = config.integer("q_lora_rank")
    heads, size = config.integer("index_n_heads"), config.integer("index_head_dim")
    return lambda source, latent: Indexer("indexer", (source, latent), hidden, rank, heads, size, rotary)


# --- its operations --------------------------------------------------------------------------------------------------


def _build(of: LatentReading, kind: LatentDecoder, branches: Branches) -> Model:
    sizes, hidden, norm = of.sizes, of.sizes.hidden, RMS
    any_sparse, all_indexed = any(plan.sparse for plan in of.plans), all(plan.indexed for plan in of.plans)
    arrange: Arrangement = partial(pre_norm, scale=kind.scaled)
    if kind.streams:
        arrange = partial(hyper_connected, streams=of.streams, mixes=False, behind=True)

    def make(plan: LatentPlan) -> Layer:
        feed = of.sparse if plan.sparse else of.dense
        assert feed is not None
        name = ("moe" if plan.sparse else "dense") if any_sparse else "decoder"
        if of.index is not None and not all_indexed:
            name += "_indexed" if plan.indexed else "_shared_index"
        chooses = of.index is not None and plan.indexed
        attend: Block = replace(of.attention, index=of.index) if chooses else of.attention
        return Layer(name, arrange(hidden, norm, *branches(plan, attend, feed)))

    runs = runs_of(of.plans, make)
    before = embedding(sizes.vocabulary, hidden, scale=kind.scaled, cast=of.cast)
    after = head(hidden, sizes.vocabulary, norm=norm, scale=kind.scaled, none=sizes.headless)
    if kind.streams:
        before = (*before, CopyToStreams("streams", ("embedding",), hidden, of.streams))
        after = _of_streams(after, hidden, of.streams, fp32=of.untied)
    modules = prediction_modules(of.predictions, hidden, norm, last_layer(runs)) if of.predictions else ()
    return replace(decoder_only(sizes, before, runs, after, modules), streams=of.streams)


def _of_streams(after: Operations, width: int, streams: int, *, fp32: bool) -> Operations:
    """Return final norm and head after the streams' collapse, the head's matmul in fp32 if its weight is its own."""
    norm, *rest = after
    collapse = ReadStreams("streams_read", ("x",), width, streams, False, last=True, behind=True)
    operations: Operations = (collapse, replace(norm, reads=("streams_read",)))
    if fp32 and rest:
        operations += (Cast("final_wide", rest[0].reads, width, fp32=True), replace(rest[0], reads=("final_wide",)))
        rest = rest[1:]
    return (*operations, *rest)

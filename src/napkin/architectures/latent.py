"""Decoders with multi-head latent attention (DeepSeek-V2 and what follows it)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from napkin.architectures import arrangements, blocks, common
from napkin.architectures.attention import OutputGate, Rope, Scores, gated
from napkin.architectures.blocks import RMS, Block, Operations, Routing
from napkin.architectures.latent_attention import PARTS, LatentAttention, LatentSizes
from napkin.architectures.traits import Sparse, after_first, by_type
from napkin.inputs.model import Config
from napkin.operations.attention import Indexer
from napkin.operations.base import COLUMN, LM_HEAD, QUERY, Operation
from napkin.operations.hyper_connections import Collapse, Fan
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add
from napkin.operations.views import Cast, Concat, Slice
from napkin.record import replace


class Kind:
    """What a model_type does: whether scores are sigmoids balanced by a bias, where experts are, its rotary form.

    native       the router runs in the type of its input, not in fp32, and its softmax is divided by the chosen's sum
    indexed      sparse attention: an indexer chooses the keys that a query sees
    queries, gate  as in LatentAttention      sinks  one learned extra score per head
    gated_norms  norms whose result is multiplied by σ of a product of low rank, but before dense networks
    out_norm     the result of a mixture of experts is normalised
    streams      hyper-connections that do not mix; the head's product runs in fp32; experts' gate and up are cut
    rank_stated  a config without q_lora_rank has none. DeepSeek-V2's published files state the rank or null, and tools
    that drop nulls from a file leave out only the latter."""

    def __init__(
        self,
        pairing: str,
        *,
        sigmoid: bool = True,
        where: Sparse | None = after_first,
        scaled: bool = False,
        native: bool = False,
        rank_stated: bool = False,
        indexed: bool = False,
        queries: Callable[[LatentAttention, str], Operations] | None = None,
        gate: OutputGate | None = None,
        sinks: bool = False,
        gated_norms: bool = False,
        out_norm: bool = False,
        streams: bool = False,
    ) -> None:
        self.pairing = pairing
        self.sigmoid = sigmoid
        self.where = where
        self.scaled = scaled
        self.native = native
        self.rank_stated = rank_stated
        self.indexed = indexed
        self.queries = queries
        self.gate = gate
        self.sinks = sinks
        self.gated_norms = gated_norms
        self.out_norm = out_norm
        self.streams = streams


class Plan(NamedTuple):
    """What sets one layer apart from the others."""

    sparse: bool
    indexed: bool


def _gate_and_queries(of: LatentAttention, source: str) -> Operations:
    """Return Hy4's output gate, made of the input, and the queries."""
    sizes = of.sizes
    gate = Matmul("output_gate", (source,), sizes.width, sizes.heads * sizes.v_dim, False, COLUMN)
    return (gate, *of.usual_queries(source))


def _queries_with_gate(of: LatentAttention, source: str) -> Operations:
    """Return A.X K2's queries and output gate from one projection, which reads the latent query before and after its
    norm."""
    sizes, both = of.sizes, ("q_a_norm", "q_a")
    rank, queries, gates = sizes.q_rank or 0, sizes.heads * of.qk_dim, sizes.heads * sizes.v_dim
    return (
        Matmul("q_a", (source,), sizes.width, rank, of.bias),
        of.norm(*both, rank),
        Concat("q_latents", both, 2 * rank),
        Matmul("q_gate", ("q_latents",), 2 * rank, queries + gates, False, COLUMN),
        Slice("q", ("q_gate",), queries, role=QUERY),
        Slice("output_gate", ("q_gate",), gates),
    )


def _gate(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    return gated(attended, "output_gate", heads * size, fp32=False)


def _gate_fp32(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    return gated(attended, "output_gate", heads * size, fp32=True)


KINDS = {
    "axk1": Kind("interleaved", where=by_type, out_norm=True),
    "axk2": Kind(
        "interleaved", where=by_type, indexed=True, queries=_queries_with_gate, gate=_gate_fp32, gated_norms=True
    ),
    "hy_v4": Kind("half", where=by_type, indexed=True, queries=_gate_and_queries, gate=_gate, sinks=True, streams=True),
    "deepseek_v2": Kind("complex", sigmoid=False, rank_stated=True),
    "deepseek_v3": Kind("interleaved"),
    "deepseek_v32": Kind("interleaved", where=by_type, indexed=True),
    "glm_moe_dsa": Kind("interleaved", where=by_type, indexed=True),
    "kimi_k2": Kind("interleaved"),
    "mistral4": Kind("interleaved", sigmoid=False, native=True),
    "glm4_moe_lite": Kind("interleaved", where=by_type),
    "minicpm3": Kind("half", where=None, scaled=True),
    "youtu": Kind("interleaved", where=None),
}


def build(config: Config) -> Model:
    """config.json of any model_type in KINDS → Model."""
    kind = KINDS[config.model_type]
    hidden, layers = common.width(config), common.depth(config)
    heads = config.integer("num_attention_heads")
    config.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    nope, rotary = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    v_dim = config.optional_integer("v_head_dim")
    if v_dim is None:
        v_dim = common.head_size(config, hidden, heads, own=False)
    function = common.activation(config, "hidden_act")
    bias = common.on(config, "attention_bias") if _knows(config, "attention_bias") else False
    attend = LatentAttention(
        LatentSizes(hidden, heads, _query_rank(config, kind), config.integer("kv_lora_rank"), nope, v_dim),
        Rope(rotary, kind.pairing, upcast=kind.pairing == "complex"),
        bias=bias,
        queries=kind.queries,
        gate=kind.gate,
        scores=Scores(
            window=config.integer("index_topk") if kind.indexed else None, sinks=kind.sinks, anywhere=kind.indexed
        ),
    )
    if kind.indexed:
        config.ignore("mlp_bias")  # nothing reads it
    config.ignore("rope_interleave")
    mlp_bias = common.on(config, "mlp_bias") if _knows(config, "mlp_bias") and not kind.indexed else False
    sparse_at = kind.where(config, layers) if kind.where else (lambda i: False)
    indexes = _indexers(config, layers, spread=kind.streams) if kind.indexed else [False] * layers
    keys = [Plan(sparse_at(i), indexes[i]) for i in range(layers)]
    any_sparse = any(plan.sparse for plan in keys)
    dense: Block | None = None
    if all(plan.sparse for plan in keys):
        config.ignore("intermediate_size")
    else:
        inner = config.integer("intermediate_size")
        dense = partial(blocks.gated_mlp, width=hidden, inner=inner, function=function, bias=mlp_bias)
    sparse = _experts(config, kind, hidden, function, mlp_bias) if any_sparse else None
    if sparse is None:
        config.ignore("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts")
        config.ignore("topk_method", "norm_topk_prob")

    index = _indexer(config, hidden) if kind.indexed else None
    streams = config.integer("hc_mult") if kind.streams else 1
    gate_rank = config.integer("gated_norm_rank") if kind.gated_norms else 0

    def make(plan: Plan) -> Layer:
        feed = sparse if plan.sparse else dense
        assert feed is not None
        name = ("moe" if plan.sparse else "dense") if any_sparse else "decoder"
        if index is not None and not all(indexes):
            name += "_indexed" if plan.indexed else "_shared_index"
        chosen: Block = replace(attend, index=index) if index is not None and plan.indexed else attend
        if kind.streams:
            connected = partial(arrangements.hyper_connected, streams=streams, mixes=False, behind=True)
            return Layer(name, connected(hidden, RMS, chosen, feed))
        if kind.gated_norms:
            chosen = _behind_gate(chosen, hidden, gate_rank)
            feed = _behind_gate(feed, hidden, gate_rank) if plan.sparse else feed
        if kind.out_norm and plan.sparse:
            feed = _normed(feed, hidden)
        return Layer(name, arrangements.pre_norm(hidden, RMS, chosen, feed, scale=kind.scaled))

    runs = common.runs_of(keys, make)
    rows = config.integer("vocab_size")
    # scale_emb: 12 where it is omitted, an integer like most that are stated
    whole_scale = kind.scaled and not isinstance(config.raw("scale_emb", required=False), float)
    none = common.headless(config)
    before = common.embedding(rows, hidden, scale=kind.scaled, cast=whole_scale)
    after = common.head(hidden, rows, norm=RMS, scale=kind.scaled, none=none)
    if kind.streams:
        config.ignore("hc_eps", "hc_magnitude", "learnable_sink_init", "swiglu_limit")
        before = (*before, Fan("streams", ("embedding",), hidden, streams))
        after = _of_streams(after, hidden, streams, wide=not common.tied(config))
    model = common.decoder_only(
        config,
        before,
        runs,
        after,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rotary,
        vocabulary=rows,
        max_length=config.optional_integer("max_position_embeddings"),
        tie=common.tied(config) and not none,
        extra=() if kind.streams else common.prediction_modules(config, hidden, RMS, common.last_layer(runs)),
    )
    return replace(model, streams=streams)


def _behind_gate(block: Block, width: int, rank: int) -> Block:
    """The block, of y ⊙ σ(silu(y·W₁)·W₂), the product in fp32."""

    def of_gated(source: str) -> Operations:
        low = f"{source}_low"
        return (
            Matmul(low, (source,), width, rank),
            Activation(f"{low}_act", (low,), rank, "silu"),
            Matmul(f"{source}_gate", (f"{low}_act",), rank, width),
            *gated(source, f"{source}_gate", width, fp32=True),
            *block(f"{source}_gated"),
        )

    return of_gated


def _normed(block: Block, width: int) -> Block:
    """The block's result, normalised."""

    def of(source: str) -> Operations:
        operations = block(source)
        return (*operations, RMS("mlp_out_norm", operations[-1].name, width))

    return of


def _of_streams(after: Operations, width: int, streams: int, wide: bool) -> Operations:
    """Final norm and head behind the streams' collapse, the head's product in fp32 where its matrix is its own."""
    operations: list[Operation] = [Collapse("streams_read", ("x",), width, streams, False, last=True, behind=True)]
    for op in after:
        if op.role == LM_HEAD and wide:
            operations.append(Cast("final_wide", op.reads, width, wide=True))
        reads = {"final_norm": ("streams_read",), "lm_head": ("final_wide",) if wide else op.reads}.get(
            op.name, op.reads
        )
        operations.append(replace(op, reads=reads))
    return tuple(operations)


def longcat(config: Config) -> Model:
    """LongCat-Flash (arXiv 2509.01322): a layer has two attentions and two dense networks in turn, and experts that
    read what the first network reads and are added at the layer's end; some experts hand their tokens on."""
    hidden, layers = common.width(config), common.depth(config, "num_layers")
    heads = config.integer("num_attention_heads")
    config.ignore("num_key_value_heads", "head_dim", "num_hidden_layers")
    nope, rotary = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    config.must_be("qk_head_dim", nope + rotary)
    for field, value in (("attention_method", "MLA"), ("zero_expert_type", "identity"), ("router_bias", False)):
        config.must_be(field, value)
    config.must_be("mla_scale_q_lora", True)
    config.must_be("mla_scale_kv_lora", True)
    function = common.activation(config, "hidden_act")
    ranks = config.integer("q_lora_rank"), config.integer("kv_lora_rank")
    attend = LatentAttention(
        LatentSizes(hidden, heads, *ranks, nope, config.integer("v_head_dim")),
        Rope(rotary, "interleaved"),
        bias=common.on(config, "attention_bias"),
        scaled=PARTS,
    )
    dense = partial(blocks.gated_mlp, width=hidden, inner=config.integer("ffn_hidden_size"), function=function)
    experts, idle = config.integer("n_routed_experts"), config.optional_integer("zero_expert_num", least=0) or 0
    top_k = config.integer("moe_topk")
    if top_k > experts + idle:
        raise config.wrong("moe_topk", f"chooses {top_k} of {experts + idle} experts")
    routing = Routing(experts + idle, top_k, upcast=True, balanced="buffer", idle=idle)
    sparse = blocks.moe(
        "first/mlp_norm",
        width=hidden,
        inner=config.integer("expert_ffn_hidden_size"),
        routing=routing,
        function=function,
    )
    operations: Operations = ()
    last = "x"
    for prefix in ("first/", "second/"):
        attended = replace(attend, prefix=prefix)(f"{prefix}attention_norm")
        fed = dense(f"{prefix}mlp_norm", prefix=prefix)
        operations += (
            RMS(f"{prefix}attention_norm", last, hidden),
            *attended,
            Add(f"{prefix}attention_residual", (last, attended[-1].name), hidden),
            RMS(f"{prefix}mlp_norm", f"{prefix}attention_residual", hidden),
            *(sparse if prefix == "first/" else ()),
            *fed,
            Add(f"{prefix}mlp_residual", (f"{prefix}attention_residual", fed[-1].name), hidden),
        )
        last = f"{prefix}mlp_residual"
    layer = Layer("moe", (*operations, Add("shortcut", (last, sparse[-1].name), hidden)))
    if idle:
        config.notes.append(f"{idle} of the experts have no weights: tokens are taken to spread evenly over all")
    rows = config.integer("vocab_size")
    none = common.headless(config)
    return common.decoder_only(
        config,
        common.embedding(rows, hidden),
        ((layers, layer),),
        common.head(hidden, rows, norm=RMS, none=none),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rotary,
        vocabulary=rows,
        max_length=config.optional_integer("max_position_embeddings"),
        tie=common.tied(config) and not none,
    )


def _indexers(config: Config, layers: int, spread: bool = False) -> list[bool]:
    """Whether each layer has an indexer of its own, or takes the keys that an earlier one chose. `spread`: where a
    config does not say, the first has one, and from the second on each fourth."""
    config.ignore("layer_types")
    config.must_be("index_topk_pattern", None)
    config.must_be("index_topk_freq", 1)
    given = config.items("indexer_types", required=False)
    if given is None:
        return [not spread or i == 0 or i % 4 == 1 for i in range(layers)]
    if len(given) != layers or set(map(str, given)) - {"full", "shared"} or given[0] != "full":
        raise config.wrong("indexer_types", f"is not a list of {layers} times full or shared, the first one full")
    return [entry == "full" for entry in given]


def _indexer(config: Config, hidden: int) -> Callable[[str, str], Indexer]:
    rank = config.integer("q_lora_rank")
    heads, size = config.integer("index_n_heads"), config.integer("index_head_dim")
    return lambda source, latent: Indexer(
        "indexer", (source, latent), hidden, rank, heads, size, config.integer("qk_rope_head_dim")
    )


def _query_rank(config: Config, kind: Kind) -> int | None:
    if kind.rank_stated and "q_lora_rank" not in config.fields:
        config.notes.append("q_lora_rank is not stated: read as null, queries without a low-rank step")
        return None
    return config.optional_integer("q_lora_rank")


def _knows(config: Config, field: str) -> bool:
    return config.has(field) or field in config.defaults


def _experts(config: Config, kind: Kind, hidden: int, function: str, bias: bool) -> Block:
    experts, top_k = config.integer("n_routed_experts"), config.integer("num_experts_per_tok")
    if top_k > experts:
        raise config.wrong("num_experts_per_tok", f"chooses {top_k} of {experts} experts")
    inner = config.integer("moe_intermediate_size")
    # how the best are found: DeepSeek-V2 takes their scores too from what is left of all
    masked = not (kind.sigmoid or kind.native) and config.raw("topk_method", required=False) == "group_limited_greedy"
    config.ignore("topk_method", "n_group", "topk_group")
    shared: Block | None = None
    number = config.optional_integer("n_shared_experts", least=0)
    if number:
        shared = partial(
            blocks.gated_mlp, width=hidden, inner=number * inner, function=function, bias=bias, prefix="shared/"
        )
    routing = Routing(
        experts,
        top_k,
        score="sigmoid" if kind.sigmoid else "softmax",
        normalise=(kind.sigmoid or kind.native) and config.flag("norm_topk_prob", otherwise=True),
        upcast=not kind.native,
        balanced="buffer" if kind.sigmoid else "",
        masked=masked,
        limited=kind.streams,
    )
    routed = "silu" if kind.streams else function
    return partial(blocks.moe, width=hidden, inner=inner, routing=routing, function=routed, shared=shared)

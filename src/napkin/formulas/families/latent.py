"""Decoders with multi-head latent attention (DeepSeek-V2 and what follows it)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from napkin.formulas import blocks
from napkin.formulas.blocks import RMS, Block, Operations, Rope, Routing
from napkin.formulas.families import common
from napkin.formulas.families.decoder import Sparse, after_first, by_type
from napkin.formulas.layer import Add, Indexer, Layer, Model
from napkin.inputs.model import Config


class Kind:
    """What a model_type does: whether scores are sigmoids balanced by a bias, where experts are, its rotary form.

    native       the router runs in the type of its input, not in fp32, and its softmax is divided by the chosen's sum
    indexed      sparse attention: an indexer chooses the keys that a query sees
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
    ) -> None:
        self.pairing = pairing
        self.sigmoid = sigmoid
        self.where = where
        self.scaled = scaled
        self.native = native
        self.rank_stated = rank_stated
        self.indexed = indexed


class Plan(NamedTuple):
    """What sets one layer apart from the others."""

    sparse: bool
    indexed: bool


KINDS = {
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
    attend = partial(
        blocks.latent_attention,
        width=hidden,
        heads=heads,
        q_rank=_query_rank(config, kind),
        kv_rank=config.integer("kv_lora_rank"),
        nope=nope,
        rope=Rope(rotary, kind.pairing, upcast=kind.pairing == "complex"),
        v_dim=v_dim,
        bias=bias,
        window=config.integer("index_topk") if kind.indexed else None,
    )
    if kind.indexed:
        config.ignore("mlp_bias")  # nothing reads it
    mlp_bias = common.on(config, "mlp_bias") if _knows(config, "mlp_bias") and not kind.indexed else False
    sparse_at = kind.where(config, layers) if kind.where else (lambda i: False)
    indexes = _indexers(config, layers) if kind.indexed else [False] * layers
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

    def make(plan: Plan) -> Layer:
        feed = sparse if plan.sparse else dense
        assert feed is not None
        name = ("moe" if plan.sparse else "dense") if any_sparse else "decoder"
        if index is not None and not all(indexes):
            name += "_indexed" if plan.indexed else "_shared_index"
        chosen = partial(attend, index=index) if index is not None and plan.indexed else attend
        return Layer(name, blocks.pre_norm(hidden, RMS, chosen, feed, scale=kind.scaled))

    runs = common.runs_of(keys, make)
    rows = config.integer("vocab_size")
    # scale_emb: 12 where it is omitted, an integer like most that are stated
    whole_scale = kind.scaled and not isinstance(config.raw("scale_emb", required=False), float)
    none = common.headless(config)
    return common.decoder_only(
        config,
        common.embedding(rows, hidden, scale=kind.scaled, cast=whole_scale),
        runs,
        common.head(hidden, rows, norm=RMS, scale=kind.scaled, none=none),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rotary,
        vocabulary=rows,
        max_length=config.optional_integer("max_position_embeddings"),
        tie=common.tied(config) and not none,
        extra=common.prediction_modules(config, hidden, RMS, common.last_layer(runs)),
    )


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
    attend = partial(
        blocks.latent_attention,
        width=hidden,
        heads=heads,
        q_rank=config.integer("q_lora_rank"),
        kv_rank=config.integer("kv_lora_rank"),
        nope=nope,
        rope=Rope(rotary, "interleaved"),
        v_dim=config.integer("v_head_dim"),
        bias=common.on(config, "attention_bias"),
        scaled=True,
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
        attended, fed = attend(f"{prefix}attention_norm", prefix=prefix), dense(f"{prefix}mlp_norm", prefix=prefix)
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


def _indexers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has an indexer of its own, or takes the keys that an earlier one chose."""
    config.ignore("layer_types")
    config.must_be("index_topk_pattern", None)
    config.must_be("index_topk_freq", 1)
    given = config.items("indexer_types", required=False)
    if given is None:
        return [True] * layers
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
    )
    return partial(blocks.moe, width=hidden, inner=inner, routing=routing, function=function, shared=shared)

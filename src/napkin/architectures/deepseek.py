"""DeepSeek and what has its multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import Arrangement, hyper_connected, pre_norm
from napkin.architectures.attention import Rope, Scores, gated
from napkin.architectures.blocks import RMS, Block, Operations, Routing, gated_mlp, moe
from napkin.architectures.common import (
    Dimensions,
    activation,
    chosen_experts,
    decoder_only,
    depth,
    dimensions_of,
    embedding,
    head,
    head_size,
    last_layer,
    on,
    prediction_modules,
    predictions,
    runs_of,
    tied,
    width,
)
from napkin.architectures.decoder import Decoder
from napkin.architectures.latent_attention import LatentAttention, LatentSizes
from napkin.architectures.layer_plans import Sparse, after_first, by_type
from napkin.architectures.mixture import Mixture, counted
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.base import COLUMN, QUERY
from napkin.operations.hyper_connections import CopyToStreams, ReadStreams
from napkin.operations.implementations import EAGER, EFFICIENT, HF, SIGMOID_ROUTER
from napkin.operations.indexer import Indexer
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation
from napkin.operations.views import Cast, Concat, Slice
from napkin.record import record, replace


class LatentPlan(NamedTuple):
    """What sets one layer apart from the others: whether it has experts, and an indexer of its own."""

    sparse: bool
    indexed: bool


@record
class LatentReading:
    """What a config.json says of a decoder with latent attention: nothing below reads it again.

    index    makes the operation that chooses the keys, where sparse attention has one
    cast     the embedding's scale is an integer: the product has the integer's type first (operations.pointwise.Scale)
    streams  of the residual, where there are hyper-connections
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
    dense: Block | None = None
    if all(plan.sparse for plan in plans):
        config.ignore("intermediate_size")
    else:
        inner = config.integer("intermediate_size")
        dense = partial(gated_mlp, width=hidden, inner=inner, function=function, bias=bias)
    sparse: Block | None = None
    if any(plan.sparse for plan in plans):
        sparse = _experts(config, of, hidden, function, bias)
    else:
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
        # scale_emb: 12 where it is omitted, an integer like most that are stated
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


def _experts(config: Config, of: LatentDecoder, hidden: int, function: str, bias: bool) -> Block:
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    inner, sigmoid = config.integer("moe_intermediate_size"), not of.softmax
    # how the best are found: DeepSeek-V2 takes their scores too from what is left of all
    masked = not (sigmoid or of.native) and config.raw("topk_method", required=False) == "group_limited_greedy"
    config.ignore("topk_method", "n_group", "topk_group")
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
        limited=bool(of.streams),
    )
    routed = "silu" if of.streams else function
    return partial(moe, width=hidden, inner=inner, routing=routing, function=routed, shared=shared)


def each_indexed(config: Config, layers: int) -> list[bool]:
    """Read whether each layer has an indexer of its own, or takes the keys that an earlier one chose; each has one
    where a config does not say."""
    return _indexers(config, [True] * layers)


def each_fourth_indexed(config: Config, layers: int) -> list[bool]:
    """Read the same where the first layer has one if a config does not say, and each fourth from the second on."""
    return _indexers(config, [i == 0 or i % 4 == 1 for i in range(layers)])


def _indexers(config: Config, otherwise: list[bool]) -> list[bool]:
    config.ignore("layer_types")
    config.must_be("index_topk_pattern", None)
    config.must_be("index_topk_freq", 1)
    given, layers = config.items("indexer_types", required=False), len(otherwise)
    if given is None:
        return otherwise
    if len(given) != layers or set(map(str, given)) - {"full", "shared"} or given[0] != "full":
        raise config.wrong("indexer_types", f"is not a list of {layers} times full or shared, the first one full")
    return [entry == "full" for entry in given]


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
    """Return final norm and head after the streams' collapse, the head's matmul in fp32 where its weight is its own."""
    norm, *rest = after
    collapse = ReadStreams("streams_read", ("x",), width, streams, False, last=True, behind=True)
    operations: Operations = (collapse, replace(norm, reads=("streams_read",)))
    if fp32 and rest:
        operations += (Cast("final_wide", rest[0].reads, width, wide=True), replace(rest[0], reads=("final_wide",)))
        rest = rest[1:]
    return (*operations, *rest)


# --- differences -----------------------------------------------------------------------------------------------------


def _gated_norms(config: Config, hidden: int) -> Branches:
    """A.X K2: norms multiplied by σ(silu(y·W₁)·W₂), a gate of low rank, except before dense networks."""
    rank = config.integer("gated_norm_rank")

    def branches(plan: LatentPlan, attend: Block, feed: Block) -> tuple[Block, Block]:
        return _behind_gate(attend, hidden, rank), _behind_gate(feed, hidden, rank) if plan.sparse else feed

    return branches


def _behind_gate(block: Block, width: int, rank: int) -> Block:
    """Return the block of y ⊙ σ(silu(y·W₁)·W₂), the product in fp32."""

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


def _normed_experts(config: Config, hidden: int) -> Branches:
    """A.X K1: the result of a mixture of experts is normalized."""

    def normed(block: Block) -> Block:
        def of(source: str) -> Operations:
            operations = block(source)
            return (*operations, RMS("mlp_out_norm", operations[-1].name, hidden))

        return of

    return lambda plan, attend, feed: (attend, normed(feed) if plan.sparse else feed)


def _gate_and_queries(of: LatentAttention, source: str) -> Operations:
    """Return Hy4's output gate, made from the input, and the queries."""
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


def _hy_v4(usual: LatentAttention) -> LatentAttention:
    """Hy4: gated, with one learned extra score per head."""
    return replace(usual, queries=_gate_and_queries, gate=_gate, scores=replace(usual.scores, sinks=True))


def _axk2(usual: LatentAttention) -> LatentAttention:
    return replace(usual, queries=_queries_with_gate, gate=_gate_fp32)


DEEPSEEK = Architecture(
    "deepseek",
    Decoder(
        bias="attention_bias",
        out_bias="attention_bias",
        experts=Mixture(
            "n_routed_experts", where=after_first, shared=counted("n_shared_experts"), normalize="norm_topk_prob"
        ),
    ),
)
DEEPSEEK_V2 = Architecture(
    "deepseek_v2",
    LatentDecoder(Rope(0, "complex", upcast=True), softmax=True, rank_stated=True),
    config_class="DeepseekV2Config",
    aliases={"num_experts": "n_routed_experts"},
    implementation=replace(HF, router="scores"),
    defaults={
        "attention_bias": False, "first_k_dense_replace": 0, "head_dim": None, "hidden_act": "silu",
        "intermediate_size": 11008, "kv_lora_rank": 512, "max_position_embeddings": 2048, "mlp_bias": False,
        "moe_intermediate_size": 1407, "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 32,
        "num_experts_per_tok": None, "num_key_value_heads": None, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "tie_word_embeddings": False, "topk_method": "greedy", "v_head_dim": 128,
        "vocab_size": 102400,
    },
)  # fmt: skip
DEEPSEEK_V3 = Architecture(
    "deepseek_v3",
    LatentDecoder(),
    config_class="DeepseekV3Config",
    aliases={"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    implementation=SIGMOID_ROUTER,
    wrappers=(
        Wrapper("kimi_k25", implementation=replace(SIGMOID_ROUTER, copies_ids=True)),
        Wrapper("kimi_vl"),
    ),
    defaults={
        "norm_topk_prob": True, "n_group": 8, "topk_group": 4, "attention_bias": False, "first_k_dense_replace": 3,
        "hidden_act": "silu", "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 4096,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
        "num_experts_per_tok": 8, "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "tie_word_embeddings": False, "v_head_dim": 128, "vocab_size": 129280,
    },
)  # fmt: skip
DEEPSEEK_V32 = like(
    DEEPSEEK_V3,
    "deepseek_v32",
    where=by_type,
    indexer=each_indexed,
    config_class="DeepseekV32Config",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(SIGMOID_ROUTER, masked=True, kernels=(EFFICIENT, EAGER)),
    defaults={
        "head_dim": 64, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "layer_types": None,
        "max_position_embeddings": 163840, "mlp_bias": False, "mlp_layer_types": None, "n_group": REQUIRED,
        "norm_topk_prob": REQUIRED, "topk_group": REQUIRED,
    },
)  # fmt: skip
KIMI_K2 = like(
    DEEPSEEK_V3,
    "kimi_k2",
    aliases={},
    defaults={
        "attention_bias": REQUIRED, "first_k_dense_replace": REQUIRED, "hidden_act": REQUIRED,
        "intermediate_size": REQUIRED, "kv_lora_rank": REQUIRED, "max_position_embeddings": REQUIRED,
        "moe_intermediate_size": REQUIRED, "n_group": REQUIRED, "n_routed_experts": REQUIRED,
        "n_shared_experts": REQUIRED, "norm_topk_prob": REQUIRED, "num_attention_heads": REQUIRED,
        "num_experts_per_tok": REQUIRED, "num_key_value_heads": REQUIRED, "q_lora_rank": REQUIRED,
        "qk_nope_head_dim": REQUIRED, "qk_rope_head_dim": REQUIRED, "tie_word_embeddings": REQUIRED,
        "topk_group": REQUIRED, "v_head_dim": REQUIRED, "vocab_size": REQUIRED,
    },
)  # fmt: skip
YOUTU = like(
    DEEPSEEK_V3,
    "youtu",
    where=None,
    config_class="YoutuConfig",
    aliases={},
    implementation=HF,
    defaults={
        "first_k_dense_replace": REQUIRED, "intermediate_size": 6144, "max_position_embeddings": 131072,
        "moe_intermediate_size": REQUIRED, "n_group": REQUIRED, "n_routed_experts": REQUIRED,
        "n_shared_experts": REQUIRED, "norm_topk_prob": REQUIRED, "num_attention_heads": 16,
        "num_experts_per_tok": REQUIRED, "num_key_value_heads": 16, "tie_word_embeddings": True,
        "topk_group": REQUIRED, "vocab_size": 128256,
    },
)  # fmt: skip
MINICPM3 = like(
    DEEPSEEK_V3,
    "minicpm3",
    rotary=Rope(0),
    where=None,
    scaled=True,
    config_class="MiniCPM3Config",
    aliases={},
    implementation=HF,
    defaults={
        "first_k_dense_replace": REQUIRED, "head_dim": None, "intermediate_size": 6400, "kv_lora_rank": 256,
        "max_position_embeddings": 32768, "mlp_bias": False, "moe_intermediate_size": REQUIRED,
        "n_group": REQUIRED, "n_routed_experts": REQUIRED, "n_shared_experts": REQUIRED,
        "norm_topk_prob": REQUIRED, "num_attention_heads": 40, "num_experts_per_tok": REQUIRED,
        "num_key_value_heads": 40, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
        "tie_word_embeddings": True, "topk_group": REQUIRED, "v_head_dim": None, "vocab_size": 73448,
    },
)  # fmt: skip
MISTRAL4 = like(
    DEEPSEEK_V3,
    "mistral4",
    softmax=True,
    native=True,
    config_class="Mistral4Config",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(SIGMOID_ROUTER, native_scores="raised", query_scale=True),
    defaults={
        "first_k_dense_replace": 0, "intermediate_size": 12288, "kv_lora_rank": 256,
        "max_position_embeddings": 1048576, "n_group": REQUIRED, "n_routed_experts": 128,
        "norm_topk_prob": REQUIRED, "num_attention_heads": 32, "num_experts_per_tok": 4, "num_key_value_heads": 32,
        "q_lora_rank": 1024, "qk_nope_head_dim": 64, "topk_group": REQUIRED, "vocab_size": 131072,
    },
)  # fmt: skip
GLM4_MOE_LITE = like(
    DEEPSEEK_V3,
    "glm4_moe_lite",
    where=by_type,
    config_class="Glm4MoeLiteConfig",
    aliases={"num_local_experts": "n_routed_experts"},
    defaults={
        "first_k_dense_replace": REQUIRED, "intermediate_size": 10240, "max_position_embeddings": 202752,
        "mlp_layer_types": None, "moe_intermediate_size": 1536, "n_group": REQUIRED, "n_routed_experts": 64,
        "num_attention_heads": 20, "num_experts_per_tok": 4, "num_key_value_heads": 20, "q_lora_rank": 768,
        "qk_nope_head_dim": 192, "topk_group": REQUIRED, "v_head_dim": 256, "vocab_size": 154880,
    },
)  # fmt: skip
GLM_MOE_DSA = like(
    DEEPSEEK_V32,
    "glm_moe_dsa",
    config_class="GlmMoeDsaConfig",
    defaults={
        "index_n_heads": 32, "indexer_types": None, "intermediate_size": 12288, "max_position_embeddings": 202752,
        "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
        "v_head_dim": 256, "vocab_size": 154880,
    },
)  # fmt: skip
AXK1 = like(
    DEEPSEEK_V3,
    "axk1",
    where=by_type,
    branches=_normed_experts,
    config_class="AXK1Config",
    aliases={"num_local_experts": "n_routed_experts"},
    defaults={
        "first_k_dense_replace": REQUIRED, "max_position_embeddings": 32768, "mlp_layer_types": None,
        "n_group": REQUIRED, "n_routed_experts": 192, "norm_topk_prob": REQUIRED, "num_attention_heads": 64,
        "num_key_value_heads": 64, "topk_group": REQUIRED, "vocab_size": 163840,
    },
)  # fmt: skip
AXK2 = like(
    DEEPSEEK_V32,
    "axk2",
    attention=_axk2,
    branches=_gated_norms,
    config_class="AXK2Config",
    defaults={
        "first_k_dense_replace": REQUIRED, "gated_norm_rank": 16, "index_n_heads": 16, "intermediate_size": 5120,
        "kv_lora_rank": 128, "max_position_embeddings": 131072, "mlp_bias": REQUIRED, "moe_intermediate_size": 512,
        "n_routed_experts": 128, "num_attention_heads": 32, "num_key_value_heads": 32, "q_lora_rank": 384,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "vocab_size": 163840,
    },
)  # fmt: skip
HY_V4 = like(
    DEEPSEEK_V32,
    "hy_v4",
    rotary=Rope(0),
    indexer=each_fourth_indexed,
    attention=_hy_v4,
    streams="hc_mult",
    config_class="HYV4Config",
    implementation=replace(SIGMOID_ROUTER, wide_sinks=True, kernels=(EAGER,)),
    defaults={
        "first_k_dense_replace": REQUIRED, "hc_mult": 4, "head_dim": 256, "index_n_heads": 16,
        "indexer_types": None, "intermediate_size": 6912, "max_position_embeddings": 262144, "mlp_bias": REQUIRED,
        "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 32,
        "qk_nope_head_dim": 192, "v_head_dim": 256, "vocab_size": 120832,
    },
)  # fmt: skip

ARCHITECTURES = (
    DEEPSEEK,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    KIMI_K2,
    YOUTU,
    MINICPM3,
    MISTRAL4,
    GLM4_MOE_LITE,
    GLM_MOE_DSA,
    AXK1,
    AXK2,
    HY_V4,
)

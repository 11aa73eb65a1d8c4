"""DeepSeek-V4: hyper-connections, one shared key and value of a window and of compressed runs, experts by a hash in the
first layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import hyper_connected
from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import RMS_FP32, Routing, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of
from napkin.architectures.families.mixtures_of_experts.shared_key_attention import (
    ALL,
    CHOSEN,
    CLAMPED,
    WINDOW,
    RunIndexSizes,
    SharedKeyAttention,
)
from napkin.architectures.reading import activation, balance_loss, chosen_experts, depth, listed, on, width
from napkin.architectures.record import Architecture
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.expert_kernels import new_shares
from napkin.operations.hyper_connections import CopyToStreams, ReadStreams
from napkin.operations.implementations import EAGER, SIGMOID_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import record, replace

BY_RATE = {0: WINDOW, 4: CHOSEN, 128: ALL}
"""How published files write them: by the tokens of a run."""
HASHED, LEARNED = "hash_moe", "moe"
HASHED_LAYERS = 3
"""Layers whose experts a table chooses, if a config does not say (DeepseekV4Config.default_num_hash_layers)."""
RATES = {CHOSEN: 4, ALL: 128}
ROTARY_PART = 64 / 512
SCORES = ("sqrtsoftplus", "sigmoid")
"""How the router scores, the first if a config does not say (DeepseekV4Config)."""


class V4Plan(NamedTuple):
    """What sets one layer apart from the others."""

    attention: str
    router: str


@record
class V4Reading:
    """What a config.json says of DeepSeek-V4.

    iterations  of Sinkhorn's algorithm in the hyper-connections
    attentions  by the layer type
    inner       width of an expert, routed or shared; `bias`: of the shared one
    """

    sizes: Dimensions
    plans: Sequence[V4Plan]
    streams: int
    iterations: int
    attentions: Mapping[str, SharedKeyAttention]
    inner: int
    function: str
    bias: bool
    routing: Routing
    balance: Operation | None


def read(config: Config) -> V4Reading:
    """Read a config.json."""
    config.ignore("hc_eps", "attention_bias", "num_key_value_heads", "n_shared_experts", "norm_topk_prob")
    config.ignore("topk_method", "swiglu_limit", "router_jitter_noise", "num_nextn_predict_layers", "n_group")
    config.ignore("topk_group", "first_k_dense_replace", "moe_layer_freq", "compress_rope_theta", "v_head_dim")
    config.ignore("intermediate_size")  # the experts' width under another name
    hidden, layers = width(config), depth(config)
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    attentions = _attentions(config, hidden, heads, head_dim)
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    score = config.optional_text("scoring_func", known=SCORES) or SCORES[0]
    layer_kinds, routers = _layer_types(config, layers), _routers(config, layers)
    length = config.optional_integer("max_position_embeddings")
    return V4Reading(
        dimensions_of(config, hidden, layers, heads, 1, head_dim, length),
        [V4Plan(*one) for one in zip(layer_kinds, routers, strict=True)],
        config.integer("hc_mult"),
        config.integer("hc_sinkhorn_iters"),
        attentions,
        config.integer("moe_intermediate_size"),
        activation(config, "hidden_act"),
        on(config, "mlp_bias"),
        Routing(experts, top_k, score=score, normalize=True, balanced="buffer"),
        balance_loss(config, experts, top_k),
    )


def layer(of: V4Reading, plan: V4Plan) -> Layer:
    """Return a layer: attention and experts that read and write several residual streams."""
    hidden, hashed = of.sizes.hidden, plan.router == HASHED
    network = partial(gated_mlp, width=hidden, inner=of.inner, function=of.function, bias=of.bias, gating=CLAMPED)
    feed = partial(
        moe,
        width=hidden,
        inner=of.inner,
        gating=CLAMPED,
        routing=replace(of.routing, hashed=True, balanced="") if hashed else of.routing,
        function=of.function,
        shared=partial(network, prefix="shared/"),
    )
    name = {WINDOW: "window", CHOSEN: "sparse", ALL: "compressed"}[plan.attention] + "_hashed" * hashed
    attend, streams = of.attentions[plan.attention], of.streams
    return Layer(name, hyper_connected(hidden, RMS_FP32, attend, feed, streams=streams, iterations=of.iterations))


def deepseek_v4(config: Config) -> Model:
    """Return DeepSeek-V4."""
    of = read(config)
    sizes, streams = of.sizes, of.streams
    hidden, rows = sizes.hidden, sizes.vocabulary
    merged = ReadStreams("streams_read", ("x",), hidden, streams, mixes=False, last=True)
    model = decoder_only(
        sizes,
        (*embedding(rows, hidden), CopyToStreams("streams", ("embedding",), hidden, streams)),
        runs_of(of.plans, partial(layer, of)),
        (merged, *head(hidden, rows, norm=RMS_FP32, balance=of.balance, none=sizes.headless, source=merged.name)),
    )
    return replace(model, streams=streams)


def _attentions(config: Config, hidden: int, heads: int, head_dim: int) -> dict[str, SharedKeyAttention]:
    """Read the attention of each layer type."""
    rotary, rates = _rotary(config, head_dim), _rates(config)
    ranks = config.integer("q_lora_rank"), config.integer("o_groups"), config.integer("o_lora_rank")
    config.divides("o_groups", heads * head_dim, config.integer("o_groups"), "elements of all heads")
    index = RunIndexSizes(
        config.integer("index_n_heads"), config.integer("index_head_dim"), config.integer("index_topk")
    )
    if index.size < rotary["compress"]:
        raise config.wrong("index_head_dim", f"{index.size} is less than the {rotary['compress']} elements that rotate")
    rope = Rope(rotary["main"], "interleaved", upcast=True)
    window = SharedKeyAttention(hidden, heads, head_dim, *ranks, config.integer("sliding_window"), rope)
    every = replace(window, rope=replace(rope, dim=rotary["compress"]), rate=rates[ALL])
    return {WINDOW: window, ALL: every, CHOSEN: replace(every, rate=rates[CHOSEN], index=index)}


def _rotary(config: Config, head_dim: int) -> dict[str, int]:
    """Read how many elements of a head rotate, in layers with only a window and in the others."""
    stated = config.real("partial_rotary_factor", required=False)
    size = config.optional_integer("qk_rope_head_dim")
    share = stated if stated is not None else size / head_dim if size is not None else ROTARY_PART
    blocks_of = config.mapping("rope_parameters", required=False) or {}
    found = {}
    nested = all(isinstance(blocks_of.get(which), dict) for which in ("main", "compress"))
    for which in ("main", "compress"):
        factor = blocks_of[which].get("partial_rotary_factor", 1.0) if nested else share
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 1:
            raise config.wrong("partial_rotary_factor", f"{printable(repr(factor), 60)} is not a fraction from 0 to 1")
        found[which] = -2 * (-int(head_dim * factor) // 2)  # in pairs
        if not 0 < found[which] <= head_dim:
            raise config.wrong("partial_rotary_factor", f"{found[which]} of a head's {head_dim} elements rotate")
    return found


def _rates(config: Config) -> dict[str, int]:
    """Read the tokens of a run, by layer type."""
    given = config.mapping("compress_rates", required=False)
    found = dict(RATES if given is None else given)
    for kind, field in ((CHOSEN, "compress_rate_csa"), (ALL, "compress_rate_hca")):
        own = config.optional_integer(field)
        if own is not None:
            found[kind] = own
        rate = found.get(kind)
        if isinstance(rate, bool) or not isinstance(rate, int) or not 1 <= rate <= 10**9:
            raise config.wrong("compress_rates", f"{kind} has no whole number of tokens")
    return found


def _layer_types(config: Config, layers: int) -> list[str]:
    """Read the attention of each layer: listed, or by the tokens of a run, or two of all runs and then alternating."""
    by_rate = config.items("compress_ratios", required=False)
    stated = listed(config, "layer_types", layers, (WINDOW, CHOSEN, ALL))
    if stated is not None:
        return stated
    if by_rate is None:
        return [CHOSEN if i >= 2 and i % 2 else ALL for i in range(layers)]
    if len(by_rate) < layers:
        raise config.wrong("compress_ratios", f"has {len(by_rate)} entries for {layers} layers")
    for entry in by_rate:
        if isinstance(entry, bool) or not isinstance(entry, int) or entry not in BY_RATE:
            raise config.refuse("compress_ratios", f"napkin does not know {printable(repr(entry), 60)}")
    return [BY_RATE[entry] for entry in by_rate[:layers]]


def _routers(config: Config, layers: int) -> list[str]:
    """Read how the router of each layer chooses: listed, or hashed in the first layers."""
    stated = config.optional_integer("num_hash_layers", least=0)
    given = listed(config, "mlp_layer_types", layers, (HASHED, LEARNED))
    if given is not None:
        return given
    hashed = HASHED_LAYERS if stated is None else stated
    return [HASHED if i < hashed else LEARNED for i in range(layers)]


DEEPSEEK_V4 = Architecture(
    "deepseek_v4",
    deepseek_v4,
    config_class="DeepseekV4Config",
    aliases={"intermediate_size": "moe_intermediate_size", "num_local_experts": "n_routed_experts"},
    implementation=replace(
        SIGMOID_ROUTER, rotary="each", fp32_sinks=True, shares=new_shares, kernels=(EAGER,),
        fp32_weights=(
            "/weight", "/base", "/scale", "/sinks", "norm/weight", "compressor/positions", "compressor/norm",
            "indexer/positions", "indexer/norm",
        ),
        fp16_excepts=(
            "compressor/value", "compressor/gate", "indexer/value", "indexer/gate", "indexer/head_weights",
        ),
    ),
    defaults={
        "compress_rates": None, "hc_mult": 4, "hc_sinkhorn_iters": 20, "head_dim": 512, "hidden_act": "silu",
        "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "layer_types": None,
        "max_position_embeddings": 1048576, "mlp_bias": False, "mlp_layer_types": None,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_attention_heads": 64,
        "num_experts_per_tok": 6, "o_groups": 8, "o_lora_rank": 1024, "q_lora_rank": 1024, "sliding_window": 128,
        "tie_word_embeddings": False, "vocab_size": 129280,
    },
    modules={
        "kv": "self_attn.kv_proj", "o_a": "self_attn.o_a_proj", "o": "self_attn.o_b_proj", "q": "self_attn.q_b_proj",
        "runs": "self_attn.compressor", "indexer": "self_attn.compressor.indexer",
    },
)  # fmt: skip

ARCHITECTURES = (DEEPSEEK_V4,)

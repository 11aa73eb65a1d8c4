"""DeepSeek-V4: hyper-connections, one shared key and value of a window and of compressed runs, experts by a hash in the
first layers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import hyper_connected
from napkin.architectures.attention import Rope
from napkin.architectures.blocks import RMS_FP32, RMS_NARROW, Operations, Routing, gated_mlp, moe
from napkin.architectures.common import (
    activation,
    balance_loss,
    chosen_experts,
    decoder_only,
    depth,
    dimensions_of,
    embedding,
    head,
    listed,
    on,
    runs_of,
    width,
)
from napkin.architectures.record import Architecture
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.base import COLUMN, QUERY, ROW
from napkin.operations.compression import Compressor, GroupedMatmul, RunIndexer
from napkin.operations.hyper_connections import CopyToStreams, ReadStreams
from napkin.operations.implementations import EAGER, SIGMOID_ROUTER
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.record import replace

WINDOW, CHOSEN, ALL = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
"""A window alone; beside it runs of tokens that an indexer chooses; or all runs, of more tokens each."""
BY_RATE = {0: WINDOW, 4: CHOSEN, 128: ALL}
"""How published files spell them: by the tokens of a run."""
HASHED, LEARNED = "hash_moe", "moe"
HASHED_LAYERS = 3
"""Layers whose experts a table chooses, where a config does not say (DeepseekV4Config.default_num_hash_layers)."""
RATES = {CHOSEN: 4, ALL: 128}
ROTARY_SHARE = 64 / 512
SCORES = ("sqrtsoftplus", "sigmoid")
"""How the router scores, the first where a config does not say (DeepseekV4Config)."""


class Plan(NamedTuple):
    """What sets one layer apart from the others."""

    attention: str
    router: str


def deepseek_v4(config: Config) -> Model:
    """Return DeepSeek-V4."""
    hidden, layers = width(config), depth(config)
    streams = config.integer("hc_mult")
    iterations = config.integer("hc_sinkhorn_iters")
    config.ignore("hc_eps", "attention_bias", "num_key_value_heads", "n_shared_experts", "norm_topk_prob")
    config.ignore("topk_method", "swiglu_limit", "router_jitter_noise", "num_nextn_predict_layers", "n_group")
    config.ignore("topk_group", "first_k_dense_replace", "moe_layer_freq", "compress_rope_theta", "v_head_dim")
    config.ignore("intermediate_size")  # the experts' width under another name
    heads, head_dim = config.integer("num_attention_heads"), config.integer("head_dim")
    rotary = _rotary(config, head_dim)
    rates = _rates(config)
    attend = partial(
        _attention,
        width=hidden,
        heads=heads,
        head_dim=head_dim,
        q_rank=config.integer("q_lora_rank"),
        groups=config.integer("o_groups"),
        out_rank=config.integer("o_lora_rank"),
        window=config.integer("sliding_window"),
    )
    config.divides("o_groups", heads * head_dim, config.integer("o_groups"), "numbers of all heads")
    index_heads, index_size = config.integer("index_n_heads"), config.integer("index_head_dim")
    chosen = config.integer("index_topk")
    if index_size < rotary["compress"]:
        raise config.wrong("index_head_dim", f"{index_size} is less than the {rotary['compress']} numbers that rotate")
    function, inner = activation(config, "hidden_act"), config.integer("moe_intermediate_size")
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    score = config.optional_text("scoring_func", known=SCORES) or SCORES[0]
    routing = Routing(experts, top_k, score=score, normalize=True, balanced="buffer", limited=True)
    shared = partial(
        gated_mlp,
        width=hidden,
        inner=inner,
        function=function,
        bias=on(config, "mlp_bias"),
        limited=True,
        prefix="shared/",
    )

    def make(plan: Plan) -> Layer:
        kind = plan.attention
        near = partial(attend, rope=Rope(rotary["main" if kind == WINDOW else "compress"], "interleaved", upcast=True))
        if kind != WINDOW:
            near = partial(near, rate=rates[kind])
        if kind == CHOSEN:
            near = partial(near, chosen=chosen, index_heads=index_heads, index_size=index_size)
        hashed = plan.router == HASHED
        feed = partial(
            moe,
            width=hidden,
            inner=inner,
            routing=replace(routing, hashed=hashed, balanced="" if hashed else "buffer"),
            function=function,
            shared=shared,
        )
        name = {WINDOW: "window", CHOSEN: "sparse", ALL: "compressed"}[kind] + "_hashed" * hashed
        return Layer(name, hyper_connected(hidden, RMS_FP32, near, feed, streams=streams, iterations=iterations))

    kinds = _attentions(config, layers)
    routers = _routers(config, layers)
    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, 1, head_dim, length)
    balance = balance_loss(config, experts, top_k)
    after = head(hidden, sizes.vocabulary, norm=RMS_FP32, balance=balance, none=sizes.headless)
    read = ReadStreams("streams_read", ("x",), hidden, streams, mixes=False, last=True)
    model = decoder_only(
        sizes,
        (*embedding(sizes.vocabulary, hidden), CopyToStreams("streams", ("embedding",), hidden, streams)),
        runs_of((Plan(*one) for one in zip(kinds, routers, strict=True)), make),
        (read, *(replace(op, reads=("streams_read",)) if op.name == "final_norm" else op for op in after)),
    )
    return replace(model, streams=streams)


def _attention(
    source: str,
    *,
    width: int,
    heads: int,
    head_dim: int,
    q_rank: int,
    groups: int,
    out_rank: int,
    window: int,
    rope: Rope,
    rate: int = 0,
    chosen: int | None = None,
    index_heads: int = 0,
    index_size: int = 0,
) -> Operations:
    """Queries by a low rank, one key of all heads that is their value too, the result turned back, and an output
    product of two: one for each group of heads, then one of all."""
    operations: Operations = (
        Matmul("q_a", (source,), width, q_rank),
        RMS_FP32("q_a_norm", "q_a", q_rank),
        Matmul("q", ("q_a_norm",), q_rank, heads * head_dim, False, COLUMN, role=QUERY),
        RMS_NARROW("q_norm", "q", head_dim, heads),
        rope("q_rope", "q_norm", heads, head_dim),
        Matmul("kv", (source,), width, head_dim),
        RMS_FP32("kv_norm", "kv", head_dim),
        rope("kv_rope", "kv_norm", 1, head_dim),
    )
    reads: tuple[str, ...] = ("q_rope", "kv_rope", "kv_rope")
    if rate:
        operations += (Compressor("runs", (source,), width, head_dim, rate, rope.dim, chosen is not None),)
        reads = (*reads, "runs")
    if chosen is not None:
        operations += (
            RunIndexer("indexer", (source, "q_a_norm"), width, q_rank, index_heads, index_size, rate, rope.dim),
        )
    core = AttentionCore(
        "attention",
        reads,
        heads,
        1,
        head_dim,
        head_dim,
        window=window,
        sinks=True,
        shared=True,
        compressed=rate,
        chosen=chosen,
    )
    wide = heads * head_dim
    return (
        *operations,
        core,
        rope("out_rope", "attention", heads, head_dim),
        GroupedMatmul("o_a", ("out_rope",), groups, wide // groups, out_rank),
        Matmul("o", ("o_a",), groups * out_rank, width, False, ROW),
    )


def _rotary(config: Config, head_dim: int) -> dict[str, int]:
    """Numbers of a head that rotate, in layers with a window alone and in the others."""
    stated = config.real("partial_rotary_factor", required=False)
    size = config.optional_integer("qk_rope_head_dim")
    share = stated if stated is not None else size / head_dim if size is not None else ROTARY_SHARE
    blocks_of = config.mapping("rope_parameters", required=False) or {}
    found = {}
    nested = all(isinstance(blocks_of.get(which), dict) for which in ("main", "compress"))
    for which in ("main", "compress"):
        factor = blocks_of[which].get("partial_rotary_factor", 1.0) if nested else share
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 1:
            raise config.wrong("partial_rotary_factor", f"{printable(repr(factor), 60)} is not a share from 0 to 1")
        found[which] = -2 * (-int(head_dim * factor) // 2)  # in pairs
        if not 0 < found[which] <= head_dim:
            raise config.wrong("partial_rotary_factor", f"{found[which]} of a head's {head_dim} numbers rotate")
    return found


def _rates(config: Config) -> dict[str, int]:
    """Tokens of a run, by the kind of attention."""
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


def _attentions(config: Config, layers: int) -> list[str]:
    """The attention of each layer: listed, or by the tokens of a run, or two of all runs and then alternating."""
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
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(SIGMOID_ROUTER, rotary="each", wide_sinks=True, new_shares=True, kernels=(EAGER,)),
    defaults={
        "compress_rates": None, "hc_mult": 4, "hc_sinkhorn_iters": 20, "head_dim": 512, "hidden_act": "silu",
        "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "layer_types": None,
        "max_position_embeddings": 1048576, "mlp_bias": False, "mlp_layer_types": None,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_attention_heads": 64,
        "num_experts_per_tok": 6, "o_groups": 8, "o_lora_rank": 1024, "q_lora_rank": 1024, "sliding_window": 128,
        "tie_word_embeddings": False, "vocab_size": 129280,
    },
)  # fmt: skip

ARCHITECTURES = (DEEPSEEK_V4,)

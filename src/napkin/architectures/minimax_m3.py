"""MiniMax-M3's language model: attention to blocks of keys that an indexer chooses for each group of heads, and gated
networks with a clamped swiglu."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention, Heads, QkNorm, Rope, Scores
from napkin.architectures.blocks import RMS_OFFSET, Block, Operations, Routing, moe
from napkin.architectures.common import balance_loss, checked, chosen_experts, depth, kv_heads_of, runs_of, width
from napkin.architectures.dimensions import decoder_of, dimensions_of
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.compression import BlockIndexer
from napkin.operations.implementations import PARTIAL_ROTARY
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Clamp, Multiply, Scale
from napkin.operations.roles import COLUMN, ROW
from napkin.operations.views import Slice
from napkin.record import replace

FULL, BLOCKS = "full_attention", "minimax_m3_sparse"
SPARSE, DENSE = "sparse", "dense"
LEGACY = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
}
"""Fields as the published file has them, inside `sparse_attention_config`."""


class Plan(NamedTuple):
    """What sets one layer apart from the others."""

    attention: str
    feed: str


def minimax_m3(config: Config) -> Model:
    """Return MiniMax-M3's language model."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    kv_heads = kv_heads_of(config, heads)
    head_dim = config.integer("head_dim")
    config.ignore("hidden_act", "swiglu_alpha", "swiglu_limit", "router_jitter_noise", "index_local_blocks")
    legacy = config.mapping("sparse_attention_config", required=False) or {}
    index = {name: _size(config, name, legacy) for name in LEGACY}
    config.divides("num_attention_heads", heads, index["index_n_heads"], "attention heads")
    config.ignore("rotary_dim")  # rope_parameters say it
    parameters = config.mapping("rope_parameters", required=False) or {}
    part = parameters.get("partial_rotary_factor", config.real("partial_rotary_factor", required=False))
    if part is None:
        part = 1.0
    if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 < part <= 1:
        raise config.wrong("partial_rotary_factor", f"{printable(repr(part), 60)} is not a fraction from 0 to 1")
    rotary = -2 * (-int(head_dim * part) // 2)
    attend = Attention(Heads(hidden, heads, kv_heads, head_dim), rope=Rope(rotary), norm=QkNorm(RMS_OFFSET))

    def chosen(core: AttentionCore) -> Operations:
        indexer = BlockIndexer(
            "indexer",
            ("attention_norm",),
            hidden,
            index["index_n_heads"],
            index["index_head_dim"],
            index["index_block_size"],
            min(rotary, index["index_head_dim"]),
        )
        return (indexer, core)

    window = index["index_topk_blocks"] * index["index_block_size"]
    experts, top_k = chosen_experts(config, "num_local_experts", "num_experts_per_tok")
    routing = Routing(experts, top_k, score="sigmoid", normalize=True, balanced="buffer")
    attentions, feeds = _attentions(config, layers, legacy), _feeds(config, layers)
    networks: dict[str, Block] = {}
    if SPARSE in feeds:
        networks[SPARSE] = partial(
            moe,
            width=hidden,
            inner=config.integer("intermediate_size"),
            routing=routing,
            function="swiglu_oai",
            shared=partial(_swiglu, width=hidden, inner=config.integer("shared_intermediate_size"), prefix="shared/"),
            scaled=True,
        )
    else:
        config.ignore("intermediate_size", "shared_intermediate_size")
    if DENSE in feeds:
        networks[DENSE] = partial(_swiglu, width=hidden, inner=config.integer("dense_intermediate_size"))
    else:
        config.ignore("dense_intermediate_size")

    def make(plan: Plan) -> Layer:
        near = attend
        if plan.attention == BLOCKS:
            near = replace(attend, scores=Scores(window=window, anywhere=True, own_mask=True), core=chosen)
        name = ("moe" if plan.feed == SPARSE else "dense") + "_blocks" * (plan.attention == BLOCKS)
        return Layer(name, pre_norm(hidden, RMS_OFFSET, near, networks[plan.feed]))

    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, length)
    balance = balance_loss(config, experts, top_k) if SPARSE in feeds else None
    runs = runs_of((Plan(*one) for one in zip(attentions, feeds, strict=True)), make)
    return decoder_of(sizes, runs, RMS_OFFSET, balance=balance)


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


def _size(config: Config, field: str, legacy: object) -> int:
    """Read a size of the indexer, under the class's name or the published one."""
    stated = legacy.get(LEGACY[field]) if isinstance(legacy, dict) else None
    if stated is None:
        return config.integer(field)
    config.ignore(field)
    if isinstance(stated, bool) or not isinstance(stated, int) or not 1 <= stated <= 10**9:
        raise config.wrong("sparse_attention_config", f"{LEGACY[field]} is not a whole number from 1")
    return stated


def _attentions(config: Config, layers: int, legacy: object) -> Sequence[str]:
    frequency = legacy.get("sparse_attention_freq") if isinstance(legacy, dict) else None
    given = config.items("layer_types", required=False)
    if given is None and isinstance(frequency, list):
        given = [BLOCKS if on else FULL for on in frequency]
    return [FULL] * layers if given is None else checked(config, "layer_types", given, layers, (FULL, BLOCKS))


def _feeds(config: Config, layers: int) -> Sequence[str]:
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

"""Decoders whose attention has maps of its own: differential attention, and a mask that the values make."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isqrt

from napkin.architectures import common
from napkin.architectures.blocks import RMS, Block, NormStyle, Operations
from napkin.architectures.decoder import decoder
from napkin.architectures.decoders import LLAMA
from napkin.architectures.traits import Traits, everywhere
from napkin.inputs.model import Config
from napkin.operations.attention import AttentionCore
from napkin.operations.base import COLUMN
from napkin.operations.linear import Matmul
from napkin.operations.maps import Difference, DynamicMask, HalfHeads
from napkin.operations.model import Model
from napkin.operations.pointwise import Add, Scale
from napkin.operations.retrieval import RetrievedExperts
from napkin.record import replace

RMS_KERNEL = NormStyle(arithmetic="fused", weight=False)


def diffllama(config: Config) -> Model:
    """DiffLlama: Llama with the difference of two attention maps, each over one half of the values' heads."""
    heads = config.integer("num_attention_heads")
    if common.kv_heads_of(config, heads) % 2:
        raise config.wrong("num_key_value_heads", "is not even: one half of the values is for each of two maps")
    traits = Traits(bias="attention_bias", out_bias="attention_bias", ignored=("lambda_std_dev",))
    return decoder(config, traits, vary=lambda usual, plan: replace(usual, core=differential))


def differential(core: AttentionCore) -> Operations:
    """The usual map with either half of the values' heads, their difference normalised in pairs of heads."""
    query, key, value = core.reads
    halves = tuple(f"{core.name}_{half}_values" for half in ("first", "second"))
    width, size = core.heads * core.v_dim, 2 * core.v_dim
    made = ("attention", "attention_second")
    return (
        *(HalfHeads(half, (value,), core.kv_heads * core.v_dim) for half in halves),
        *(replace(core, name=name, reads=(query, key, half)) for name, half in zip(made, halves, strict=True)),
        Difference("difference", made, core.heads, core.v_dim),
        RMS_KERNEL("difference_norm", "difference", size, core.heads // 2),
        Scale("difference_scaled", ("difference_norm",), width),
    )


def doge(config: Config) -> Model:
    """Doge: a mask of the keys that the values make, and residual streams weighed by learnt vectors; experts that are
    looked up beside the dense network where is_moe says so."""
    beside = None
    if config.flag("is_moe"):
        beside = retrieval(config)
    else:
        config.ignore("num_experts", "num_experts_per_tok", "norm_topk_prob")
    traits = replace(LLAMA, own_head_dim=True, qk_norm=RMS, windows=everywhere, dropout=(True, True), weighted=True)
    masked = partial(dynamic, bias=config.flag("attention_bias"), keep=config.integer("keep_window_size"))
    return decoder(config, traits, vary=lambda usual, plan: replace(usual, core=masked), beside=beside)


def retrieval(config: Config) -> Callable[[Block], Block]:
    """Experts that product keys choose, beside the dense network, which is shared."""
    config.must_be("output_router_logits", False)
    width, experts = common.width(config), config.integer("num_experts")
    keys, chosen = isqrt(experts), config.integer("num_experts_per_tok")
    if chosen > keys * keys:
        raise config.wrong("num_experts_per_tok", f"chooses {chosen} of {keys * keys} experts that have keys")
    function = common.activation(config, "hidden_act")
    normalise = config.flag("norm_topk_prob", otherwise=False)

    def both(dense: Block) -> Block:
        def feed(source: str) -> Operations:
            always = dense(source)
            return (
                Matmul("router", (source,), width, 2 * keys),
                RetrievedExperts("experts", (source, "router"), width, experts, keys, chosen, function, normalise),
                *always,
                Add("moe", (always[-1].name, "experts"), width),
            )

        return feed

    return both


def dynamic(core: AttentionCore, *, bias: bool, keep: int) -> Operations:
    """The usual map, and a mask of the keys, made of the values by a product."""
    return (
        Matmul("mask_logits", (core.reads[2],), core.kv_heads * core.v_dim, core.kv_heads, bias, COLUMN),
        DynamicMask("mask", ("mask_logits",), core.kv_heads, keep, core.heads // core.kv_heads),
        replace(core, reads=(*core.reads, "mask"), position="dynamic"),
    )

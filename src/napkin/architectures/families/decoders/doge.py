"""Doge: a mask of the keys that the values make, residual streams weighted by learned vectors, and experts that are
looked up in addition to the dense network where is_moe says so."""

from __future__ import annotations

from functools import partial
from math import isqrt

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.blocks import RMS, Operations
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, always
from napkin.architectures.layer_plans import EVERYWHERE
from napkin.architectures.mixture import Feed
from napkin.architectures.reading import activation, width
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.attention.core import AttentionCore
from napkin.operations.implementations import EAGER, EFFICIENT, FLASH, HF
from napkin.operations.linear import Matmul
from napkin.operations.maps import DynamicMask
from napkin.operations.pointwise import Add
from napkin.operations.retrieval import RetrievedExperts
from napkin.operations.roles import COLUMN
from napkin.record import replace


def _attention(config: Config, usual: Attention) -> Attention:
    """Return the usual attention with a mask of the keys."""
    mask = partial(dynamic, bias=config.flag("attention_bias"), keep=config.integer("keep_window_size"))
    return replace(usual, core=mask)


def dynamic(core: AttentionCore, *, bias: bool, keep: int) -> Operations:
    """Return the usual map, and a mask of the keys, made from the values by a projection."""
    return (
        Matmul("mask_logits", (core.reads[2],), core.kv_heads * core.v_dim, core.kv_heads, bias, COLUMN),
        DynamicMask("mask", ("mask_logits",), core.kv_heads, keep, core.heads // core.kv_heads),
        replace(core, reads=(*core.reads, "mask"), position="dynamic"),
    )


def _retrieval(config: Config, dense: Feed) -> Feed:
    """Add experts that product keys choose, in addition to the dense network, which is shared."""
    if not config.flag("is_moe"):
        config.ignore("num_experts", "num_experts_per_tok", "norm_topk_prob")
        return dense
    config.must_be("output_router_logits", False)
    wide, experts = width(config), config.integer("num_experts")
    keys, chosen = isqrt(experts), config.integer("num_experts_per_tok")
    if chosen > keys * keys:
        raise config.wrong("num_experts_per_tok", f"chooses {chosen} of {keys * keys} experts that have keys")
    function = activation(config, "hidden_act")
    normalize = config.flag("norm_topk_prob", otherwise=False)

    def feed(source: str) -> Operations:
        always = dense(source)
        return (
            Matmul("router", (source,), wide, 2 * keys),
            RetrievedExperts("experts", (source, "router"), wide, experts, keys, chosen, function, normalize),
            *always,
            Add("moe", (always[-1].name, "experts"), wide),
        )

    return feed


DOGE = Architecture(
    "doge",
    Decoder(
        arrangement=always(partial(pre_norm, dropout=(True, True), weighted=True)),
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=NormedHeads(RMS),
        windows=EVERYWHERE,
        attention=_attention,
        mlp_bias="mlp_bias",
        feed_forward=_retrieval,
    ),
    config_class="DogeConfig",
    implementation=replace(HF, kernel_mask="always", kernels=(FLASH, EFFICIENT, EAGER), norms_inline=True),
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 2048, "is_moe": False,
        "keep_window_size": 2048, "max_position_embeddings": 2048, "mlp_bias": False, "num_attention_heads": 8,
        "num_experts": 16384, "num_experts_per_tok": 64, "num_key_value_heads": None, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 32768,
    },
    modules={
        "mask_logits": "self_attn.dt_proj", "router": "mlp.router_gate", "experts": "mlp",
    },
)  # fmt: skip

ARCHITECTURES = (DOGE,)

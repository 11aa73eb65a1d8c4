"""Qwen3-Next and Qwen3.5: gated delta-rule layers next to attention with an output gate.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_OFFSET, Block, Routing, gated_mlp
from napkin.architectures.delta_rule import (
    FUSED_DELTA,
    SPLIT_DELTA,
    Projections,
    gated_delta,
    prediction_layers,
    shared_expert_mixture,
    stated_sizes,
)
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.reading import FULL, activation, balance_loss, indices, kv_heads_of, on, rotary_dim
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.architectures.recurrent_parts import (
    LINEAR,
    Hybrid,
    heads_of,
    hybrid,
    kinds,
    sizes_of,
)
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.record import replace


def qwen3_next(config: Config, *, feed_forward: str = "sparse_steps", fused: bool = True) -> Model:
    """Return Qwen3-Next or Qwen3.5: three gated delta layers to one of attention with an output gate and normalized
    queries and keys; gated MLPs or mixtures with one gated shared expert.

    feed_forward  sparse_steps: mixtures every decoder_sparse_step-th layer · all: in every layer · none
    fused         two input projections for the delta rule, or four
    """
    return hybrid(_read(config, feed_forward, FUSED_DELTA if fused else SPLIT_DELTA))


def _read(config: Config, feed_forward: str, projections: Projections) -> Hybrid:
    heads = config.integer("num_attention_heads")
    sizes = sizes_of(config, heads, kv_heads_of(config, heads), config.integer("head_dim"))
    mixers = _mixers(config, sizes, projections)
    sparse = _sparse_layers(config, sizes.layers, feed_forward)
    routing = _routing(config) if any(sparse) else None
    feeds: dict[str, Block] = {}
    if routing is not None:
        feeds["moe"] = shared_expert_mixture(config, routing)
    if not all(sparse):
        inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
        feeds["mlp"] = partial(gated_mlp, width=sizes.hidden, inner=inner, function=function)
    config.ignore(
        "intermediate_size", "moe_intermediate_size", "num_experts_per_tok", "shared_expert_intermediate_size"
    )
    kinds = _kinds(config, sizes.layers)
    predicted = (("attention", "moe" if routing is not None else "mlp"),) * prediction_layers(config)
    layers = tuple(
        ("attention" if kind == FULL else "delta", "moe" if routed else "mlp")
        for kind, routed in zip(kinds, sparse, strict=True)
    )
    balance = balance_loss(config, routing.experts, routing.top_k) if routing is not None else None
    return Hybrid(sizes, layers, mixers, feeds, RMS_OFFSET, balance=balance, predictions=predicted)


def _mixers(config: Config, sizes: Dimensions, projections: Projections) -> dict[str, Block]:
    config.must_be("attn_output_gate", True)
    bias = on(config, "attention_bias")
    attention = Attention(
        heads_of(sizes),
        projections=QkvProjections(bias=bias, out_bias=bias, gated=True),
        norm=QkNorm(RMS_OFFSET),
        rope=Rope(rotary_dim(config, sizes.head_dim, 0.25)),
    )
    return {
        "attention": attention,
        "delta": gated_delta(config, projections, stated_sizes(config)),
    }


def _routing(config: Config) -> Routing:
    experts = config.integer("num_experts")
    top_k = min(config.integer("num_experts_per_tok"), experts)
    return Routing(experts, top_k, normalize=config.flag("norm_topk_prob", otherwise=True))


def _kinds(config: Config, layers: int) -> Sequence[str]:
    """Read what mixes in each layer."""

    def by_interval() -> Sequence[str]:
        interval = config.integer("full_attention_interval")
        return [LINEAR if (i + 1) % interval else FULL for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), by_interval)
    config.ignore("full_attention_interval")
    return listed


qwen3_5 = partial(qwen3_next, feed_forward="none", fused=False)
qwen3_5_moe = partial(qwen3_next, feed_forward="all", fused=False)


def _sparse_layers(config: Config, layers: int, feed_forward: str) -> list[bool]:
    if feed_forward != "sparse_steps":
        config.must_be("mlp_only_layers", [])
        return [feed_forward == "all"] * layers
    experts, step = config.integer("num_experts", least=0), config.integer("decoder_sparse_step")
    dense = indices(config, "mlp_only_layers", layers)
    return [bool(experts) and i not in dense and (i + 1) % step == 0 for i in range(layers)]


OF_MINICPM = ("downsample_mode", "drop_vision_last_layer", "insert_layer_id", "merge_kernel_size", "merger_times")
"""Fields of where MiniCPM-V merges patches."""
QWEN3_5_TEXT = Architecture(
    "qwen3_5_text",
    qwen3_5,
    config_class="Qwen3_5TextConfig",
    defaults={
        "attention_bias": False, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
        "intermediate_size": 12288, "layer_types": None, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "max_position_embeddings": 32768, "num_attention_heads": 16, "num_key_value_heads": 4,
        "tie_word_embeddings": False, "vocab_size": 248320,
    },
    implementation=replace(HF, positions="each"),
    wrappers=(
        Wrapper("minicpmv4_6", ignored=OF_MINICPM),
        Wrapper("minicpmv4_7", ignored=OF_MINICPM),
        Wrapper("minicpm_ocr", ignored=OF_MINICPM),
        Wrapper("qwen3_5", "Qwen3_5Config"),
    ),
    modules={
        "mixer_in_proj_qkv": "linear_attn.in_proj_qkv", "mixer_in_proj_z": "linear_attn.in_proj_z",
        "mixer_in_proj_b": "linear_attn.in_proj_b", "mixer_in_proj_a": "linear_attn.in_proj_a",
        "mixer_out_proj": "linear_attn.out_proj",
    },
)  # fmt: skip
QWEN3_5_MOE_TEXT = like(
    QWEN3_5_TEXT,
    "qwen3_5_moe_text",
    build=qwen3_5_moe,
    config_class="Qwen3_5MoeTextConfig",
    defaults={
        "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8, "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 512, "intermediate_size": REQUIRED,
    },
    wrappers=(
        Wrapper("qwen3_5_moe", "Qwen3_5MoeConfig"),
    ),
    modules={
        "shared/gate": "mlp.shared_expert.gate_proj", "shared/up": "mlp.shared_expert.up_proj",
        "shared/down": "mlp.shared_expert.down_proj",
    },
)  # fmt: skip
QWEN3_NEXT = like(
    QWEN3_5_MOE_TEXT,
    "qwen3_next",
    build=qwen3_next,
    config_class="Qwen3NextConfig",
    defaults={
        "decoder_sparse_step": 1, "intermediate_size": 5632, "mlp_only_layers": None, "num_experts": 512,
        "num_experts_per_tok": 10, "vocab_size": 151936,
    },
    implementation=HF,
    modules={
        "mixer_in_proj_qkvz": "linear_attn.in_proj_qkvz", "mixer_in_proj_ba": "linear_attn.in_proj_ba",
    },
)  # fmt: skip

ARCHITECTURES = (QWEN3_5_TEXT, QWEN3_5_MOE_TEXT, QWEN3_NEXT)

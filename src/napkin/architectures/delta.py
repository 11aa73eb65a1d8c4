"""Networks of delta-rule layers next to attention: config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import output_norm, pre_norm
from napkin.architectures.attention import Attention, Heads, QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_FP32, RMS_OFFSET, Block, Routing, behind_gate, gated_mlp, moe
from napkin.architectures.common import (
    FULL,
    activation,
    depth,
    head_size,
    indices,
    kv_heads_of,
    on,
    rotary_dim,
    runs_of,
    width,
)
from napkin.architectures.mixing import LINEAR, kinds, network, positive
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.architectures.recurrent_blocks import gated_delta
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROTARY, HF
from napkin.operations.model import Layer, Model
from napkin.record import replace

Projections = tuple[tuple[str, tuple[str, ...]], ...]

FUSED_DELTA: Projections = (("in_proj_qkvz", ("q", "k", "v", "z")), ("in_proj_ba", ("b", "a")))
SPLIT_DELTA: Projections = (
    ("in_proj_qkv", ("q", "k", "v")),
    ("in_proj_z", ("z",)),
    ("in_proj_b", ("b",)),
    ("in_proj_a", ("a",)),
)
SINGLE_DELTA: Projections = tuple((f"{name}_proj", (part,)) for name, part in zip("qkvgba", "qkvzba", strict=True))


def _delta(
    config: Config, hidden: int, projections: Projections, sizes: tuple[int, int, int, int], *, doubled: bool = False
) -> Block:
    key_heads, value_heads, key_dim, value_dim = sizes
    if value_heads % key_heads:
        raise config.wrong("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    return partial(
        gated_delta,
        width=hidden,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=config.integer("linear_conv_kernel_dim"),
        projections=projections,
        doubled=doubled,
        function=activation(config, "hidden_act"),
    )


def qwen3_next(config: Config, *, feed_forward: str = "sparse_steps", fused: bool = True) -> Model:
    """Qwen3-Next and Qwen3.5: three gated delta layers to one of attention with an output gate and normalized queries
    and keys; gated MLPs or mixtures with one gated shared expert.

    feed_forward  sparse_steps: mixtures every decoder_sparse_step-th layer · all: in every layer · none
    fused         two input projections for the delta rule, or four
    """
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = config.integer("head_dim")
    kv_heads = kv_heads_of(config, heads)
    function = activation(config, "hidden_act")
    config.must_be("attn_output_gate", True)
    bias = on(config, "attention_bias")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim),
        projections=QkvProjections(bias=bias, out_bias=bias, gated=True),
        norm=QkNorm(RMS_OFFSET),
        rope=Rope(rotary_dim(config, head_dim, 0.25)),
    )
    sizes = (
        config.integer("linear_num_key_heads"),
        config.integer("linear_num_value_heads"),
        config.integer("linear_key_head_dim"),
        config.integer("linear_value_head_dim"),
    )
    mix = _delta(config, hidden, FUSED_DELTA if fused else SPLIT_DELTA, sizes)
    sparse = _sparse_layers(config, layers, feed_forward)
    feeds: dict[bool, Block] = {}
    routed = (0, 0)
    if any(sparse):
        experts = config.integer("num_experts")
        routed = (experts, min(config.integer("num_experts_per_tok"), experts))
        feeds[True] = partial(
            moe,
            width=hidden,
            inner=config.integer("moe_intermediate_size"),
            routing=Routing(*routed, normalize=config.flag("norm_topk_prob", otherwise=True)),
            function=function,
            shared=behind_gate(
                partial(
                    gated_mlp,
                    width=hidden,
                    inner=config.integer("shared_expert_intermediate_size"),
                    function=function,
                    prefix="shared/",
                ),
                hidden,
            ),
        )
    if not all(sparse):
        feeds[False] = partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    config.ignore(
        "intermediate_size",
        "moe_intermediate_size",
        "num_experts_per_tok",
        "shared_expert_intermediate_size",
    )

    def laid_out() -> Sequence[str]:
        interval = config.integer("full_attention_interval")
        return [LINEAR if (i + 1) % interval else FULL for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), laid_out)
    config.ignore("full_attention_interval")
    for field in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if config.optional_integer(field, least=0):
            config.notes.append("the multi-token-prediction layers are left out")
    config.ignore("mtp_use_dedicated_embeddings")

    def layer(key: tuple[str, bool]) -> Layer:
        kind, routed = key
        name = f"{'attention' if kind == FULL else 'delta'}_{'moe' if routed else 'mlp'}"
        return Layer(name, pre_norm(hidden, RMS_OFFSET, attend if kind == FULL else mix, feeds[routed]))

    return network(
        config,
        runs_of(list(zip(listed, sparse, strict=True)), layer),
        hidden=hidden,
        norm=RMS_OFFSET,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        routed=routed,
    )


qwen3_5 = partial(qwen3_next, feed_forward="none", fused=False)
qwen3_5_moe = partial(qwen3_next, feed_forward="all", fused=False)


def _sparse_layers(config: Config, layers: int, feed_forward: str) -> list[bool]:
    if feed_forward != "sparse_steps":
        config.must_be("mlp_only_layers", [])
        return [feed_forward == "all"] * layers
    experts, step = config.integer("num_experts", least=0), config.integer("decoder_sparse_step")
    dense = indices(config, "mlp_only_layers", layers)
    return [bool(experts) and i not in dense and (i + 1) % step == 0 for i in range(layers)]


def olmo_hybrid(config: Config) -> Model:
    """OLMo Hybrid: gated delta layers with norms before their blocks, attention layers with norms after them."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    function = activation(config, "hidden_act")
    bias = on(config, "attention_bias")
    stated = config.raw("rope_parameters", required=False)
    rotates = not isinstance(stated, dict) or stated.get("rope_theta", 0) is not None or config.has("rope_theta")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim),
        projections=QkvProjections(bias=bias, out_bias=bias),
        norm=QkNorm(RMS_FP32, over="all"),
        rope=Rope(head_dim) if rotates else None,
    )
    key_heads = config.optional_integer("linear_num_key_heads") or heads
    value_heads = config.optional_integer("linear_num_value_heads") or heads
    key_dim = config.optional_integer("linear_key_head_dim")
    if key_dim is None:
        key_dim = positive(config, "linear_num_key_heads", int(0.75 * hidden / key_heads), "the key size")
    value_dim = config.optional_integer("linear_value_head_dim") or 2 * key_dim
    doubled = config.flag("linear_allow_neg_eigval", otherwise=True)
    mix = _delta(config, hidden, SINGLE_DELTA, (key_heads, value_heads, key_dim, value_dim), doubled=doubled)
    feed = partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    config.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max")
    config.ignore("linear_dt_init_floor")

    def laid_out() -> Sequence[str]:
        listed = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
        return listed if FULL in listed else [*listed[:-1], FULL]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), laid_out)
    runs = runs_of(
        listed,
        lambda kind: (
            Layer("attention", output_norm(hidden, RMS_FP32, attend, feed))
            if kind == FULL
            else Layer("delta", pre_norm(hidden, RMS_FP32, mix, feed))
        ),
    )
    return network(
        config,
        runs,
        hidden=hidden,
        norm=RMS_FP32,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )


# --- records ---------------------------------------------------------------------------------------------------------

OLMO_HYBRID = Architecture(
    "olmo_hybrid",
    olmo_hybrid,
    config_class="OlmoHybridConfig",
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "layer_types": None,
        "linear_a_log_max": 16.0, "linear_a_log_min": 0.0, "linear_allow_neg_eigval": True,
        "linear_conv_kernel_dim": 4, "linear_dt_init_floor": 0.0001, "linear_dt_max": 0.1, "linear_dt_min": 0.001,
        "linear_key_head_dim": None, "linear_num_key_heads": None, "linear_num_value_heads": None,
        "linear_value_head_dim": None, "max_position_embeddings": 65536, "num_attention_heads": 30,
        "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 100352,
    },
    implementation=replace(FP32_ROTARY, norms_inline=True),
)  # fmt: skip
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
        Wrapper("minicpmv4_6"),
        Wrapper("qwen3_5", "Qwen3_5Config"),
    ),
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
)  # fmt: skip

ARCHITECTURES = (OLMO_HYBRID, QWEN3_5_TEXT, QWEN3_5_MOE_TEXT, QWEN3_NEXT)

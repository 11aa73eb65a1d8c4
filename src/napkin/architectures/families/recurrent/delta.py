"""Networks of delta-rule layers next to attention: config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import output_norm, pre_norm
from napkin.architectures.assembly import runs_of
from napkin.architectures.attention import Attention, QkNorm, QkvProjections, Rope
from napkin.architectures.blocks import RMS_FP32, RMS_OFFSET, Block, Routing, behind_gate, gated_mlp, moe
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.mixing import (
    LINEAR,
    Hybrid,
    grouped_sizes,
    heads_of,
    hybrid,
    kinds,
    network,
    positive,
    sizes_of,
)
from napkin.architectures.reading import FULL, activation, balance_loss, indices, kv_heads_of, on, rotary_dim, width
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.architectures.recurrent_blocks import GatedDelta
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROTARY, HF
from napkin.operations.model import Layer, Model
from napkin.record import record, replace

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
    config: Config, projections: Projections, sizes: tuple[int, int, int, int], *, doubled: bool = False
) -> Block:
    """Read a gated delta rule; `sizes`: key heads, value heads, elements of each."""
    key_heads, value_heads, key_dim, value_dim = sizes
    if value_heads % key_heads:
        raise config.wrong("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    return GatedDelta(
        width=width(config),
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=config.integer("linear_conv_kernel_dim"),
        projections=projections,
        doubled=doubled,
        function=activation(config, "hidden_act"),
    )


# --- Qwen ------------------------------------------------------------------------------------------------------------


def qwen3_next(config: Config, *, feed_forward: str = "sparse_steps", fused: bool = True) -> Model:
    """Return Qwen3-Next or Qwen3.5: three gated delta layers to one of attention with an output gate and normalized
    queries and keys; gated MLPs or mixtures with one gated shared expert.

    feed_forward  sparse_steps: mixtures every decoder_sparse_step-th layer · all: in every layer · none
    fused         two input projections for the delta rule, or four
    """
    return hybrid(_read_qwen(config, feed_forward, FUSED_DELTA if fused else SPLIT_DELTA))


def _read_qwen(config: Config, feed_forward: str, projections: Projections) -> Hybrid:
    heads = config.integer("num_attention_heads")
    sizes = sizes_of(config, heads, kv_heads_of(config, heads), config.integer("head_dim"))
    mixers = _qwen_mixers(config, sizes, projections)
    sparse = _sparse_layers(config, sizes.layers, feed_forward)
    routing = _qwen_routing(config) if any(sparse) else None
    feeds: dict[str, Block] = {}
    if routing is not None:
        feeds["moe"] = _qwen_mixture(config, routing)
    if not all(sparse):
        inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
        feeds["mlp"] = partial(gated_mlp, width=sizes.hidden, inner=inner, function=function)
    config.ignore(
        "intermediate_size", "moe_intermediate_size", "num_experts_per_tok", "shared_expert_intermediate_size"
    )
    kinds = _qwen_kinds(config, sizes.layers)
    _leave_out_predictions(config)
    layers = tuple(
        ("attention" if kind == FULL else "delta", "moe" if routed else "mlp")
        for kind, routed in zip(kinds, sparse, strict=True)
    )
    balance = balance_loss(config, routing.experts, routing.top_k) if routing is not None else None
    return Hybrid(sizes, layers, mixers, feeds, RMS_OFFSET, balance=balance)


def _qwen_mixers(config: Config, sizes: Dimensions, projections: Projections) -> dict[str, Block]:
    config.must_be("attn_output_gate", True)
    bias = on(config, "attention_bias")
    attention = Attention(
        heads_of(sizes),
        projections=QkvProjections(bias=bias, out_bias=bias, gated=True),
        norm=QkNorm(RMS_OFFSET),
        rope=Rope(rotary_dim(config, sizes.head_dim, 0.25)),
    )
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    key_heads, value_heads, key_dim, value_dim = (config.integer(f"linear_{name}") for name in names)
    return {"attention": attention, "delta": _delta(config, projections, (key_heads, value_heads, key_dim, value_dim))}


def _qwen_routing(config: Config) -> Routing:
    experts = config.integer("num_experts")
    top_k = min(config.integer("num_experts_per_tok"), experts)
    return Routing(experts, top_k, normalize=config.flag("norm_topk_prob", otherwise=True))


def _qwen_mixture(config: Config, routing: Routing) -> Block:
    hidden, function = width(config), activation(config, "hidden_act")
    inner = config.integer("shared_expert_intermediate_size")
    shared = partial(gated_mlp, width=hidden, inner=inner, function=function, prefix="shared/")
    return partial(
        moe,
        width=hidden,
        inner=config.integer("moe_intermediate_size"),
        routing=routing,
        function=function,
        shared=behind_gate(shared, hidden),
        shared_first=True,
    )


def _qwen_kinds(config: Config, layers: int) -> Sequence[str]:
    """Read what mixes in each layer."""

    def by_interval() -> Sequence[str]:
        interval = config.integer("full_attention_interval")
        return [LINEAR if (i + 1) % interval else FULL for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), by_interval)
    config.ignore("full_attention_interval")
    return listed


def _leave_out_predictions(config: Config) -> None:
    """Note the multi-token prediction layers that are not counted."""
    for field in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if config.optional_integer(field, least=0):
            config.notes.append("the multi-token-prediction layers are left out")
    config.ignore("mtp_use_dedicated_embeddings")


qwen3_5 = partial(qwen3_next, feed_forward="none", fused=False)
qwen3_5_moe = partial(qwen3_next, feed_forward="all", fused=False)


def _sparse_layers(config: Config, layers: int, feed_forward: str) -> list[bool]:
    if feed_forward != "sparse_steps":
        config.must_be("mlp_only_layers", [])
        return [feed_forward == "all"] * layers
    experts, step = config.integer("num_experts", least=0), config.integer("decoder_sparse_step")
    dense = indices(config, "mlp_only_layers", layers)
    return [bool(experts) and i not in dense and (i + 1) % step == 0 for i in range(layers)]


# --- OLMo Hybrid -----------------------------------------------------------------------------------------------------


@record
class _OlmoHybrid:
    """OLMo Hybrid, as config.json describes it."""

    sizes: Dimensions
    kinds: Sequence[str]
    attention: Block
    delta: Block
    feed: Block


def olmo_hybrid(config: Config) -> Model:
    """Return OLMo Hybrid: gated delta layers with norms before their blocks, attention layers with norms after them."""
    read = _read_olmo(config)
    hidden = read.sizes.hidden

    def layer(kind: str) -> Layer:
        if kind == FULL:
            return Layer("attention", output_norm(hidden, RMS_FP32, read.attention, read.feed))
        return Layer("delta", pre_norm(hidden, RMS_FP32, read.delta, read.feed))

    return network(read.sizes, runs_of(read.kinds, layer), norm=RMS_FP32)


def _read_olmo(config: Config) -> _OlmoHybrid:
    sizes = grouped_sizes(config)
    bias = on(config, "attention_bias")
    stated = config.raw("rope_parameters", required=False)
    rotates = not isinstance(stated, dict) or stated.get("rope_theta", 0) is not None or config.has("rope_theta")
    attention = Attention(
        heads_of(sizes),
        projections=QkvProjections(bias=bias, out_bias=bias),
        norm=QkNorm(RMS_FP32, over="all"),
        rope=Rope(sizes.head_dim) if rotates else None,
    )
    inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
    feed = partial(gated_mlp, width=sizes.hidden, inner=inner, function=function)
    return _OlmoHybrid(sizes, _olmo_kinds(config, sizes.layers), attention, _olmo_delta(config, sizes), feed)


def _olmo_delta(config: Config, sizes: Dimensions) -> Block:
    key_heads = config.optional_integer("linear_num_key_heads") or sizes.heads
    value_heads = config.optional_integer("linear_num_value_heads") or sizes.heads
    key_dim = config.optional_integer("linear_key_head_dim")
    if key_dim is None:
        key_dim = positive(config, "linear_num_key_heads", int(0.75 * sizes.hidden / key_heads), "the key size")
    value_dim = config.optional_integer("linear_value_head_dim") or 2 * key_dim
    doubled = config.flag("linear_allow_neg_eigval", otherwise=True)
    config.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    return _delta(config, SINGLE_DELTA, (key_heads, value_heads, key_dim, value_dim), doubled=doubled)


def _olmo_kinds(config: Config, layers: int) -> Sequence[str]:
    """Read what mixes in each layer; without a list every fourth attends, or else the last."""

    def every_fourth() -> Sequence[str]:
        listed = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
        return listed if FULL in listed else [*listed[:-1], FULL]

    return kinds(config, "layer_types", layers, (LINEAR, FULL), every_fourth)


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
    modules={
        "mixer_q_proj": "linear_attn.q_proj", "mixer_k_proj": "linear_attn.k_proj",
        "mixer_v_proj": "linear_attn.v_proj", "mixer_g_proj": "linear_attn.g_proj",
        "mixer_b_proj": "linear_attn.b_proj", "mixer_a_proj": "linear_attn.a_proj",
        "mixer_out_proj": "linear_attn.o_proj",
    },
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
        Wrapper("minicpmv4_7", defaults={"tie_word_embeddings": False}),
        Wrapper("minicpm_ocr", defaults={"tie_word_embeddings": True}),
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

ARCHITECTURES = (OLMO_HYBRID, QWEN3_5_TEXT, QWEN3_5_MOE_TEXT, QWEN3_NEXT)

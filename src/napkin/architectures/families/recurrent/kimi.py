"""Kimi Delta Attention next to multi-head latent attention: config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.attention_parts import OutputGate, Rope
from napkin.architectures.blocks import Block, Operations, Routing, gated_mlp, moe
from napkin.architectures.latent_attention import LatentAttention, LatentSizes
from napkin.architectures.reading import FULL, activation, chosen_experts, depth, on, width
from napkin.architectures.record import Architecture
from napkin.architectures.recurrent_blocks import KimiDelta
from napkin.architectures.recurrent_parts import LINEAR, Hybrid, hybrid, kinds, sizes_of
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.implementations import FP32_ROUTER
from napkin.operations.linear import Matmul
from napkin.operations.model import Model
from napkin.operations.pointwise import Activation, Multiply
from napkin.operations.roles import COLUMN
from napkin.operations.views import Cast
from napkin.record import replace

DENSE, SPARSE = "dense", "sparse"
_KINDS = {LINEAR: "delta", FULL: "attention", DENSE: "mlp", SPARSE: "moe"}


def kimi_linear(config: Config) -> Model:
    """Return Kimi Linear (arXiv:2510.26692): three layers of Kimi Delta Attention to one of latent attention without
    positions; mixtures of experts with shared ones from the second layer on."""
    return hybrid(_read_kimi(config))


def _read_kimi(config: Config) -> Hybrid:
    layers = depth(config)
    for field, value in (
        ("mla_use_nope", True),
        ("moe_layer_freq", 1),
        ("moe_router_activation_func", "sigmoid"),
        ("use_grouped_topk", True),
    ):
        config.must_be(field, value)
    config.ignore("rope_theta", "rope_scaling", "rope_parameters")
    stated = config.mapping("linear_attn_config", required=False)
    sizes = {
        "head_dim": config.integer("linear_head_dim"),
        "num_heads": config.integer("linear_num_heads"),
        "short_conv_kernel_size": config.integer("linear_conv_kernel_dim"),
    }
    published = None if stated is None else stated_kinds(config, sizes, layers)
    delta = KimiDelta(
        width=width(config),
        heads=sizes["num_heads"],
        head_dim=sizes["head_dim"],
        kernel=sizes["short_conv_kernel_size"],
        rank=sizes["head_dim"],
        form="guarded",
        narrowed=False,
        function=activation(config, "hidden_act"),
    )

    def by_fours() -> Sequence[str]:
        return published or [FULL if i and i % 4 == 0 else LINEAR for i in range(layers)]

    attention = latent_attention(config, rotates=False, q_rank=config.optional_integer("q_lora_rank"))
    return _read(config, kinds(config, "layer_types", layers, (LINEAR, FULL), by_fours), delta, attention)


def bailing_hybrid(config: Config) -> Model:
    """Return Ling 3.0: Kimi Delta Attention with bounded decays and gates of full rank, and latent attention whose
    heads are gated, the last layer of each group."""
    return hybrid(_read_bailing(config))


def _read_bailing(config: Config) -> Hybrid:
    layers = depth(config)
    _check_bailing(config)

    def by_groups() -> Sequence[str]:
        size = config.integer("layer_group_size")
        return [LINEAR if (i + 1) % size else FULL for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), by_groups)
    config.ignore("layer_group_size")
    if config.optional_integer("num_mtp_layers", least=0):
        config.notes.append("the multi-token-prediction layers are left out")
    # what the class derives is in the files that it writes, and wins over what it is derived from
    delta = KimiDelta(
        width=width(config),
        heads=config.optional_integer("linear_num_heads") or config.integer("num_attention_heads"),
        head_dim=config.optional_integer("linear_head_dim") or config.integer("head_dim"),
        kernel=config.optional_integer("linear_conv_kernel_dim") or config.integer("short_conv_kernel_size"),
        rank=None,
        form="bounded" if on(config, "kda_safe_gate") else "softplus",
        narrowed=True,
        function=activation(config, "hidden_act"),
    )
    rank = config.optional_integer("q_lora_rank")
    return _read(config, listed, delta, latent_attention(config, rotates=True, q_rank=rank, gate=_head_gate))


def _check_bailing(config: Config) -> None:
    """Refuse (3) what Ling 3.0 is not."""
    names = config.items("architectures", required=False)
    known = ("BailingHybridForCausalLM", "BailingHybridModel", "BailingMoeV3ForCausalLM")
    if names and any(name not in known for name in names):
        raise config.refuse(
            "architectures",
            f"{printable(repr(names[0]), 60)}: napkin knows this model type as Ling 3.0, with Kimi Delta Attention",
        )
    for field, value in (
        ("group_norm_size", 1),
        ("no_kda_lora", True),
        ("rope_interleave", True),
        ("score_function", "sigmoid"),
        ("gated_attention_proj_granularity_type", "head_wise"),
        ("moe_router_enable_expert_bias", True),
        ("moe_router_enable_shared_expert", True),
    ):
        config.must_be(field, value)
    config.must_be("rotary_dim", config.integer("qk_rope_head_dim"))
    config.must_be("qk_head_dim", config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim"))
    config.must_be("moe_shared_expert_intermediate_size", config.integer("moe_intermediate_size"))
    config.ignore("rope_theta", "partial_rotary_factor", "kda_lower_bound", "mtp_loss_scaling_factor")


def stated_kinds(config: Config, sizes: dict[str, int], layers: int) -> Sequence[str] | None:
    """Read Kimi's published files: sizes of the linear layers, put into `sizes`, and each layer's kind by its number
    from 1; what they say wins over the class's own fields."""
    inside = config.block("linear_attn_config", config.model_type, {})
    config.children.append(inside)
    for field in sizes:
        if inside.has(field):
            sizes[field] = inside.integer(field)
    numbers = [inside.items(field, required=False) for field in ("full_attn_layers", "kda_layers")]
    if numbers[0] is None or numbers[1] is None:
        return None
    listed = [""] * layers
    for field, kind, given in (("full_attn_layers", FULL, numbers[0]), ("kda_layers", LINEAR, numbers[1])):
        for entry in given:
            if isinstance(entry, bool) or not isinstance(entry, int) or not 1 <= entry <= layers:
                raise inside.wrong(field, f"{printable(repr(entry), 60)} is not the number of a layer, 1 to {layers}")
            listed[entry - 1] = kind
    if "" in listed and config.items("layer_types", required=False) is None:
        raise inside.wrong("kda_layers", f"layer {listed.index('') + 1} is neither there nor in full_attn_layers")
    return listed


def latent_attention(
    config: Config, *, rotates: bool, q_rank: int | None = None, gate: OutputGate | None = None
) -> LatentAttention:
    """Read latent attention's sizes. `rotates`: it has positions."""
    return LatentAttention(
        LatentSizes(
            width=width(config),
            heads=config.integer("num_attention_heads"),
            q_rank=q_rank,
            kv_rank=config.integer("kv_lora_rank"),
            nope=config.integer("qk_nope_head_dim"),
            v_dim=config.integer("v_head_dim"),
        ),
        Rope(config.integer("qk_rope_head_dim"), "interleaved"),
        bias=on(config, "attention_bias"),
        rotates=rotates,
        gate=gate,
    )


def _head_gate(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    """Return attention's heads, each multiplied by σ(x·w) with its own w, the sigmoid in fp32 (Ling 3.0)."""
    gate = prefix + "head_gate"
    return (
        Matmul(gate, (source,), width, heads, shard=COLUMN),
        Cast(f"{gate}_wide", (gate,), heads, fp32=True),
        Activation(f"{gate}_score", (f"{gate}_wide",), heads, "sigmoid"),
        Cast(f"{gate}_narrow", (f"{gate}_score",), heads),
        Multiply(prefix + "attention_gated", (attended, f"{gate}_narrow"), heads * size),
    )


def _read(config: Config, listed: Sequence[str], delta: Block, attention: Block) -> Hybrid:
    """Read what both families share: sizes, and the feed-forward network of each layer."""
    heads = config.integer("num_attention_heads")
    config.ignore("num_key_value_heads", "head_dim", "short_conv_kernel_size")
    networks = feed_kinds(config, len(listed))
    feeds = {"moe": _mixture(config)}
    if DENSE in networks:
        inner, function = config.integer("intermediate_size"), activation(config, "hidden_act")
        feeds["mlp"] = partial(gated_mlp, width=width(config), inner=inner, function=function)
    if config.flag("tie_word_embeddings"):
        config.notes.append(
            "tie_word_embeddings: the class shares no weights, so embedding and head are counted separately"
        )
    head_dim = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    layers = tuple((_KINDS[kind], _KINDS[feed]) for kind, feed in zip(listed, networks, strict=True))
    mixers = {"delta": delta, "attention": attention}
    return Hybrid(sizes_of(config, heads, heads, head_dim, tie=False), layers, mixers, feeds)


def feed_kinds(config: Config, layers: int) -> Sequence[str]:
    """Read which layers have experts."""

    def first_dense() -> Sequence[str]:
        dense = config.optional_integer("first_k_dense_replace", least=0) or 0
        return [DENSE if i < dense else SPARSE for i in range(layers)]

    listed = kinds(config, "mlp_layer_types", layers, (DENSE, SPARSE), first_dense)
    config.ignore("first_k_dense_replace", "intermediate_size")
    return listed


def _mixture(config: Config) -> Block:
    hidden, function = width(config), activation(config, "hidden_act")
    experts, top_k = chosen_experts(config, "num_local_experts", "num_experts_per_tok")
    inner, groups, chosen = (config.integer(name) for name in ("moe_intermediate_size", "n_group", "topk_group"))
    if experts % groups or chosen > groups:
        raise config.wrong("n_group", f"{experts} experts do not divide into {groups} groups, {chosen} of them chosen")
    normalize = config.flag("norm_topk_prob")
    shared = config.integer("n_shared_experts") * inner
    return partial(
        moe,
        width=hidden,
        inner=inner,
        routing=Routing(experts, top_k, score="sigmoid", normalize=normalize, upcast=True, balanced="buffer"),
        function=function,
        shared=partial(gated_mlp, width=hidden, inner=shared, function=function, prefix="shared/"),
    )


# --- records ---------------------------------------------------------------------------------------------------------

BAILING_HYBRID = Architecture(
    "bailing_hybrid",
    bailing_hybrid,
    config_class="BailingHybridConfig",
    aliases={
        "model_max_length": "max_position_embeddings", "moe_renormalize": "norm_topk_prob",
        "num_expert_group": "n_group", "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok", "num_nextn_predict_layers": "num_mtp_layers",
        "num_shared_experts": "n_shared_experts",
    },
    defaults={
        "attention_bias": False, "first_k_dense_replace": 2, "head_dim": 128, "hidden_act": "silu",
        "intermediate_size": 6144, "kda_safe_gate": True, "kv_lora_rank": 512, "layer_group_size": 6,
        "layer_types": None, "max_position_embeddings": 262144, "mlp_layer_types": None, "moe_intermediate_size": 768,
        "n_group": 8, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 32,
        "num_experts_per_tok": 8, "num_key_value_heads": 32, "num_local_experts": 512, "num_mtp_layers": 1,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "short_conv_kernel_size": 4, "tie_word_embeddings": False,
        "topk_group": 4, "v_head_dim": 128, "vocab_size": 157184,
    },
    implementation=replace(
        FP32_ROUTER, fp32_weights=(*FP32_ROUTER.fp32_weights, "/weight", "/bias", "/decay")
    ),
    modules={
        "head_gate": "self_attn.g_proj", "mixer_q": "self_attn.q_proj", "mixer_k": "self_attn.k_proj",
        "mixer_v": "self_attn.v_proj", "mixer_forget": "self_attn.forget_gate.f_proj",
        "mixer_strength": "self_attn.b_proj", "mixer_gate": "self_attn.g_proj", "mixer_out_proj": "self_attn.o_proj",
    },
)  # fmt: skip
KIMI_LINEAR = Architecture(
    "kimi_linear",
    kimi_linear,
    config_class="KimiLinearConfig",
    aliases={
        "model_max_length": "max_position_embeddings", "moe_renormalize": "norm_topk_prob",
        "num_expert_group": "n_group", "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    },
    defaults={
        "attention_bias": False, "first_k_dense_replace": 1, "hidden_act": "silu", "intermediate_size": 9216,
        "kv_lora_rank": 512, "layer_types": None, "linear_conv_kernel_dim": 4, "linear_head_dim": 128,
        "linear_num_heads": 32, "max_position_embeddings": 1048576, "mlp_layer_types": None,
        "moe_intermediate_size": 1024, "n_group": 1, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_attention_heads": 32, "num_experts_per_tok": 8, "num_key_value_heads": 32, "num_local_experts": 256,
        "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": False,
        "topk_group": 1, "v_head_dim": 128, "vocab_size": 163840,
    },
    implementation=replace(FP32_ROUTER, fp32_weights=(*FP32_ROUTER.fp32_weights, "/bias")),
    modules={
        "mixer_q": "self_attn.q_proj", "mixer_k": "self_attn.k_proj", "mixer_v": "self_attn.v_proj",
        "mixer_forget_low": "self_attn.forget_gate.f_a_proj", "mixer_forget": "self_attn.forget_gate.f_b_proj",
        "mixer_strength": "self_attn.b_proj", "mixer_gate_low": "self_attn.g_a_proj",
        "mixer_gate": "self_attn.g_b_proj", "mixer_out_proj": "self_attn.o_proj",
    },
)  # fmt: skip

ARCHITECTURES = (BAILING_HYBRID, KIMI_LINEAR)

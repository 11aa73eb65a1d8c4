"""Hunyuan: dense, mixtures of experts, and Hy4 with latent attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from napkin.architectures.assembly import runs_of
from napkin.architectures.attention_parts import Rope, gated
from napkin.architectures.blocks import RMS, Operations, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads
from napkin.architectures.families.mixtures_of_experts.deepseek import DEEPSEEK_V32
from napkin.architectures.latent_attention import LatentAttention
from napkin.architectures.latent_decoder import each_fourth_indexed
from napkin.architectures.layer_plans import by_type
from napkin.architectures.mixture import SIGMOID, Mixture, Shared, counted
from napkin.architectures.reading import width
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import EAGER, FP32_ROUTER, HF
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, stack_of
from napkin.operations.roles import COLUMN, SHARED_TENSOR
from napkin.operations.views import Share
from napkin.record import replace


def _gate_and_queries(of: LatentAttention, source: str) -> Operations:
    """Return Hy4's output gate, made from the input, and the queries."""
    sizes = of.sizes
    gate = Matmul("output_gate", (source,), sizes.width, sizes.heads * sizes.v_dim, False, COLUMN)
    return (gate, *of.usual_queries(source))


def _gate(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    return gated(attended, "output_gate", heads * size, fp32=False)


def _hy_v4(usual: LatentAttention) -> LatentAttention:
    """Hy4: gated, with one learned extra score per head."""
    return replace(usual, queries=_gate_and_queries, gate=_gate, scores=replace(usual.scores, sinks=True))


def hunyuan_moe(config: Config) -> Model:
    """Return Hunyuan's mixture, whose files write one number for each layer and much that the class does not know."""
    _one_for_all(config)
    for field, value in (("num_shared_expert", 1), ("use_mixed_mlp_moe", True), ("norm_type", "rms")):
        config.must_be(field, value)
    for field in ("use_cla", "use_mla", "mlp_bias", "add_classification_head", "moe_layer_num_skipped"):
        config.must_be(field, False)
    config.must_be("moe_intermediate_size", config.integer("intermediate_size"))
    heads, head_dim = config.integer("num_attention_heads"), config.optional_integer("head_dim")
    config.must_be("attention_head_dim", head_dim or width(config) // heads)
    config.ignore("cla_share_factor", "use_qk_norm", *_NO_COUNT)
    return _MOE(config)


_NO_COUNT = (
    *("class_num", "dense_list", "group_limited_greedy", "moe_drop_tokens", "moe_random_routing_dropped_token"),
    *("org_vocab_size", "pool_type", "position_embedding_xdrope", "use_rotary_pos_emb", "skip_cls_token", "pad_id"),
    *("num_media_embeds", "vit_path", "mask_init_id", "im_end_id", "im_newline_id", "im_start_id", "text_start_id"),
    *("text_end_id", "video_start_id", "video_end_id", "anyres_vit_max_image_size", "anyres_pooling_size"),
)
"""Fields of Hunyuan's files that change no count."""


def _one_for_all(config: Config) -> None:
    """Read a list that has the same number for each layer as that number."""
    for field in ("moe_topk", "num_experts", "num_shared_expert", "moe_intermediate_size"):
        values = config.fields.get(field)
        if isinstance(values, list) and values and values == values[:1] * len(values):
            config.restate(field, values[0])


def hunyuan_large(config: Config) -> Model:
    """Return Hunyuan-Large (arXiv:2411.02265; modeling_hunyuan.py of tencent/Tencent-Hunyuan-Large) or a dense model
    of its code: layers in groups read the keys and values of the first of them (cross-layer attention)."""
    _one_for_all(config)
    config.must_be("norm_type", "hf_rms", "rms")
    for field in ("use_mla", "mlp_bias", "add_classification_head", "moe_layer_num_skipped"):
        config.must_be(field, False)
    config.must_be("moe_intermediate_size", config.integer("intermediate_size"))
    config.ignore("capacity_factor", *_NO_COUNT)
    model = _LARGE(config)
    together = config.integer("cla_share_factor") if config.flag("use_cla", otherwise=False) else 1
    config.ignore("cla_share_factor")
    return model if together == 1 else _shared_keys(model, together)


def _shared_keys(model: Model, together: int) -> Model:
    """Return a model of equal layers, of which the first of each `together` lends its keys and values to the others."""
    (stack,) = model.stacks
    (usual,) = stack.layers

    def layer(first: bool) -> Layer:
        if first:
            shares: Operations = (Share("keys", ("k",)), Share("values", ("v",)))
            at = next(n for n, op in enumerate(usual.operations) if op.name == "v") + 1
            return Layer(f"{usual.kind}_lending", (*usual.operations[:at], *shares, *usual.operations[at:]))
        borrowed = {"k": f"{SHARED_TENSOR}keys", "v": f"{SHARED_TENSOR}values"}
        kept = (op for op in usual.operations if op.name not in borrowed)
        operations = tuple(replace(op, reads=tuple(borrowed.get(name, name) for name in op.reads)) for op in kept)
        return Layer(f"{usual.kind}_borrowing", operations)

    runs = runs_of((i % together == 0 for i in range(stack.depth)), layer)
    return replace(model, stacks=(stack_of(stack.name, stack.before, runs, stack.after),))


def _several(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in every layer where there are several."""
    experts = config.integer("num_experts") > 1
    return lambda i: experts


def _mixed(config: Config, inner: int) -> int:
    """Read the width of the shared experts."""
    count = config.integer("num_shared_expert", least=0)
    return count * inner if config.flag("use_mixed_mlp_moe", otherwise=False) else 0


_DENSE = Decoder(bias="attention_bias", out_bias="attention_bias", qk_norm=NormedHeads(RMS, after_rope=True))
_MOE = replace(
    _DENSE,
    experts=Mixture(
        "num_experts",
        "moe_topk",
        inner="intermediate_size",
        shares_dense=True,
        normalize=True,
        upcast=True,
        block=partial(moe, shared_first=True),
    ),
)
_LARGE = replace(
    _DENSE,
    qk_norm=NormedHeads(RMS, after_rope=True, switch="use_qk_norm"),
    experts=Mixture(
        "num_experts",
        "moe_topk",
        inner="intermediate_size",
        where=_several,
        shared=Shared(_mixed, "num_shared_expert"),
        normalize=True,
        upcast=True,
        block=partial(moe, shared_first=True),
    ),
)
_TRUE = ("moe_router_enable_expert_bias", "moe_router_use_sigmoid", "qk_norm", "route_norm")

HUNYUAN_DENSE = Architecture(
    "hunyuan_v1_dense",
    _DENSE,
    config_class="HunYuanDenseV1Config",
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 11008,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_key_value_heads": None,
        "tie_word_embeddings": False, "vocab_size": 290943,
    },
)  # fmt: skip
HUNYUAN_VL = like(
    HUNYUAN_DENSE,
    "hunyuan_vl_text",
    config_class="HunYuanVLTextConfig",
    aliases={"attention_head_dim": "head_dim", "org_vocab_size": "vocab_size"},
    implementation=replace(HF, positions="each"),
    wrappers=(Wrapper("hunyuan_vl", flat=True),),
    defaults={"tie_word_embeddings": True},
)
HUNYUAN_MOE = Architecture(
    "hunyuan_v1_moe",
    hunyuan_moe,
    config_class="HunYuanMoEV1Config",
    aliases={"num_experts_per_tok": "moe_topk", "num_local_experts": "num_experts"},
    implementation=replace(HF, fp32_router=True, linear_router=True, fp32_weights=("mlp.gate.wg/weight",)),
    defaults={
        "attention_bias": False, "head_dim": None, "hidden_act": "silu", "intermediate_size": 11008,
        "max_position_embeddings": 2048, "moe_topk": 1, "num_attention_heads": 32, "num_experts": 1,
        "num_key_value_heads": None, "tie_word_embeddings": False, "vocab_size": 290943,
    },
    modules={
        "router": "mlp.gate.wg", "shared/gate": "mlp.shared_mlp.gate_proj", "shared/up": "mlp.shared_mlp.up_proj",
        "shared/down": "mlp.shared_mlp.down_proj",
    },
)  # fmt: skip
HUNYUAN_LARGE = Architecture(
    "hunyuan",
    hunyuan_large,
    implementation=HUNYUAN_MOE.implementation,
    defaults={
        **HUNYUAN_MOE.defaults, "num_shared_expert": 1, "use_mixed_mlp_moe": False, "use_qk_norm": False,
        "attention_bias": False, "cla_share_factor": 1,
    },
    modules={**HUNYUAN_MOE.modules},
)  # fmt: skip
HY_V3 = Architecture(
    "hy_v3",
    Decoder(
        bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
        qk_norm=NormedHeads(RMS),
        experts=replace(
            SIGMOID, experts="num_experts", where=by_type, shared=counted("num_shared_experts"), normalize=True
        ),
        predicts=True,
        only=tuple((field, (True,)) for field in _TRUE),
    ),
    config_class="HYV3Config",
    aliases={"expert_hidden_dim": "moe_intermediate_size", "num_local_experts": "num_experts"},
    implementation=replace(FP32_ROUTER, shares=new_shares, registers_first=()),
    defaults={
        "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 13312,
        "max_position_embeddings": 131072, "mlp_bias": False, "mlp_layer_types": None,
        "moe_intermediate_size": 1536, "num_attention_heads": 64, "num_experts": 192, "num_experts_per_tok": 8,
        "num_key_value_heads": 8, "num_shared_experts": 1, "tie_word_embeddings": False, "vocab_size": 120832,
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
    implementation=replace(
        FP32_ROUTER, fp32_sinks=True, kernels=(EAGER,),
        fp32_weights=(
            *FP32_ROUTER.fp32_weights,
            "/weight", "/base", "/scale", "/sinks", "lm_head/weight", "indexer/head_weights", "indexer/key_norm",
            "indexer/key_norm_bias",
        ),
    ),
    defaults={
        "first_k_dense_replace": REQUIRED, "hc_mult": 4, "head_dim": 256, "index_n_heads": 16,
        "indexer_types": None, "intermediate_size": 6912, "max_position_embeddings": 262144, "mlp_bias": REQUIRED,
        "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 32,
        "qk_nope_head_dim": 192, "v_head_dim": 256, "vocab_size": 120832,
    },
    modules={
        "output_gate": "self_attn.gate_proj",
    },
)  # fmt: skip
HY_V4_VL = like(
    HY_V4,
    "hy_v4_vl_text",
    config_class="HYV4VLTextConfig",
    wrappers=(Wrapper("hy_v4_vl"),),
    defaults={
        "index_n_heads": 32, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 64,
        "num_key_value_heads": 64, "q_lora_rank": 2048,
    },
)  # fmt: skip

ARCHITECTURES = (HUNYUAN_VL, HUNYUAN_DENSE, HUNYUAN_MOE, HUNYUAN_LARGE, HY_V3, HY_V4, HY_V4_VL)

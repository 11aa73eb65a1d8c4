"""GLM-5.3 Flash's language model: Kimi Delta Attention next to latent attention without positions over chosen pools of
keys, with several residual streams.

Fields and arrangements are facts of the class of Hugging Face transformers 5.23.0 (src/transformers/models/glm5_next/).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from napkin.architectures.arrangements import hyper_connected
from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention_parts import Rope, Scores
from napkin.architectures.blocks import RMS, Block, Gating, Routing, gated_mlp, moe
from napkin.architectures.dimensions import decoder_only, dimensions_of
from napkin.architectures.latent_attention import LatentAttention, LatentSizes
from napkin.architectures.latent_decoder import each_indexed
from napkin.architectures.layer_plans import listed_or
from napkin.architectures.reading import activation, balance_loss, chosen_experts, depth, listed, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import KimiDelta
from napkin.inputs.model import Config
from napkin.operations.attention.indexer import Indexer
from napkin.operations.hyper_connections import CopyToStreams, MeanOfStreams
from napkin.operations.implementations import EAGER, EFFICIENT, FP32_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import replace

LINEAR, INDEXED, FULL = "linear_attention", "indexed_attention", "full_attention"
PERIOD, DENSE = 4, 3
"""Where the file does not say: each PERIOD-th layer attends, and the first DENSE have no experts."""
CLAMPED = Gating(clamped=True)


class _Glm5Plan(NamedTuple):
    """What sets a layer apart: its mixer, whether it chooses keys itself, and whether it has experts."""

    kind: str
    indexed: bool
    sparse: bool


def glm5_next(config: Config) -> Model:
    """Return GLM-5.3 Flash's language model."""
    hidden, layers = width(config), depth(config)
    heads, function = config.integer("num_attention_heads"), activation(config, "hidden_act")
    config.must_be("qk_rope_head_dim", 0)
    config.must_be("num_key_value_heads", heads)
    config.ignore("head_dim", "qk_head_dim", "hc_eps", "swiglu_limit", "index_kpool_always_select_tail", "n_group")
    config.ignore("topk_group", "router_aux_loss_coef", "rope_parameters")
    kinds = listed(config, "layer_types", layers, (LINEAR, INDEXED, FULL))
    kinds = kinds or [INDEXED if (i + 1) % PERIOD == 0 else LINEAR for i in range(layers)]
    indexed = each_indexed(config, layers)
    sparse = listed_or(lambda config, layers: lambda i: i >= DENSE)(config, layers)
    delta, attention = _delta(config, hidden, function), _attention(config, hidden, heads)
    inner = config.integer("intermediate_size")
    feeds: dict[bool, Block] = {
        False: partial(gated_mlp, width=hidden, inner=inner, function=function, gating=CLAMPED),
        True: _experts(config, hidden, function),
    }
    streams, iterations = config.integer("hc_mult"), config.integer("hc_sinkhorn_iters")

    def layer(plan: _Glm5Plan) -> Layer:
        mixer: Block = delta if plan.kind == LINEAR else attention
        if plan.kind != LINEAR and not plan.indexed:
            mixer = replace(attention, index=None)
        made = hyper_connected(hidden, RMS, mixer, feeds[plan.sparse], streams=streams, iterations=iterations)
        name = "linear" if plan.kind == LINEAR else "attention" + "_shared_index" * (not plan.indexed)
        return Layer(f"{name}_{'moe' if plan.sparse else 'dense'}", made)

    plans = [_Glm5Plan(LINEAR if kind == LINEAR else INDEXED, indexed[i], sparse(i)) for i, kind in enumerate(kinds)]
    plans = [plan._replace(indexed=False) if plan.kind == LINEAR else plan for plan in plans]
    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, heads, attention.qk_dim, length)
    experts = config.integer("n_routed_experts"), config.integer("num_experts_per_tok")
    balance = balance_loss(config, *experts)
    rows, mean = sizes.vocabulary, MeanOfStreams("streams_read", ("x",), hidden, streams)
    model = decoder_only(
        sizes,
        (*embedding(rows, hidden), CopyToStreams("streams", ("embedding",), hidden, streams)),
        runs_of(plans, layer),
        (mean, *head(hidden, rows, norm=RMS, balance=balance, none=sizes.headless, source=mean.name)),
    )
    return replace(model, streams=streams)


def _delta(config: Config, hidden: int, function: str) -> KimiDelta:
    """Read the linear attention: its own fields, over which a published file's block of them wins."""
    stated = config.mapping("linear_attn_config", required=False)
    names = {"linear_head_dim": "head_dim", "linear_num_heads": "num_heads"}
    names |= {"linear_conv_kernel_dim": "short_conv_kernel_size", "linear_lower_bound": "gate_lower_bound"}
    for field, inside in names.items():
        if stated is not None and inside in stated:
            config.restate(field, stated[inside])
    bound = config.real("linear_lower_bound", required=False)
    bounded = bound is not None or (stated is not None and stated.get("safe_gate", True) is True)
    size = config.integer("linear_head_dim")
    return KimiDelta(
        width=hidden,
        heads=config.integer("linear_num_heads"),
        head_dim=size,
        kernel=config.integer("linear_conv_kernel_dim"),
        rank=size,
        form="bounded" if bounded else "guarded",
        narrowed=False,
        function=function,
    )


def _attention(config: Config, hidden: int, heads: int) -> LatentAttention:
    """Read the latent attention: no positions, and keys chosen by pools of tokens."""
    rank, pool = config.integer("q_lora_rank"), config.integer("index_kpool")
    index_heads, index_size = config.integer("index_n_heads"), config.integer("index_head_dim")
    keys = config.integer("index_topk")
    if keys % pool:
        raise config.wrong("index_topk", f"{keys} keys are not a multiple of the pools' {pool}")
    sizes = LatentSizes(
        hidden, heads, rank, config.integer("kv_lora_rank"), config.integer("qk_nope_head_dim"),
        config.integer("v_head_dim"),
    )  # fmt: skip
    return LatentAttention(
        sizes,
        Rope(0),
        bias=config.flag("attention_bias"),
        rotates=False,
        scores=Scores(window=keys + pool - 1, anywhere=True),
        index=lambda source, latent: Indexer(
            "indexer", (source, latent), hidden, rank, index_heads, index_size, pool=pool
        ),
    )


def _experts(config: Config, hidden: int, function: str) -> Block:
    experts, top_k = chosen_experts(config, "n_routed_experts", "num_experts_per_tok")
    inner = config.integer("moe_intermediate_size")
    shared = config.integer("n_shared_experts") * inner
    return partial(
        moe,
        width=hidden,
        inner=inner,
        routing=Routing(
            experts, top_k, score="sigmoid", normalize=config.flag("norm_topk_prob"), upcast=True, balanced="buffer"
        ),
        function=function,
        gating=CLAMPED,
        shared=partial(gated_mlp, width=hidden, inner=shared, function=function, gating=CLAMPED, prefix="shared/"),
    )


GLM5_NEXT = Architecture(
    "glm5_next_text",
    glm5_next,
    config_class="Glm5NextTextConfig",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(
        FP32_ROUTER, kernel_mask="always", kernels=(EFFICIENT, EAGER),
        fp32_weights=(*FP32_ROUTER.fp32_weights, "/weight", "/bias", "/decay", "/base", "/scale"),
    ),
    wrappers=(Wrapper("glm5_next", flat=True),),
    defaults={
        "attention_bias": False, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hidden_act": "silu", "index_head_dim": 128,
        "index_kpool": 16, "index_n_heads": 32, "index_topk": 2048, "indexer_types": None,
        "intermediate_size": 12288, "kv_lora_rank": 512, "layer_types": None, "linear_conv_kernel_dim": 4,
        "linear_head_dim": 128, "linear_lower_bound": -5.0, "linear_num_heads": 64,
        "max_position_embeddings": 1048576, "mlp_layer_types": None, "moe_intermediate_size": 2048,
        "n_routed_experts": 288, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 64,
        "num_experts_per_tok": 8, "num_key_value_heads": 64, "q_lora_rank": 1536, "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 0, "tie_word_embeddings": False, "v_head_dim": 256, "vocab_size": 154880,
    },
    modules={
        "mixer_q": "self_attn.q_proj", "mixer_k": "self_attn.k_proj", "mixer_v": "self_attn.v_proj",
        "mixer_forget_low": "self_attn.forget_gate.f_a_proj", "mixer_forget": "self_attn.forget_gate.f_b_proj",
        "mixer_strength": "self_attn.b_proj", "mixer_gate_low": "self_attn.g_a_proj",
        "mixer_gate": "self_attn.g_b_proj", "mixer_out_proj": "self_attn.o_proj",
        "embedding": "model.language_model.embed_tokens",
    },
)  # fmt: skip

ARCHITECTURES = (GLM5_NEXT,)

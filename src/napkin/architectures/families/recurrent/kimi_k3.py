"""Kimi K3: Kimi Linear's two kinds of attention with gates of full rank, experts in a latent space, and sums over
earlier blocks of layers in place of the residual stream (attention residuals).

Facts are those of moonshotai/Kimi-K3's config.json and of the tensors in its checkpoint, as SGLang's kimi_k3.py reads
them. Its files call the language model kimi_linear, which it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.blocks import RMS, Block, Operations, Routing, gated_mlp
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.architectures.families.recurrent.kimi import DENSE, SPARSE, feed_kinds, latent_attention, stated_kinds
from napkin.architectures.idle import idle, tensors
from napkin.architectures.reading import FULL, chosen_experts, depth, width
from napkin.architectures.record import Architecture, Wrapper
from napkin.architectures.recurrent_blocks import KimiDelta
from napkin.architectures.recurrent_parts import LINEAR, latent_mixture, sizes_of
from napkin.inputs.model import Config
from napkin.operations.block_residual import BlockResidual
from napkin.operations.implementations import FP32_ROUTER
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Activation, Add, Multiply
from napkin.operations.roles import COLUMN
from napkin.record import record, replace

FUNCTION = "silu"
"""What SiTU, a bounded SiLU, is counted as."""


@record
class KimiK3Plan:
    """What sets one layer apart: its mixer and feed-forward network, and whether it is the first."""

    mixer: str
    feed: str
    first: bool


@record
class KimiK3Parts:
    """What config.json says of the network: nothing below reads it again.

    blocks  of layers, whose sums the last layer leaves
    states  sums that a branch reads, its own stream's included: their mean over the layers, so that one layer is like
            the next
    """

    sizes: Dimensions
    blocks: int
    states: int
    mixers: Mapping[str, Block]
    feeds: Mapping[str, Block]
    plans: Sequence[KimiK3Plan]


def kimi_k3(config: Config) -> Model:
    """Return Kimi K3's language model."""
    parts = _read(config)
    sizes, hidden = parts.sizes, parts.sizes.hidden
    final = BlockResidual("final_input", ("x",), hidden, parts.blocks + 1, scaled=True)
    after = (final, *head(hidden, sizes.vocabulary, norm=RMS, none=sizes.headless, source=final.name))
    runs = runs_of(parts.plans, lambda plan: _layer(parts, plan))
    return decoder_only(sizes, embedding(sizes.vocabulary, hidden), runs, after)


def _read(config: Config) -> KimiK3Parts:
    layers, hidden = depth(config), width(config)
    for field, value in (
        ("hidden_act", "situ"),
        ("mla_use_nope", True),
        ("mla_use_output_gate", True),
        ("moe_layer_freq", 1),
        ("moe_router_activation_func", "sigmoid"),
        ("num_nextn_predict_layers", 0),
        ("topk_method", "noaux_tc"),
        ("use_grouped_topk", True),
        ("tie_word_embeddings", False),
    ):
        config.must_be(field, value)
    config.ignore("rope_theta", "activation_situ_beta", "activation_situ_linear_beta", "num_key_value_heads")
    config.notes.append(
        "SiTU is counted as SiLU, which keeps as much; each branch reads the mean number of earlier blocks' sums"
    )
    sizes: dict[str, int] = dict.fromkeys(("head_dim", "num_heads", "short_conv_kernel_size"), 1)
    mixers = stated_kinds(config, sizes, layers)
    inside = config.children[-1]
    if mixers is None or not all(map(inside.has, sizes)):
        raise config.refuse("linear_attn_config", "does not say which layers have Kimi Delta Attention, and its sizes")
    inside.must_be("use_full_rank_gate", True)
    inside.ignore("gate_lower_bound")
    delta = KimiDelta(
        width=hidden,
        heads=sizes["num_heads"],
        head_dim=sizes["head_dim"],
        kernel=sizes["short_conv_kernel_size"],
        rank=sizes["head_dim"],
        form="bounded",
        narrowed=True,
        wide_gate=True,
    )
    heads, every = config.integer("num_attention_heads"), config.integer("attn_res_block_size")
    attention = latent_attention(config, rotates=False, q_rank=config.integer("q_lora_rank"), gate=_gate)
    inner, feeds = config.integer("intermediate_size"), feed_kinds(config, layers)
    size = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    plans = [KimiK3Plan(*blocks, first=i == 0) for i, blocks in enumerate(zip(mixers, feeds, strict=True))]
    read = sum(-(-i // every) + i // every + 3 for i in range(layers))  # by the attention and the network of each layer
    return KimiK3Parts(
        sizes_of(config, heads, heads, size, tie=False),
        -(-layers // every),
        max(2, round(read / (2 * layers))),
        {LINEAR: delta, FULL: attention},
        {DENSE: partial(gated_mlp, width=hidden, inner=inner, function=FUNCTION), SPARSE: _mixture(config, hidden)},
        plans,
    )


def _mixture(config: Config, hidden: int) -> Block:
    experts, top_k = chosen_experts(config, "num_local_experts", "num_experts_per_tok")
    inner = config.integer("moe_intermediate_size")
    for field in ("n_group", "topk_group"):
        config.must_be(field, 1)
    shared = config.integer("n_shared_experts") * inner
    normalize = config.flag("norm_topk_prob")
    return latent_mixture(
        hidden,
        config.integer("routed_expert_hidden_size"),
        False,
        inner=inner,
        routing=Routing(experts, top_k, score="sigmoid", normalize=normalize, upcast=True, balanced="buffer"),
        function=FUNCTION,
        shared=partial(gated_mlp, width=hidden, inner=shared, function=FUNCTION, prefix="shared/"),
        gated=True,
        norm=RMS if config.flag("latent_moe_use_norm") else None,
    )


def _gate(source: str, attended: str, width: int, heads: int, size: int, prefix: str) -> Operations:
    """Return attention's results, each element multiplied by σ(x·w)."""
    gate, wide = prefix + "gate", heads * size
    return (
        Matmul(gate, (source,), width, wide, shard=COLUMN),
        Activation(f"{gate}_score", (gate,), wide, "sigmoid"),
        Multiply(prefix + "attention_gated", (attended, f"{gate}_score"), wide),
    )


def _layer(parts: KimiK3Parts, plan: KimiK3Plan) -> Layer:
    """Return a layer, each branch of which reads a sum over earlier blocks; the first has none to read, but its
    weights."""
    hidden, name = parts.sizes.hidden, "attention_input"
    summed = BlockResidual(name, ("x",), hidden, parts.states, scaled=True)
    unread = idle("unread", (tensors(name, {"query": (hidden,), "norm": (hidden,)}),))
    mixer = parts.mixers[plan.mixer]("attention_norm")
    feed = parts.feeds[plan.feed]("mlp_norm")
    return Layer(
        f"{'delta' if plan.mixer == LINEAR else 'attention'}_{'moe' if plan.feed == SPARSE else 'mlp'}"
        + "_first" * plan.first,
        (
            unread if plan.first else summed,
            RMS("attention_norm", "x" if plan.first else name, hidden),
            *mixer,
            Add("attention_residual", ("x", mixer[-1].name), hidden),
            BlockResidual("mlp_input", ("attention_residual",), hidden, parts.states, scaled=True),
            RMS("mlp_norm", "mlp_input", hidden),
            *feed,
            Add("mlp_residual", ("attention_residual", feed[-1].name), hidden),
        ),
    )


KIMI_K3 = Architecture(
    "kimi_k3_text",
    kimi_k3,
    aliases={
        "model_max_length": "max_position_embeddings", "moe_renormalize": "norm_topk_prob",
        "num_expert_group": "n_group", "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    },
    defaults={"attention_bias": False, "latent_moe_use_norm": False, "mlp_layer_types": None},
    implementation=replace(FP32_ROUTER, fp32_weights=(*FP32_ROUTER.fp32_weights, "/bias", "/decay")),
    wrappers=(Wrapper("kimi_k3", former="kimi_linear", path="language_model.model"),),
    modules={
        "gate": "self_attn.g_proj", "mixer_q": "self_attn.q_proj", "mixer_k": "self_attn.k_proj",
        "mixer_v": "self_attn.v_proj", "mixer_forget_low": "self_attn.f_a_proj",
        "mixer_forget": "self_attn.f_b_proj", "mixer_strength": "self_attn.b_proj", "mixer_gate": "self_attn.g_proj",
        "mixer_out_proj": "self_attn.o_proj", "latent": "block_sparse_moe.routed_expert_down_proj",
        "latent_out": "block_sparse_moe.routed_expert_up_proj",
    },
)  # fmt: skip

ARCHITECTURES = (KIMI_K3,)

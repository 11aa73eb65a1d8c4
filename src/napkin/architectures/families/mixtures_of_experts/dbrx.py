"""DBRX: fine-grained experts."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope
from napkin.architectures.blocks import LAYER_NO_BIAS, Routing, moe
from napkin.architectures.dimensions import Dimensions, decoder_of, dimensions
from napkin.architectures.reading import FUNCTIONS, balance_loss, chosen_experts, kv_heads_of, width
from napkin.architectures.record import Architecture, ConfigClass
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import SIGMOID_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import record, replace


@record
class DbrxReading:
    """What a config.json says of DBRX. `clamped`: the results of the QKV projection are clamped to an interval."""

    sizes: Dimensions
    clamped: bool
    inner: int
    function: str
    routing: Routing
    balance: Operation | None


def read(config: Config) -> DbrxReading:
    """Read a config.json, which describes attention and experts in blocks of their own."""
    hidden = width(config)
    attention = config.nested("attn_config", "dbrx.attn_config")
    attention.ignore("model_type")
    kv_heads = kv_heads_of(attention, config.integer("num_attention_heads"), "kv_n_heads")
    config.must_be("num_key_value_heads", kv_heads)
    clamped = attention.real("clip_qkv", required=False) is not None
    sizes = dimensions(config, kv_heads=kv_heads, own_head_dim=False)
    ffn = config.nested("ffn_config", "dbrx.ffn_config")
    ffn.ignore("model_type", "tie_word_embeddings", "uniform_expert_assignment")
    ffn.must_be("hidden_size", hidden)
    function = (ffn.mapping("ffn_act_fn", required=False) or {"name": "silu"}).get("name")
    if function not in FUNCTIONS:
        raise ffn.refuse("ffn_act_fn", f"napkin does not know {function!r}")
    experts, top_k = chosen_experts(ffn, "moe_num_experts", "moe_top_k")
    routing = Routing(
        experts,
        top_k,
        normalize=ffn.real("moe_normalize_expert_weights", required=False) is not None,
        jitter=1 if ffn.real("moe_jitter_eps", required=False) else 0,
    )
    inner, balance = ffn.integer("ffn_hidden_size"), balance_loss(config, experts, top_k)
    return DbrxReading(sizes, clamped, inner, str(function), routing, balance)


def layer(of: DbrxReading) -> Layer:
    """Return a layer: attention from one QKV projection, fine-grained experts."""
    sizes = of.sizes
    attend = Attention(
        Heads(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim),
        QkvProjections(fused=True, clamped=of.clamped),
        rope=Rope(sizes.head_dim),
    )
    feed = partial(moe, width=sizes.hidden, inner=of.inner, routing=of.routing, function=of.function)
    return Layer("moe", pre_norm(sizes.hidden, LAYER_NO_BIAS, attend, feed, dropout=(True, True)))


def dbrx(config: Config) -> Model:
    """Return DBRX."""
    of = read(config)
    return decoder_of(of.sizes, ((of.sizes.layers, layer(of)),), LAYER_NO_BIAS, balance=of.balance)


DBRX = Architecture(
    "dbrx",
    dbrx,
    config_class="DbrxConfig",
    aliases={
        "d_model": "hidden_size",
        "max_seq_len": "max_position_embeddings",
        "n_heads": "num_attention_heads",
        "n_layers": "num_hidden_layers",
    },
    implementation=replace(SIGMOID_ROUTER, shares=new_shares, looped="apart", linear_router=True),
    defaults={
        "max_position_embeddings": 2048, "num_attention_heads": 16, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    blocks=(
        ConfigClass("dbrx.attn_config", "DbrxAttentionConfig", {"kv_n_heads": 1}),
        ConfigClass(
            "dbrx.ffn_config",
            "DbrxFFNConfig",
            {
                "ffn_act_fn": None, "ffn_hidden_size": 3584, "moe_normalize_expert_weights": 1.0, "moe_num_experts": 4,
                "moe_top_k": 1,
            },
        ),
    ),
    modules={
        "embedding": "transformer.wte", "qkv": "norm_attn_norm.attn.Wqkv", "o": "norm_attn_norm.attn.out_proj",
        "router": "ffn.router.layer", "experts": "ffn.experts.mlp",
    },
)  # fmt: skip

ARCHITECTURES = (DBRX,)

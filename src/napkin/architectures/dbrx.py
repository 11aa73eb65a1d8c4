"""DBRX: fine-grained experts."""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention, Heads, QkvProjections, Rope
from napkin.architectures.blocks import LAYER_NO_BIAS, Routing, moe
from napkin.architectures.common import FUNCTIONS, balance_loss, chosen_experts, depth, head_size, kv_heads_of, width
from napkin.architectures.dimensions import decoder_of, dimensions_of
from napkin.architectures.record import Architecture, ConfigClass
from napkin.inputs.model import Config
from napkin.operations.implementations import SIGMOID_ROUTER
from napkin.operations.model import Layer, Model
from napkin.record import replace


def dbrx(config: Config) -> Model:
    """Return DBRX, whose config.json describes attention and experts in blocks of their own."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads, own=False)
    inside = config.nested("attn_config", "dbrx.attn_config")
    kv_heads = kv_heads_of(inside, heads, "kv_n_heads")
    config.must_be("num_key_value_heads", kv_heads)
    clamp = inside.real("clip_qkv", required=False) is not None
    inside.ignore("model_type")
    length = config.optional_integer("max_position_embeddings")
    sizes = dimensions_of(config, hidden, layers, heads, kv_heads, head_dim, length)
    ffn = config.nested("ffn_config", "dbrx.ffn_config")
    ffn.ignore("model_type", "tie_word_embeddings", "uniform_expert_assignment")
    ffn.must_be("hidden_size", hidden)
    named = ffn.mapping("ffn_act_fn", required=False) or {"name": "silu"}
    function = named.get("name")
    if function not in FUNCTIONS:
        raise ffn.refuse("ffn_act_fn", f"napkin does not know {function!r}")
    experts, top_k = chosen_experts(ffn, "moe_num_experts", "moe_top_k")
    attend = Attention(
        Heads(hidden, heads, kv_heads, head_dim), QkvProjections(fused=True, clamped=clamp), rope=Rope(head_dim)
    )
    feed = partial(
        moe,
        width=hidden,
        inner=ffn.integer("ffn_hidden_size"),
        routing=Routing(
            experts,
            top_k,
            normalize=ffn.real("moe_normalize_expert_weights", required=False) is not None,
            jitter=1 if ffn.real("moe_jitter_eps", required=False) else 0,
        ),
        function=str(function),
    )
    layer = Layer("moe", pre_norm(hidden, LAYER_NO_BIAS, attend, feed, dropout=(True, True)))
    balance = balance_loss(config, experts, top_k)
    return decoder_of(sizes, ((layers, layer),), LAYER_NO_BIAS, balance=balance)


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
    implementation=replace(SIGMOID_ROUTER, new_shares=True, looped="apart"),
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
)  # fmt: skip

ARCHITECTURES = (DBRX,)

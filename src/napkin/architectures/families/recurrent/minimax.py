"""MiniMax-01: lightning attention next to softmax attention, and mixtures of experts.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Rope, Scores
from napkin.architectures.blocks import Routing, moe
from napkin.architectures.reading import FULL, activation, balance_loss, rotary_dim
from napkin.architectures.record import Architecture, like
from napkin.architectures.recurrent_blocks import lightning
from napkin.architectures.recurrent_parts import LINEAR, Hybrid, grouped_sizes, heads_of, hybrid, kinds
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.record import replace


def minimax(config: Config) -> Model:
    """Return MiniMax-01 (arXiv:2501.08313): lightning attention, full attention at some depths, mixtures of experts in
    all layers."""
    return hybrid(_read(config))


def _read(config: Config) -> Hybrid:
    sizes, function = grouped_sizes(config), activation(config, "hidden_act")
    attention = Attention(
        heads_of(sizes),
        scores=Scores(window=config.optional_integer("sliding_window")),
        rope=Rope(rotary_dim(config, sizes.head_dim, 1.0)),
    )
    mix = partial(
        lightning,
        width=sizes.hidden,
        heads=sizes.heads,
        head_dim=sizes.head_dim,
        chunk=config.integer("block_size"),
        function=function,
    )
    routing = _routing(config)
    inner = config.integer("intermediate_size")
    feed = partial(moe, width=sizes.hidden, inner=inner, routing=routing, function=function)
    listed = kinds(
        config,
        "layer_types",
        sizes.layers,
        (LINEAR, FULL),
        lambda: [(FULL, LINEAR)[i % 2] for i in range(sizes.layers)],
    )
    return Hybrid(
        sizes,
        tuple(("attention" if kind == FULL else "lightning", "") for kind in listed),
        {"attention": attention, "lightning": mix},
        {"": feed},
        arrangement=partial(pre_norm, scale=True, residual_after_norm=True),
        balance=balance_loss(config, routing.experts, routing.top_k),
    )


def _routing(config: Config) -> Routing:
    experts = config.integer("num_local_experts")
    top_k = min(config.integer("num_experts_per_tok"), experts)
    jitter = 1 if config.real("router_jitter_noise", required=False) else 0
    return Routing(experts, top_k, normalize=True, jitter=jitter)


def as_published(config: Config) -> Model:
    """Return MiniMax-Text-01 or M1 as their own code builds it (modeling_minimax_text_01.py): the file lists 1 for a
    layer with full attention, and has no experts for all tokens."""
    listed = config.items("attn_type_list") or []
    if any(kind not in (0, 1) or isinstance(kind, bool) for kind in listed):
        raise config.wrong("attn_type_list", "is not a list of 0 and 1")
    config.restate("layer_types", [(LINEAR, FULL)[kind] for kind in listed])
    config.must_be("shared_intermediate_size", 0)
    config.must_be("postnorm", True)
    config.ignore("shared_moe_mode", *(field for field in config.fields if field.startswith("layernorm_")))
    return minimax(config)


MINIMAX = Architecture(
    "minimax",
    minimax,
    config_class="MiniMaxConfig",
    aliases={"num_experts": "num_local_experts"},
    defaults={
        "block_size": 256, "head_dim": None, "hidden_act": "silu", "intermediate_size": 14336, "layer_types": None,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    implementation=replace(HF, mixer="torch", router="scores"),
    modules={
        "mixer_qkv_proj": "self_attn.qkv_proj", "mixer_output_gate": "self_attn.output_gate",
        "mixer_out_proj": "self_attn.out_proj",
    },
)  # fmt: skip

TEXT_01 = like(MINIMAX, "minimax_text_01", build=as_published, config_class="")
M1 = like(TEXT_01, "minimax_m1")

ARCHITECTURES = (MINIMAX, TEXT_01, M1)

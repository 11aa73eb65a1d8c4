"""Laguna (poolside)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.attention import Attention, Gate, Rope
from napkin.architectures.blocks import RMS, Routing, moe
from napkin.architectures.decoder import Decoder, NormedHeads, Vary
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.layer_plans import AS_LISTED, Plan, by_type
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.reading import FULL, WINDOWED, depth, in_pairs, indices, rope_of
from napkin.architectures.record import Architecture
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.expert_kernels import new_shares
from napkin.operations.implementations import PARTIAL_ROTARY
from napkin.operations.model import Model
from napkin.record import replace


def laguna(config: Config) -> Model:
    """Return Laguna: heads by the layer, gated attention, sigmoid routing; layers with a window rotate whole heads, the
    others half of them."""
    layers, kv_heads = depth(config), config.integer("num_key_value_heads")
    heads_of = config.items("num_attention_heads_per_layer", required=False) or []
    if heads_of and len(heads_of) != layers:
        raise config.wrong("num_attention_heads_per_layer", f"has {len(heads_of)} entries for {layers} layers")
    for own in heads_of:
        if isinstance(own, bool) or not isinstance(own, int) or not 0 < own <= 10**6 or own % kv_heads:
            what = f"{printable(repr(own), 40)} is not a multiple of {kv_heads} key/value heads"
            raise config.wrong("num_attention_heads_per_layer", what)
    dense = indices(config, "mlp_only_layers", layers)
    if config.has("mlp_only_layers") and dense != {i for i in range(layers) if not by_type(config, layers)(i)}:
        raise config.wrong("mlp_only_layers", "names other layers than mlp_layer_types has as dense")
    per_head = config.raw("gating") != "per-element"

    def plans(config: Config, plans: Sequence[Plan]) -> Sequence[Plan]:
        return [one._replace(heads=own) for one, own in zip(plans, heads_of, strict=True)] if heads_of else plans

    def attention(config: Config, usual: Attention) -> Attention:
        return replace(usual, gate=Gate(per_head=per_head, function="softplus", upcast=True))

    return replace(_LAGUNA, plans=plans, attention=attention)(config)


def _by_kind(config: Config, sizes: Dimensions) -> Vary:
    """Read which part of its heads each layer type rotates; a layer may also have its own number of heads."""
    dims = {}
    for kind, part in ((FULL, 0.5), (WINDOWED, 1.0)):
        entry = rope_of(config, kind, {"partial_rotary_factor": part}) or {}
        dims[kind] = in_pairs(config, sizes.head_dim, entry.get("partial_rotary_factor", 1.0))

    def vary(usual: Attention, plan: Plan) -> Attention:
        own = replace(usual.heads, heads=plan.heads or usual.heads.heads)
        return replace(usual, heads=own, rope=Rope(dims[WINDOWED if plan.window else FULL]))

    return vary


def _softcapped(config: Config, routing: Routing) -> Routing:
    """Cap the router's logits softly where the field is more than 0."""
    return replace(routing, softcap=(config.real("moe_router_logit_softcapping", required=False) or 0) > 0)


_LAGUNA = Decoder(
    bias="attention_bias",
    out_bias="attention_bias",
    qk_norm=NormedHeads(RMS),
    windows=replace(AS_LISTED, required=True),
    layer=_by_kind,
    experts=Mixture(
        "num_experts",
        where=by_type,
        shared=as_wide_as("shared_expert_intermediate_size"),
        score="sigmoid",
        normalize=True,
        balanced="parameter",
        balances=True,
        routing=_softcapped,
        block=partial(moe, scaled=True),
    ),
    only=(
        ("norm_topk_prob", (True,)),
        ("moe_apply_router_weight_on_input", (False,)),
        ("gating", (True, "per-head", "per-element")),
    ),
)

LAGUNA = Architecture(
    "laguna",
    laguna,
    config_class="LagunaConfig",
    implementation=replace(PARTIAL_ROTARY, by_kind=True, router="tokens", shares=new_shares, fp32_logits=True),
    defaults={
        "attention_bias": False, "gating": True, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 8192,
        "layer_types": None, "max_position_embeddings": 131072, "mlp_layer_types": None,
        "moe_intermediate_size": 512, "num_attention_heads": 48, "num_attention_heads_per_layer": None,
        "num_experts": 256, "num_experts_per_tok": 8, "num_key_value_heads": 8,
        "shared_expert_intermediate_size": 512, "sliding_window": 512, "tie_word_embeddings": False,
        "vocab_size": 100352,
    },
    modules={
        "gate_logit": "self_attn.g_proj",
    },
)  # fmt: skip

ARCHITECTURES = (LAGUNA,)

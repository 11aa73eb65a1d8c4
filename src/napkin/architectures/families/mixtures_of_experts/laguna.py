"""Laguna (poolside) and Step (StepFun)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Gate, Rope
from napkin.architectures.blocks import RMS, RMS_OFFSET, Routing, moe
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import NormedHeads, Vary
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.layer_plans import AS_LISTED, Plan, by_type, listed_or
from napkin.architectures.mixture import Mixture, as_wide_as
from napkin.architectures.reading import FULL, WINDOWED, depth, in_pairs, indices, rope_of
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.load import printable
from napkin.inputs.model import Config, number_in
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
        return [replace(one, heads=own) for one, own in zip(plans, heads_of, strict=True)] if heads_of else plans

    def attention(config: Config, usual: Attention) -> Attention:
        return replace(usual, gate=Gate(per_head=per_head, function="softplus", upcast=True))

    return replace(_LAGUNA, plans=plans, attention=attention)(config)


def _by_kind(config: Config, sizes: Dimensions) -> Vary:
    """Read which part of its heads each layer type rotates; a layer may also have its own number of heads."""
    dims = {}
    for kind, part in ((FULL, 0.5), (WINDOWED, 1.0)):
        entry = rope_of(config, kind, {"partial_rotary_factor": part}) or {}
        dims[kind] = in_pairs(config, sizes.head_dim, entry.get("partial_rotary_factor", 1.0))

    return _rotated_by_kind(dims)


def _rotated_by_kind(dims: Mapping[str, int]) -> Vary:
    """Return attention that rotates `dims` elements of a head by layer type, with a layer's own number of heads."""

    def vary(usual: Attention, plan: Plan) -> Attention:
        own = replace(usual.heads, heads=plan.heads or usual.heads.heads)
        return replace(usual, heads=own, rope=Rope(dims[WINDOWED if plan.window else FULL]))

    return vary


def _softcapped(config: Config, routing: Routing) -> Routing:
    """Cap the router's logits softly if the field is more than 0."""
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
        block=partial(moe, scaled=True, shared_first=True),
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


def step3p7(config: Config) -> Model:
    """Return Step-3.5 and Step-3.7's language model: gated attention with heads of their own in layers with a window,
    sigmoid routing, a shared expert."""
    layers, heads = depth(config), config.integer("num_attention_heads")
    config.ignore("query_pre_attn_scalar", "moe_router_scaling_factor", "mtp_layer_types", "mtp_mlp_layer_types")
    config.ignore("partial_rotary_factors", "use_moe", "use_moe_router_bias", "use_head_wise_attn_gate")
    for field in ("layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared"):
        given = config.fields.get(field)
        if isinstance(given, list) and len(given) > layers:  # the rest are of multi-token prediction modules
            config.restate(field, given[:layers])
    if config.raw("moe_layers_enum", required=False) is not None and not config.has("mlp_layer_types"):
        config.restate("mlp_layer_types", _named_sparse(config, layers))
    own = _windowed_heads(config, heads)
    per_head = config.raw("gating", required=False) in (None, True, "per-head")
    clamped = any(
        isinstance(limit, (int, float)) and limit for limit in config.items("swiglu_limits", required=False) or ()
    )
    config.ignore("swiglu_limits_shared")
    if clamped:
        config.notes.append("swiglu_limits: the clamps of its layers are not counted")

    def plans(config: Config, plans: Sequence[Plan]) -> Sequence[Plan]:
        return [replace(one, heads=own if one.window else heads) for one in plans] if own != heads else plans

    def attention(config: Config, usual: Attention) -> Attention:
        return replace(usual, gate=Gate(per_head=per_head))

    return replace(_STEP, plans=plans, attention=attention)(config)


def _named_sparse(config: Config, layers: int) -> list[str]:
    """Return which layers have experts, from their numbers in moe_layers_enum (a list, or a text with commas)."""
    given = config.raw("moe_layers_enum")
    numbers = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else []
    found = {number_in(one.strip() if isinstance(one, str) else one) for one in numbers}
    return ["sparse" if i in found else "dense" for i in range(layers)]


def _windowed_heads(config: Config, heads: int) -> int:
    """Read the query heads of layers with a window."""
    config.ignore("per_layer_config")  # repeats it for each layer
    stated = config.optional_integer("num_sliding_attention_heads")
    block = config.mapping("attention_other_setting", required=False) or {}
    other = number_in(block.get("num_attention_heads", heads))
    if stated is None and (isinstance(other, bool) or not isinstance(other, int) or not 0 < other <= 10**6):
        raise config.wrong("attention_other_setting", f"{printable(repr(other), 40)} is not a number of heads")
    return other if stated is None else stated


def _rotated_parts(config: Config, sizes: Dimensions) -> Vary:
    """Read which part of its heads each layer type rotates, from rope_parameters or from a list with each layer's."""
    by_kind = config.mapping("rope_parameters", required=False) or {}
    by_layer = config.items("partial_rotary_factors", required=False) or []
    kinds = config.items("layer_types", required=False) or [FULL] * sizes.layers
    dims = {}
    for kind in (FULL, WINDOWED):
        entry = by_kind.get(kind)
        part = entry.get("partial_rotary_factor", 1.0) if isinstance(entry, dict) else 1.0
        if kind in kinds and kinds.index(kind) < len(by_layer):
            part = by_layer[kinds.index(kind)]
        dims[kind] = in_pairs(config, sizes.head_dim, part)

    return _rotated_by_kind(dims)


def _after_three(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in all layers but the first three."""
    return lambda i: i >= 3


_STEP = Decoder(
    norm=RMS_OFFSET,
    bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias="mlp_bias",
    qk_norm=NormedHeads(RMS_OFFSET),
    windows=replace(AS_LISTED, required=True),
    layer=_rotated_parts,
    experts=Mixture(
        "n_routed_experts",
        where=listed_or(_after_three),
        shared=as_wide_as("share_expert_dim"),
        score="sigmoid",
        normalize=True,
        balanced="buffer",
        block=partial(moe, scaled=True),
    ),
    predicts=True,
)


STEP3P5 = Architecture(
    "step3p5",
    step3p7,
    config_class="Step3p7TextConfig",
    aliases={
        "num_local_experts": "n_routed_experts", "moe_num_experts": "n_routed_experts",
        "num_attention_groups": "num_key_value_heads", "moe_top_k": "num_experts_per_tok",
        "share_expert_dims": "share_expert_dim", "num_mtp_layers": "num_nextn_predict_layers",
    },
    implementation=replace(PARTIAL_ROTARY, by_kind=True, router="tokens"),
    wrappers=(Wrapper("step3p7"),),
    defaults={
        "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "intermediate_size": 11264,
        "layer_types": None, "max_position_embeddings": 128000, "mlp_bias": False, "mlp_layer_types": None,
        "moe_intermediate_size": 1280, "n_routed_experts": 288, "num_attention_heads": 64, "num_experts_per_tok": 8,
        "num_key_value_heads": 8, "num_sliding_attention_heads": None, "share_expert_dim": 1280,
        "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 128815,
    },
    modules={
        "gate_logit": "self_attn.g_proj",
    },
)  # fmt: skip

ARCHITECTURES = (LAGUNA, STEP3P5)

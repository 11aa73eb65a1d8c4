"""Decoders whose layers differ in more than their window: in heads, in rotary positions, in whether they rotate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from napkin.architectures import common
from napkin.architectures.attention import Attention, Gate, Rope
from napkin.architectures.blocks import LAYER_FP32, RMS, RMS_FP32, Block, Operations
from napkin.architectures.common import FULL, WINDOWED
from napkin.architectures.decoder import Plan, decoder
from napkin.architectures.decoders import COHERE, SIGMOID_MOE
from napkin.architectures.traits import Mixture, Pattern, Traits, by_type, listed_types, unchanged
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.model import Model
from napkin.operations.pointwise import Scale
from napkin.record import replace


def rotates(config: Config, kinds: Sequence[str], sparse: Sequence[bool]) -> list[bool]:
    """Layers whose kind of attention has rotary positions: without the field, those with a window."""
    turned = {kind: common.rope_of(config, kind, {} if kind == WINDOWED else None) is not None for kind in set(kinds)}
    return [turned[kind] for kind in kinds]


def everywhere(config: Config, kinds: Sequence[str], sparse: Sequence[bool]) -> list[bool]:
    return [True] * len(kinds)


def laid_out(kind: Callable[[int, int], str]) -> Pattern:
    """The attention of layer i of n, where config.json does not list it."""
    return lambda config, layers: lambda i: kind(i, layers)


def mimo_v2_flash(config: Config) -> Model:
    """MiMo-V2-Flash (Xiaomi, arXiv:2601.02780): layers with a window have twice the key/value heads of the others, and
    sinks. Values have heads of their own size, scaled; a part of each head rotates."""
    heads, kv_heads = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    if heads % (2 * kv_heads):
        raise config.wrong("num_key_value_heads", f"twice {kv_heads}, of a window, does not divide {heads} heads")
    head_dim = config.integer("head_dim")
    told = {
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": 2 * kv_heads,
        "swa_head_dim": head_dim,
        "swa_v_head_dim": config.integer("v_head_dim"),
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "scoring_func": "sigmoid",
        "n_shared_experts": 0,
    }
    for field, value in told.items():
        config.must_be(field, value)
    config.ignore("topk_method", "attention_value_scale", "attention_chunk_size", "hybrid_block_size")
    before = config.optional_integer("sliding_window_size")  # the query's own key comes on top
    if before is not None:
        config.ignore("sliding_window")
        config.fields = {**config.fields, "sliding_window": before + 1}
    dims = {}
    for kind in (FULL, WINDOWED):
        flat = config.real("partial_rotary_factor", required=False)
        entry = common.rope_of(config, kind, {"partial_rotary_factor": flat}) or {}
        share = entry.get("partial_rotary_factor")
        plain = entry.get("rope_type", "default") == "default"
        dims[kind] = common.in_pairs(config, head_dim, (0.334 if plain else 1.0) if share is None else share)

    def vary(usual: Attention, plan: Plan) -> Attention:
        if plan.window is None:
            return replace(usual, rope=Rope(dims[FULL]))
        doubled = replace(usual.heads, kv_heads=2 * kv_heads)
        return replace(usual, heads=doubled, rope=Rope(dims[WINDOWED])).scored(sinks=True)

    traits = Traits(
        bias="attention_bias",
        windows=_mimo_attention,
        rotates=everywhere,
        value_dim="v_head_dim",
        value_scale=True,
        moe=replace(SIGMOID_MOE, where=_mimo_experts, shared="", shared_field=""),
    )
    return decoder(config, traits, vary=vary)


def _mimo_attention(config: Config, layers: int) -> Callable[[int], str]:
    """Full attention in the first and each sixth layer; the published file says it by hybrid_layer_pattern."""
    given = _ones(config, "hybrid_layer_pattern", layers)
    return lambda i: (WINDOWED if given[i] else FULL) if given else WINDOWED if i and (i + 1) % 6 else FULL


def _mimo_experts(config: Config, layers: int) -> Callable[[int], bool]:
    """All but the first layer; the published file says it by moe_layer_freq, one entry a layer."""
    given = None if config.has("mlp_layer_types") else _ones(config, "moe_layer_freq", layers)
    if given is None:
        config.ignore("moe_layer_freq")
        listed = config.items("mlp_layer_types", required=False)
        return listed_types(config, layers, listed) if listed else lambda i: i > 0
    return lambda i: given[i] == 1


def _ones(config: Config, field: str, layers: int) -> list[Any] | None:
    given = config.items(field, required=False)
    if given is not None and (len(given) != layers or any(entry not in (0, 1) for entry in given)):
        raise config.wrong(field, f"is not a list of {layers} times 0 or 1")
    return given


def laguna(config: Config) -> Model:
    """Laguna (poolside): heads by the layer, gated attention, sigmoid routing; layers with a window rotate whole heads,
    the others half of them."""
    layers, kv_heads = common.depth(config), config.integer("num_key_value_heads")
    heads_of = config.items("num_attention_heads_per_layer", required=False) or []
    if heads_of and len(heads_of) != layers:
        raise config.wrong("num_attention_heads_per_layer", f"has {len(heads_of)} entries for {layers} layers")
    for own in heads_of:
        if isinstance(own, bool) or not isinstance(own, int) or not 0 < own <= 10**6 or own % kv_heads:
            what = f"{printable(repr(own), 40)} is not a multiple of {kv_heads} key/value heads"
            raise config.wrong("num_attention_heads_per_layer", what)
    dense = common.indices(config, "mlp_only_layers", layers)
    if config.has("mlp_only_layers") and dense != {i for i in range(layers) if not by_type(config, layers)(i)}:
        raise config.wrong("mlp_only_layers", "names other layers than mlp_layer_types has as dense")
    config.must_be("norm_topk_prob", True)
    config.must_be("moe_apply_router_weight_on_input", False)
    config.must_be("gating", True, "per-head", "per-element")
    head_dim = common.head_size(config, common.width(config), config.integer("num_attention_heads"))
    dims = {}
    for kind, share in ((FULL, 0.5), (WINDOWED, 1.0)):
        entry = common.rope_of(config, kind, {"partial_rotary_factor": share}) or {}
        dims[kind] = common.in_pairs(config, head_dim, entry.get("partial_rotary_factor", 1.0))
    traits = Traits(
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=RMS,
        windows=laid_out(lambda i, layers: FULL),
        rotates=everywhere,
        gate=Gate(per_head=config.raw("gating") != "per-element", function="softplus", upcast=True),
        moe=Mixture(
            "num_experts",
            where=by_type,
            shared="size",
            shared_field="shared_expert_intermediate_size",
            score="sigmoid",
            normalise=True,
            balanced="parameter",
            balances=True,
            softcap="moe_router_logit_softcapping",
            scaled=True,
        ),
    )

    def vary(usual: Attention, plan: Plan) -> Attention:
        return replace(usual, rope=Rope(dims[WINDOWED if plan.window else FULL]))

    return decoder(config, traits, heads_of=heads_of, vary=vary)


def beam(config: Config) -> Model:
    """Beam (reflection): four norms a layer around residuals scaled by depth, gated attention, rotary positions in
    layers with a window alone; activations and products of the feed-forward in fp32."""
    traits = Traits(
        norm=RMS_FP32,
        arrangement="sandwich",
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=RMS_FP32,
        windows=laid_out(lambda i, layers: WINDOWED if (i + 1) % 6 and i + 1 < layers else FULL),
        rotates=rotates,
        gate=Gate(head_bias=True),
        tempered=True,
        residual_scale=True,
        wide_product=True,
        final_softcap="final_logit_softcapping",
        wide_final_cap=True,
        moe=replace(
            SIGMOID_MOE,
            experts="num_experts",
            where=_beam_experts,
            shared="",
            shared_field="",
            scaled=True,
            wide_product=True,
        ),
    )
    return decoder(config, traits)


def _beam_experts(config: Config, layers: int) -> Callable[[int], bool]:
    given = config.items("mlp_layer_types", required=False)
    return listed_types(config, layers, given) if given is not None else lambda i: i >= 3


def cohere2_moe(config: Config) -> Model:
    """Command A+ (Cohere): parallel branches, experts behind a dense prefix whose pattern of windows is its own; rotary
    positions in layers with a window, and in all of the prefix where it has none."""
    prefix = config.optional_integer("first_k_dense_replace", least=0) or 0
    own = config.integer("prefix_dense_sliding_window_pattern")
    period = config.integer("sliding_window_pattern")
    strategy = config.text("shared_expert_combination_strategy", known=("average", "sum"))
    choose = config.text("expert_selection_fn", known=("softmax", "sigmoid"))

    def kind(i: int, layers: int) -> str:
        place, turn = (i, own) if i < prefix else (i - prefix, period)
        return WINDOWED if (place + 1) % turn else FULL

    def experts(config: Config, layers: int) -> Callable[[int], bool]:
        given = config.items("mlp_layer_types", required=False)
        return listed_types(config, layers, given) if given is not None else lambda i: i >= prefix

    def turned(config: Config, kinds: Sequence[str], sparse: Sequence[bool]) -> list[bool]:
        return [one == WINDOWED or (own == 1 and not has) for one, has in zip(kinds, sparse, strict=True)]

    narrow = config.optional_integer("prefix_dense_intermediate_size") is not None
    config.ignore("prefix_dense_intermediate_size")
    rms = config.real("rms_norm_eps", required=False) is not None
    for field, value in (("use_qk_norm", False), ("use_parallel_block", True), ("use_gated_activation", True)):
        config.must_be(field, value)
    config.ignore("position_embedding_type", "use_embedding_sharing", "use_parallel_embedding")
    traits = replace(
        COHERE,
        norm=RMS if rms else LAYER_FP32,
        inner="prefix_dense_intermediate_size" if narrow else "intermediate_size",
        windows=laid_out(kind),
        rotates=turned,
        moe=Mixture(
            "num_experts",
            inner="intermediate_size",
            where=experts,
            shared="count",
            shared_field="num_shared_experts",
            score=f"{choose}_top_k",
            normalise="norm_topk_prob" if choose == "sigmoid" else False,
            with_shared=averaged if strategy == "average" else unchanged,
        ),
    )
    config.ignore("norm_topk_prob")
    return decoder(config, traits)


def averaged(block: Block, width: int) -> Block:
    """Return the mixture whose sum with the shared experts is divided by two."""

    def halved(source: str) -> Operations:
        *operations, total = block(source)
        return (*operations, replace(total, name="moe_sum"), Scale("moe", ("moe_sum",), width))

    return halved


def cohere_compass(config: Config) -> Model:
    """The text decoder of North Vision (Cohere): Command's parallel branches, positions by the kind of attention."""
    traits = replace(
        COHERE,
        own_head_dim=False,
        rope="half",
        rope_upcast=False,
        windows=laid_out(lambda i, layers: FULL),
        rotates=rotates,
    )
    return decoder(config, traits)

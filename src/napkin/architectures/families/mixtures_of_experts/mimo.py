"""MiMo-V2-Flash (Xiaomi, arXiv:2601.02780)."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Rope, Scaling
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Vary
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.layer_plans import Plan, Windows, all_sparse, listed_or
from napkin.architectures.mixture import SIGMOID
from napkin.architectures.reading import FULL, WINDOWED, in_pairs, rope_of
from napkin.architectures.record import Architecture
from napkin.inputs.model import Config
from napkin.operations.implementations import EAGER, FP32_ROUTER
from napkin.operations.model import Model
from napkin.record import replace


def mimo_v2_flash(config: Config) -> Model:
    """Return MiMo-V2-Flash: layers with a window have twice the key/value heads of the others, and sinks. Values have
    heads of their own size, scaled; a part of each head rotates."""
    heads, kv_heads = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    if heads % (2 * kv_heads):
        raise config.wrong("num_key_value_heads", f"twice {kv_heads}, of a window, does not divide {heads} heads")
    told = {
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": 2 * kv_heads,
        "swa_head_dim": config.integer("head_dim"),
        "swa_v_head_dim": config.integer("v_head_dim"),
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "scoring_func": "sigmoid",
        "n_shared_experts": 0,
    }
    for field, value in told.items():
        config.must_be(field, value)
    config.ignore("topk_method", "attention_value_scale", "attention_chunk_size", "hybrid_block_size")
    before = config.optional_integer("sliding_window_size")  # in addition to the query's own key
    if before is not None:
        config.ignore("sliding_window")
        config.restate("sliding_window", before + 1)
    return _MIMO(config)


def _values(config: Config, usual: Attention) -> Attention:
    """Give values heads of their own size, multiplied by a constant."""
    return replace(usual, heads=replace(usual.heads, v_dim=config.integer("v_head_dim")), scaling=Scaling(values=True))


def _by_kind(config: Config, sizes: Dimensions) -> Vary:
    """Read which part of its heads each layer type rotates; with a window, twice the key/value heads, and sinks."""
    dims = {}
    for kind in (FULL, WINDOWED):
        flat = config.real("partial_rotary_factor", required=False)
        entry = rope_of(config, kind, {"partial_rotary_factor": flat}) or {}
        part = entry.get("partial_rotary_factor")
        plain = entry.get("rope_type", "default") == "default"
        dims[kind] = in_pairs(config, sizes.head_dim, (0.334 if plain else 1.0) if part is None else part)

    def vary(usual: Attention, plan: Plan) -> Attention:
        if plan.window is None:
            return replace(usual, rope=Rope(dims[FULL]))
        doubled = replace(usual.heads, kv_heads=2 * sizes.kv_heads)
        return replace(usual, heads=doubled, rope=Rope(dims[WINDOWED])).scored(sinks=True)

    return vary


def _windows(config: Config, layers: int) -> Callable[[int], str]:
    """Full attention in the first and each sixth layer; the published file says it by hybrid_layer_pattern."""
    given = _ones(config, "hybrid_layer_pattern", layers)
    return lambda i: (WINDOWED if given[i] else FULL) if given else WINDOWED if i and (i + 1) % 6 else FULL


def _experts(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in all but the first layer; the published file says it by moe_layer_freq, one entry per layer."""
    given = None if config.has("mlp_layer_types") else _ones(config, "moe_layer_freq", layers)
    if given is None:
        config.ignore("moe_layer_freq")
        listed = bool(config.items("mlp_layer_types", required=False))
        return listed_or(all_sparse)(config, layers) if listed else lambda i: i > 0
    return lambda i: given[i] == 1


def _ones(config: Config, field: str, layers: int) -> list[object] | None:
    given = config.items(field, required=False)
    if given is not None and (len(given) != layers or any(entry not in (0, 1) for entry in given)):
        raise config.wrong(field, f"is not a list of {layers} times 0 or 1")
    return given


_MIMO = Decoder(
    bias="attention_bias",
    windows=Windows(_windows, required=True),
    attention=_values,
    layer=_by_kind,
    experts=replace(SIGMOID, where=_experts, shared=None),
)

MIMO = Architecture(
    "mimo_v2_flash",
    mimo_v2_flash,
    config_class="MiMoV2FlashConfig",
    aliases={"num_local_experts": "n_routed_experts"},
    implementation=replace(
        FP32_ROUTER, softmax="native", sinks="always shifted", joins=True, by_kind=True, kernels=(EAGER,)
    ),
    defaults={
        "attention_bias": False, "head_dim": 192, "hidden_act": "silu", "intermediate_size": 16384,
        "layer_types": None, "max_position_embeddings": 131072, "mlp_layer_types": None,
        "moe_intermediate_size": 2048, "n_group": 1, "n_routed_experts": 256, "norm_topk_prob": True,
        "num_attention_heads": 64, "num_experts_per_tok": 8, "num_key_value_heads": 4, "sliding_window": 129,
        "tie_word_embeddings": False, "topk_group": 1, "v_head_dim": 128, "vocab_size": 152576,
    },
)  # fmt: skip

ARCHITECTURES = (MIMO,)

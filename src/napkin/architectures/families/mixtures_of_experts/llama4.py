"""Llama 4: chunks of attention in layers with rotary positions, queries scaled by position in the others."""

from __future__ import annotations

from collections.abc import Callable

from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Scaling
from napkin.architectures.blocks import RMS_BARE
from napkin.architectures.decoder import Decoder
from napkin.architectures.decoder_parts import Inner, NormedHeads, RotaryPositions, Vary
from napkin.architectures.dimensions import Dimensions
from napkin.architectures.layer_plans import Plan, Seen, but_each
from napkin.architectures.mixture import Mixture, Shared
from napkin.architectures.reading import CHUNKED, FULL, indices, layer_types
from napkin.architectures.record import Architecture, Wrapper
from napkin.inputs.model import Config
from napkin.operations.implementations import HF, ROUTED
from napkin.record import replace


def _chunks(config: Config, layers: int) -> Seen:
    """Attention in chunks if there are rotary positions, as layer_types lists them or by no_rope_layers."""
    chunk = config.optional_integer("attention_chunk_size")
    tables = _ROTATES(config, Seen(), [False] * layers)
    return Seen(layer_types(config, layers, lambda i: FULL if tables[i] is None else CHUNKED), chunk=chunk)


def _listed(config: Config, layers: int) -> Callable[[int], bool]:
    """Experts in the layers listed in moe_layers, or in each n-th one."""
    if config.has("moe_layers"):
        config.ignore("interleave_moe_layer_step")
        chosen = indices(config, "moe_layers", layers)
        return lambda i: i in chosen
    step = config.integer("interleave_moe_layer_step")
    return lambda i: (i + 1) % step == 0


def _by_position(config: Config, sizes: Dimensions) -> Vary:
    """Layers without rotary positions have no norms of queries and keys, and may scale queries by their position."""
    scaled = config.flag("attn_temperature_tuning", otherwise=True)

    def vary(usual: Attention, plan: Plan) -> Attention:
        if plan.table is not None:
            return usual
        return replace(usual, norm=None, scaling=Scaling(by_position=scaled))

    return vary


_ROTATES = but_each("no_rope_layer_interval")

LLAMA4 = Architecture(
    "llama4_text",
    Decoder(
        bias="attention_bias",
        out_bias="attention_bias",
        rotary=RotaryPositions("complex", upcast=True),
        rotates=_ROTATES,
        windows=_chunks,
        qk_norm=NormedHeads(RMS_BARE, after_rope=True, switch="use_qk_norm"),
        layer=_by_position,
        inner=Inner("intermediate_size_mlp"),
        experts=Mixture(
            inner="intermediate_size",
            where=_listed,
            shared=Shared(lambda config, inner: inner),
            score="sigmoid",
            routing=lambda config, routing: replace(routing, weighted_input=True),
        ),
        ignored=("for_llm_compressor",),
    ),
    config_class="Llama4TextConfig",
    implementation=replace(HF, softmax="native", linear_router=True, unrouted=True, registers_first=(ROUTED,)),
    wrappers=(Wrapper("llama4", path="language_model.model", config_class="Llama4Config"),),
    defaults={
        "attention_bias": False, "attention_chunk_size": 8192, "head_dim": 128, "hidden_act": "silu",
        "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "layer_types": None, "max_position_embeddings": 131072, "moe_layers": None, "num_attention_heads": 40,
        "num_experts_per_tok": 1, "num_key_value_heads": 8, "num_local_experts": 16, "tie_word_embeddings": False,
        "use_qk_norm": True, "vocab_size": 202048,
    },
    modules={
        "gate": "feed_forward.gate_proj", "up": "feed_forward.up_proj", "down": "feed_forward.down_proj",
        "router": "feed_forward.router", "experts": "feed_forward.experts",
        "shared/gate": "feed_forward.shared_expert.gate_proj", "shared/up": "feed_forward.shared_expert.up_proj",
        "shared/down": "feed_forward.shared_expert.down_proj",
    },
)  # fmt: skip

ARCHITECTURES = (LLAMA4,)

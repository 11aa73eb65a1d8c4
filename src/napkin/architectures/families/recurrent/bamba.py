"""Bamba, Falcon-H1 and Granite 4: Mamba-2 next to attention.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention_parts import Rope
from napkin.architectures.blocks import Block, Operations, Routing, gated_mlp, moe, shared_expert
from napkin.architectures.reading import FULL, activation, balance_loss, indices, on, width
from napkin.architectures.record import REQUIRED, Architecture, like
from napkin.architectures.recurrent_parts import (
    LINEAR,
    Hybrid,
    agree,
    grouped_attention,
    grouped_sizes,
    groups_of,
    hybrid,
    kinds,
)
from napkin.architectures.state_space import Ssd
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Model
from napkin.operations.pointwise import Add, Scale
from napkin.record import replace


def _ssd_mamba(config: Config, hidden: int, inner: int, **more: object) -> Block:
    """Read Mamba-2's mixer with the field names of Bamba, Falcon-H1 and Granite 4."""
    heads = config.integer("mamba_n_heads")
    per_head = config.divides("mamba_n_heads", inner, heads, "(the inner width)")
    if config.raw("mamba_d_head") != "auto" and config.integer("mamba_d_head") != per_head:
        raise config.wrong("mamba_d_head", f"{heads} heads of it are not the inner width {inner}")
    return Ssd(
        width=hidden,
        inner=inner,
        heads=heads,
        state=config.integer("mamba_d_state"),
        groups=groups_of(config, "mamba_n_groups", inner, heads),
        kernel=config.integer("mamba_d_conv"),
        chunk=config.integer("mamba_chunk_size"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        function=activation(config, "hidden_act"),
        **more,  # type: ignore[arg-type]
    )


def _gated_mlp(config: Config) -> Block:
    return partial(
        gated_mlp,
        width=width(config),
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_act"),
        bias=on(config, "mlp_bias"),
    )


def _words(listed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("attention" if kind == FULL else "mamba2", "") for kind in listed)


# --- Bamba -----------------------------------------------------------------------------------------------------------


def bamba(config: Config) -> Model:
    """Return Bamba: Mamba-2 layers, and attention at listed depths, each followed by a gated MLP."""
    return hybrid(_read_bamba(config))


def _read_bamba(config: Config) -> Hybrid:
    sizes = grouped_sizes(config)
    turning = sizes.head_dim // 2
    agree(config, attn_rotary_emb=turning)
    attending = indices(config, "attn_layer_indices", sizes.layers)
    listed = [FULL if i in attending else LINEAR for i in range(sizes.layers)]
    if config.has("layers_block_type"):
        stated = kinds(config, "layers_block_type", sizes.layers, (FULL, LINEAR), lambda: listed)
        if list(stated) != listed:
            raise config.refuse("layers_block_type", "contradicts attn_layer_indices")
    mixers: dict[str, Block] = {
        "attention": grouped_attention(sizes, Rope(turning), bias=on(config, "attention_bias")),
        "mamba2": _ssd_mamba(config, sizes.hidden, config.integer("mamba_expand") * sizes.hidden),
    }
    return Hybrid(sizes, _words(listed), mixers, {"": _gated_mlp(config)})


# --- Falcon-H1 -------------------------------------------------------------------------------------------------------


def falcon_h1(config: Config) -> Model:
    """Return Falcon-H1 (arXiv:2507.22448): in every layer attention and Mamba-2 side by side on one norm, then a gated
    MLP."""
    return hybrid(_read_falcon(config), scale=True, logits_scale=True)


def _read_falcon(config: Config) -> Hybrid:
    sizes = grouped_sizes(config)
    inner = config.optional_integer("mamba_d_ssm")
    if inner is None:
        inner = config.integer("mamba_expand") * sizes.hidden
    config.must_be("mamba_use_mlp", True)
    config.must_be("sliding_window", None)
    config.ignore("mamba_expand", "mlp_expansion_factor", "mamba_norm_before_gate", "time_step_rank")
    attention = grouped_attention(sizes, Rope(sizes.head_dim), bias=on(config, "attention_bias"))
    normed, out_bias = on(config, "mamba_rms_norm"), on(config, "projectors_bias")
    mix = _ssd_mamba(config, sizes.hidden, inner, normed=normed, out_bias=out_bias, scaled=True)
    both = partial(_side_by_side, mix=mix, attention=attention, hidden=sizes.hidden)
    return Hybrid(sizes, (("hybrid", ""),) * sizes.layers, {"hybrid": both}, {"": _gated_mlp(config)})


def _side_by_side(source: str, *, mix: Block, attention: Block, hidden: int) -> Operations:
    """Return mix(a·x) + attention(b·x), a and b constants."""
    mamba_branch, attention_branch = mix("mamba_input"), attention("attention_input")
    return (
        Scale("mamba_input", (source,), hidden),
        *mamba_branch,
        Scale("attention_input", (source,), hidden),
        *attention_branch,
        Add("branches", (mamba_branch[-1].name, attention_branch[-1].name), hidden),
    )


# --- Granite 4 -------------------------------------------------------------------------------------------------------


def granite_moe_hybrid(config: Config) -> Model:
    """Return Granite 4: Mamba-2 or attention, then an always-on gated MLP next to a mixture of experts if it has
    any."""
    return hybrid(_read_granite(config), scale=True, logits_scale=True)


def _read_granite(config: Config) -> Hybrid:
    sizes = grouped_sizes(config)
    config.must_be("normalization_function", "rmsnorm")
    config.must_be("init_method", "mup")
    positions = config.optional_text("position_embedding_type", known=("rope", "nope"))
    rope = Rope(sizes.head_dim) if positions == "rope" else None
    mixers: dict[str, Block] = {
        "attention": grouped_attention(sizes, rope, bias=on(config, "attention_bias")),
        "mamba2": _ssd_mamba(config, sizes.hidden, config.integer("mamba_expand") * sizes.hidden),
    }
    experts = config.integer("num_local_experts", least=0)
    routing = None
    if experts:
        routing = Routing(experts, min(config.integer("num_experts_per_tok"), experts), score="softmax_top_k")
    return Hybrid(
        sizes,
        _words(kinds(config, "layer_types", sizes.layers, (LINEAR, FULL), lambda: [LINEAR] * sizes.layers)),
        mixers,
        {"": _granite_feed(config, routing)},
        arrangement=partial(pre_norm, scale=True),
        balance=balance_loss(config, routing.experts, routing.top_k) if routing is not None else None,
    )


def _granite_feed(config: Config, routing: Routing | None) -> Block:
    hidden, function = width(config), activation(config, "hidden_act")
    inner = config.integer("shared_intermediate_size")
    shared = partial(gated_mlp, width=hidden, inner=inner, function=function, fused=True, prefix="shared/")
    if routing is None:
        config.ignore("intermediate_size", "num_experts_per_tok")
        return lambda source: shared_expert(shared(source))
    inner = config.integer("intermediate_size")
    return partial(moe, width=hidden, inner=inner, routing=routing, function=function, shared=shared)


BAMBA = Architecture(
    "bamba",
    bamba,
    config_class="BambaConfig",
    aliases={"layer_types": "layers_block_type"},
    defaults={
        "attention_bias": False, "attn_layer_indices": None, "hidden_act": "silu", "intermediate_size": 14336,
        "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": "auto",
        "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_proj_bias": False,
        "max_position_embeddings": 262144, "mlp_bias": False, "num_attention_heads": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": False, "vocab_size": 128000,
    },
    modules={
        "mixer_in_proj": "mamba.in_proj", "mixer_out_proj": "mamba.out_proj", "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj", "down": "feed_forward.down_proj",
    },
)  # fmt: skip
FALCON_H1 = like(
    BAMBA,
    "falcon_h1",
    build=falcon_h1,
    config_class="FalconH1Config",
    defaults={
        "mamba_d_ssm": 1024, "mamba_norm_before_gate": True, "mamba_rms_norm": False, "max_position_embeddings": 8192,
        "projectors_bias": False, "attn_layer_indices": REQUIRED,
    },
)  # fmt: skip
GRANITEMOEHYBRID = Architecture(
    "granitemoehybrid",
    granite_moe_hybrid,
    config_class="GraniteMoeHybridConfig",
    aliases={"layers_block_type": "layer_types"},
    defaults={
        "attention_bias": False, "hidden_act": "silu", "intermediate_size": 11008, "layer_types": None,
        "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": "auto",
        "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_proj_bias": False,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_key_value_heads": None, "num_local_experts": 8, "position_embedding_type": None,
        "shared_intermediate_size": 1024, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    implementation=replace(HF, router="tokens", fp32_logits=True, looped_in_4="joined"),
    modules={
        "router": "block_sparse_moe.router", "experts": "block_sparse_moe.experts",
        "shared/gate_up": "shared_mlp.input_linear", "shared/down": "shared_mlp.output_linear",
        "mixer_in_proj": "mamba.in_proj", "mixer_out_proj": "mamba.out_proj",
    },
)  # fmt: skip

ARCHITECTURES = (
    BAMBA,
    FALCON_H1,
    GRANITEMOEHYBRID,
)

"""Bamba, Falcon-H1 and Granite 4: Mamba-2 next to attention.

Fields and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Rope
from napkin.architectures.blocks import (
    RMS,
    Block,
    Operations,
    Routing,
    gated_mlp,
    moe,
    shared_expert,
)
from napkin.architectures.common import FULL, activation, depth, head_size, indices, kv_heads_of, on, runs_of, width
from napkin.architectures.mixing import (
    LINEAR,
    agree,
    grouped_attention,
    groups_of,
    kinds,
    network,
)
from napkin.architectures.record import REQUIRED, Architecture, like
from napkin.architectures.recurrent_blocks import ssd
from napkin.inputs.model import Config
from napkin.operations.implementations import HF
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add, Scale
from napkin.record import replace


def _ssd_mamba(config: Config, hidden: int, inner: int, **more: object) -> Block:
    """Mamba-2's mixer with the field names of Bamba, Falcon-H1 and Granite 4."""
    heads = config.integer("mamba_n_heads")
    per_head = config.divides("mamba_n_heads", inner, heads, "(the inner width)")
    if config.raw("mamba_d_head") != "auto" and config.integer("mamba_d_head") != per_head:
        raise config.wrong("mamba_d_head", f"{heads} heads of it are not the inner width {inner}")
    return partial(
        ssd,
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


def bamba(config: Config) -> Model:
    """Bamba: Mamba-2 layers, and attention at listed depths, each followed by a gated MLP."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    agree(config, attn_rotary_emb=head_dim // 2)
    attend = grouped_attention(config, hidden, heads, Rope(head_dim // 2), bias=on(config, "attention_bias"))
    mix = _ssd_mamba(config, hidden, config.integer("mamba_expand") * hidden)
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_act"),
        bias=on(config, "mlp_bias"),
    )
    attending = indices(config, "attn_layer_indices", layers)
    listed = [FULL if i in attending else LINEAR for i in range(layers)]
    if config.has("layers_block_type"):
        stated = kinds(config, "layers_block_type", layers, (FULL, LINEAR), lambda: listed)
        if list(stated) != listed:
            raise config.refuse("layers_block_type", "contradicts attn_layer_indices")
    runs = runs_of(
        listed,
        lambda kind: Layer(
            "attention" if kind == FULL else "mamba2", pre_norm(hidden, RMS, attend if kind == FULL else mix, feed)
        ),
    )
    return network(
        config,
        runs,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_dim,
    )


def falcon_h1(config: Config) -> Model:
    """Falcon-H1 (arXiv:2507.22448): in every layer attention and Mamba-2 side by side on one norm, then a gated MLP."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    inner = config.optional_integer("mamba_d_ssm")
    if inner is None:
        inner = config.integer("mamba_expand") * hidden
    config.must_be("mamba_use_mlp", True)
    config.must_be("sliding_window", None)
    config.ignore("mamba_expand", "mlp_expansion_factor", "mamba_norm_before_gate", "time_step_rank")
    attend = grouped_attention(config, hidden, heads, Rope(head_dim), bias=on(config, "attention_bias"))
    mix = _ssd_mamba(
        config, hidden, inner, normed=on(config, "mamba_rms_norm"), out_bias=on(config, "projectors_bias"), scaled=True
    )
    feed = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("intermediate_size"),
        function=activation(config, "hidden_act"),
        bias=on(config, "mlp_bias"),
    )

    def both(source: str) -> Operations:
        mamba_branch, attention_branch = mix("mamba_input"), attend("attention_input")
        return (
            Scale("mamba_input", (source,), hidden),
            *mamba_branch,
            Scale("attention_input", (source,), hidden),
            *attention_branch,
            Add("branches", (mamba_branch[-1].name, attention_branch[-1].name), hidden),
        )

    layer = Layer("hybrid", pre_norm(hidden, RMS, both, feed))
    return network(
        config,
        ((layers, layer),),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_dim,
        scale=True,
        logits_scale=True,
    )


def granite_moe_hybrid(config: Config) -> Model:
    """Granite 4: Mamba-2 or attention, then an always-on gated MLP next to a mixture of experts where it has any."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    config.must_be("normalization_function", "rmsnorm")
    config.must_be("init_method", "mup")
    positions = config.optional_text("position_embedding_type", known=("rope", "nope"))
    rope = Rope(head_dim) if positions == "rope" else None
    attend = grouped_attention(config, hidden, heads, rope, bias=on(config, "attention_bias"))
    mix = _ssd_mamba(config, hidden, config.integer("mamba_expand") * hidden)
    function = activation(config, "hidden_act")
    always = partial(
        gated_mlp,
        width=hidden,
        inner=config.integer("shared_intermediate_size"),
        function=function,
        fused=True,
        prefix="shared/",
    )
    experts = config.integer("num_local_experts", least=0)

    def dense(source: str) -> Operations:
        return shared_expert(always(source))

    feed: Block = dense
    routed = (0, 0)
    if experts:
        top_k = min(config.integer("num_experts_per_tok"), experts)
        routed = (experts, top_k)
        feed = partial(
            moe,
            width=hidden,
            inner=config.integer("intermediate_size"),
            routing=Routing(experts, top_k, score="softmax_top_k"),
            function=function,
            shared=always,
        )
    else:
        config.ignore("intermediate_size", "num_experts_per_tok")
    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), lambda: [LINEAR] * layers)
    runs = runs_of(
        listed,
        lambda kind: Layer(
            "attention" if kind == FULL else "mamba2",
            pre_norm(hidden, RMS, attend if kind == FULL else mix, feed, scale=True),
        ),
    )
    return network(
        config,
        runs,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_dim,
        scale=True,
        logits_scale=True,
        routed=routed,
    )


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
    implementation=replace(HF, router="tokens", fp32_logits=True),
)  # fmt: skip

ARCHITECTURES = (
    BAMBA,
    FALCON_H1,
    GRANITEMOEHYBRID,
)

"""Networks of Mamba layers, alone or beside attention: config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from napkin.architectures.arrangements import pre_norm
from napkin.architectures.attention import Rope
from napkin.architectures.blocks import (
    RMS,
    RMS_FP32,
    Block,
    Operations,
    Routing,
    gated_mlp,
    moe,
    plain_mlp,
    shared_expert,
)
from napkin.architectures.common import FULL, activation, depth, head_size, indices, kv_heads_of, on, runs_of, width
from napkin.architectures.mixing import (
    DENSE,
    LINEAR,
    MIXTURE,
    agree,
    grouped_attention,
    groups_of,
    kinds,
    mixer_layer,
    network,
    rank_of,
    scaled,
)
from napkin.architectures.record import REQUIRED, Architecture, Wrapper, like
from napkin.architectures.recurrent_blocks import selective, ssd
from napkin.inputs.load import printable
from napkin.inputs.model import Config
from napkin.operations.base import LM_HEAD
from napkin.operations.implementations import HF, SIGMOID_ROUTER
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model
from napkin.operations.pointwise import Add, Scale
from napkin.operations.views import Cast
from napkin.record import replace

# --- alone -----------------------------------------------------------------------------------------------------------


def _state_space(
    config: Config, mix: Block, layers: int, kind: str, *, hidden: int, heads: int, head_dim: int
) -> Model:
    """A network of one kind of mixer; the residual stream is fp32 where residual_in_fp32 says so."""
    wide = config.flag("residual_in_fp32", otherwise=True)
    layer = mixer_layer(hidden, RMS, mix, kind, wide=wide)
    model = network(
        config, ((layers, layer),), hidden=hidden, heads=heads, kv_heads=heads, head_dim=head_dim, positions=False
    )
    stack = model.stacks[0]
    if not wide or stack.after[-1].role != LM_HEAD:
        return model
    narrowed = (Cast("head_input", ("final_norm",), hidden), replace(stack.after[-1], reads=("head_input",)))
    return replace(model, stacks=(replace(stack, after=(*stack.after[:-1], *narrowed)),))


def mamba(config: Config, *, normed: bool = False) -> Model:
    """Mamba (arXiv:2312.00752) and Falcon-Mamba, whose Δ, B and C are normalised without weights."""
    hidden, layers = width(config), depth(config)
    agree(config, d_model=hidden, n_layer=layers, rms_norm=True, ssm_cfg={})
    inner = config.optional_integer("intermediate_size")
    if inner is None:
        inner = scaled(config, "expand", hidden)
    agree(config, d_inner=inner)
    config.ignore("expand", "pad_vocab_size_multiple", "fused_add_norm")
    mix = partial(
        selective,
        width=hidden,
        inner=inner,
        state=config.integer("state_size"),
        rank=rank_of(config, "time_step_rank", hidden),
        kernel=config.integer("conv_kernel"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        normed=normed,
        norm_weights=False,
        function=activation(config, "hidden_act"),
    )
    return _state_space(config, mix, layers, "mamba", hidden=hidden, heads=inner, head_dim=1)


falcon_mamba = partial(mamba, normed=True)


def mamba2(config: Config) -> Model:
    """Mamba-2 (arXiv:2405.21060)."""
    hidden, layers = width(config), depth(config)
    inner = scaled(config, "expand", hidden)
    heads, head_dim = config.integer("num_heads"), config.integer("head_dim")
    if heads * head_dim != inner:
        raise config.wrong(
            "num_heads", f"{heads} heads of {head_dim} are not expand · hidden_size = {inner}", "make them agree"
        )
    agree(config, intermediate_size=inner, rms_norm=True)
    config.ignore("norm_before_gate", "time_step_rank", "pad_vocab_size_multiple", "fused_add_norm")
    mix = partial(
        ssd,
        width=hidden,
        inner=inner,
        heads=heads,
        state=config.integer("state_size"),
        groups=groups_of(config, "n_groups", inner, heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "hidden_act"),
    )
    return _state_space(config, mix, layers, "mamba2", hidden=hidden, heads=heads, head_dim=head_dim)


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


# --- beside attention -------------------------------------------------------------------------------------------------


def jamba(config: Config) -> Model:
    """Jamba (arXiv:2403.19887): Mamba with normalised Δ, B, C; attention and mixtures of experts every so often."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
    expert_period, expert_offset = (
        config.integer("expert_layer_period"),
        config.integer("expert_layer_offset", least=0),
    )
    for name, at, every in (("attn", offset, period), ("expert", expert_offset, expert_period)):
        if at >= every:
            raise config.wrong(f"{name}_layer_offset", f"{at} is not below the period {every}")
    config.must_be("sliding_window", None)
    config.must_be("mamba_inner_layernorms", True)
    experts, top_k = config.integer("num_experts"), config.integer("num_experts_per_tok")
    inner_width = config.integer("intermediate_size")
    function = activation(config, "hidden_act")
    attend = grouped_attention(config, hidden, heads, None, bias=False)
    mix = partial(
        selective,
        width=hidden,
        inner=config.integer("mamba_expand") * hidden,
        state=config.integer("mamba_d_state"),
        rank=rank_of(config, "mamba_dt_rank", hidden),
        kernel=config.integer("mamba_d_conv"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        normed=True,
        function=function,
    )
    dense = partial(gated_mlp, width=hidden, inner=inner_width, function=function)
    mixture = partial(
        moe, width=hidden, inner=inner_width, routing=Routing(experts, min(top_k, experts)), function=function
    )
    keys = [(i % period == offset, experts > 1 and i % expert_period == expert_offset) for i in range(layers)]
    listed = [FULL if attends else LINEAR for attends, _ in keys]
    if config.has("layers_block_type"):
        stated = kinds(config, "layers_block_type", layers, (FULL, LINEAR), lambda: listed)
        if list(stated) != listed:
            raise config.refuse("layers_block_type", "contradicts attn_layer_period and attn_layer_offset")

    def layer(key: tuple[bool, bool]) -> Layer:
        attends, sparse = key
        name = f"{'attention' if attends else 'mamba'}_{'moe' if sparse else 'mlp'}"
        return Layer(name, pre_norm(hidden, RMS, attend if attends else mix, mixture if sparse else dense))

    return network(
        config,
        runs_of(keys, layer),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_size(config, hidden, heads),
        routed=(experts, min(top_k, experts)) if experts > 1 else (0, 0),
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


def nemotron_h(config: Config) -> Model:
    """Nemotron-H (arXiv:2504.03624): one block a layer, by a pattern: Mamba-2, attention without positions, MLP with
    squared ReLU, or a mixture of such experts (in a narrower latent space where moe_latent_size says so)."""
    hidden = width(config)
    known = (LINEAR, FULL, MIXTURE, DENSE)
    letters = {"M": LINEAR, "E": MIXTURE, "*": FULL, "-": DENSE}

    def pattern() -> Sequence[str]:
        text = config.text("hybrid_override_pattern")
        for letter in text:
            if letter not in letters:
                raise config.refuse("hybrid_override_pattern", f"napkin does not know {printable(repr(letter))}")
        return [letters[letter] for letter in text]

    listed = kinds(config, "layers_block_type", None, known, pattern)
    if config.has("hybrid_override_pattern") and list(pattern()) != list(listed):
        raise config.wrong("hybrid_override_pattern", "contradicts layers_block_type")
    stated = config.optional_integer("num_hidden_layers")
    if stated is not None and stated != len(listed):
        raise config.wrong("num_hidden_layers", f"is {stated} where the pattern has {len(listed)} layers")
    heads = config.integer("num_attention_heads")
    for field in ("attention_bias", "mamba_proj_bias"):
        config.must_be(field, False)
    config.must_be("sliding_window", None)
    config.must_be("n_shared_experts", 1)
    config.must_be("tie_word_embeddings", False)
    config.ignore("expand", "moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    config.ignore("time_step_rank")  # of Mamba's first version
    if config.optional_integer("num_nextn_predict_layers", least=0):
        config.notes.append("the multi-token-prediction layers are left out")
    mamba_heads = config.integer("mamba_num_heads")
    inner = mamba_heads * config.integer("mamba_head_dim")
    mix = partial(
        ssd,
        width=hidden,
        inner=inner,
        heads=mamba_heads,
        state=config.integer("ssm_state_size"),
        groups=groups_of(config, "n_groups", inner, mamba_heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "mamba_hidden_act"),
    )
    attend = grouped_attention(config, hidden, heads, None, bias=False)
    function, bias = activation(config, "mlp_hidden_act"), on(config, "mlp_bias")
    dense = partial(plain_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function, bias=bias)
    experts = config.integer("n_routed_experts")
    config.ignore("n_group", "topk_group")  # how the best are found
    mixture = _latent_mixture(
        hidden,
        config.optional_integer("moe_latent_size"),
        bias,
        inner=config.integer("moe_intermediate_size"),
        routing=Routing(
            experts,
            min(config.integer("num_experts_per_tok"), experts),
            score="sigmoid",
            normalize=config.flag("norm_topk_prob", otherwise=True),
            upcast=True,
            balanced="buffer",
        ),
        function=function,
        shared=partial(
            plain_mlp,
            width=hidden,
            inner=config.integer("moe_shared_expert_intermediate_size"),
            function=function,
            bias=bias,
            prefix="shared/",
        ),
    )
    blocks: dict[str, Block] = {LINEAR: mix, FULL: attend, MIXTURE: mixture, DENSE: dense}
    names = {LINEAR: "mamba2", FULL: "attention", MIXTURE: "moe", DENSE: "mlp"}
    return network(
        config,
        runs_of(listed, lambda kind: mixer_layer(hidden, RMS_FP32, blocks[kind], names[kind])),
        hidden=hidden,
        norm=RMS_FP32,
        heads=heads,
        kv_heads=kv_heads_of(config, heads),
        head_dim=head_size(config, hidden, heads),
        tie=False,
    )


def _latent_mixture(
    hidden: int,
    latent: int | None,
    bias: bool,
    *,
    inner: int,
    routing: Routing,
    function: str,
    shared: Block,
) -> Block:
    """Experts without gates; with `latent` they work between a projection h → latent and one back."""
    if latent is None:
        return partial(moe, width=hidden, inner=inner, routing=routing, function=function, gated=False, shared=shared)
    narrow = latent

    def block(source: str) -> Operations:
        router, experts = moe("latent", width=narrow, inner=inner, routing=routing, function=function, gated=False)
        always = shared_expert(shared(source))
        wide = moe(source, width=hidden, inner=inner, routing=routing)[0]
        assert router.name == wide.name  # the router reads the full width
        return (
            wide,
            Matmul("latent", (source,), hidden, narrow, bias),
            experts,
            Matmul("latent_out", (experts.name,), narrow, hidden, bias),
            *always,
            Add("moe", ("latent_out", always[-1].name), hidden),
        )

    return block


def granite_moe_hybrid(config: Config) -> Model:
    """Granite 4: Mamba-2 or attention, then an always-on gated MLP beside a mixture of experts where it has any."""
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


# --- records ---------------------------------------------------------------------------------------------------------

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
FALCON_MAMBA = Architecture(
    "falcon_mamba",
    falcon_mamba,
    config_class="FalconMambaConfig",
    defaults={
        "conv_kernel": 4, "expand": 2, "hidden_act": "silu", "state_size": 16, "tie_word_embeddings": True,
        "time_step_rank": "auto", "use_bias": False, "use_conv_bias": True, "vocab_size": 50280,
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
    implementation=replace(HF, router="tokens", wide_logits=True),
)  # fmt: skip
JAMBA = Architecture(
    "jamba",
    jamba,
    config_class="JambaConfig",
    aliases={"num_local_experts": "num_experts"},
    defaults={
        "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
        "hidden_act": "silu", "intermediate_size": 14336, "mamba_conv_bias": True, "mamba_d_conv": 4,
        "mamba_d_state": 16, "mamba_dt_rank": "auto", "mamba_expand": 2, "mamba_proj_bias": False,
        "max_position_embeddings": 262144, "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2,
        "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 65536,
    },
    implementation=replace(HF, mixer="apart", router="tokens"),
)  # fmt: skip
MAMBA = like(
    FALCON_MAMBA,
    "mamba",
    build=mamba,
    config_class="MambaConfig",
    aliases={"d_inner": "intermediate_size", "d_model": "hidden_size", "n_layer": "num_hidden_layers"},
)  # fmt: skip
MAMBA2 = Architecture(
    "mamba2",
    mamba2,
    config_class="Mamba2Config",
    defaults={
        "chunk_size": 256, "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_act": "silu", "n_groups": 8,
        "num_heads": 128, "rms_norm": True, "state_size": 128, "tie_word_embeddings": False, "time_step_rank": "auto",
        "use_bias": False, "use_conv_bias": True, "vocab_size": 32768,
    },
)  # fmt: skip
NEMOTRON_H = Architecture(
    "nemotron_h",
    nemotron_h,
    config_class="NemotronHConfig",
    aliases={
        "attention_head_dim": "head_dim", "layer_types": "layers_block_type", "mamba_chunk_size": "chunk_size",
        "mamba_conv_bias": "use_conv_bias", "mamba_d_conv": "conv_kernel", "mamba_expand": "expand",
        "mamba_n_groups": "n_groups", "num_local_experts": "n_routed_experts",
    },
    defaults={
        "attention_bias": False, "chunk_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 128,
        "intermediate_size": 21504, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 128,
        "mamba_proj_bias": False, "max_position_embeddings": 4096, "mlp_bias": False, "mlp_hidden_act": "relu2",
        "moe_intermediate_size": 7688, "moe_latent_size": None, "moe_shared_expert_intermediate_size": 7688,
        "moe_shared_expert_overlap": True, "mtp_layers_block_type": None, "n_groups": 8, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_key_value_heads": 8,
        "sliding_window": None, "ssm_state_size": 128, "tie_word_embeddings": False, "use_bias": False,
        "use_conv_bias": True, "vocab_size": 131072,
    },
    implementation=replace(SIGMOID_ROUTER, wide_weight=True),
    wrappers=(
        Wrapper("nemotron_h_omni"),
    ),
)  # fmt: skip

ARCHITECTURES = (BAMBA, FALCON_H1, FALCON_MAMBA, GRANITEMOEHYBRID, JAMBA, MAMBA, MAMBA2, NEMOTRON_H)

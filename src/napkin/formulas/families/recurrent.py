"""Networks whose layers mix tokens by a recurrence, alone or beside attention: config.json → list of operations.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from napkin.formulas.blocks import (
    LAYER,
    RMS,
    RMS_FP32,
    RMS_OFFSET,
    Block,
    NormStyle,
    Operations,
    Rope,
    Routing,
    attention,
    gated_mlp,
    moe,
    output_norm,
    plain_mlp,
    pre_norm,
)
from napkin.formulas.families.common import (
    FULL,
    activation,
    decoder_only,
    depth,
    embedding,
    head,
    head_size,
    headless,
    indices,
    kv_heads_of,
    on,
    rotary_dim,
    runs_of,
    tied,
    width,
)
from napkin.formulas.layer import Add, BalanceLoss, Cast, Concat, Layer, Matmul, Model, Operation, Parts, Reused, Scale
from napkin.formulas.recurrent_blocks import (
    channel_mix,
    gated_delta,
    lightning,
    rg_lru,
    selective,
    short_conv,
    ssd,
    wkv,
)
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.record import replace

LINEAR, HYBRID, CONV, MIXTURE, DENSE = "linear_attention", "hybrid", "conv", "moe", "mlp"
_OLDER_NAMES = {"mamba": LINEAR, "attention": FULL}


# --- reading ---------------------------------------------------------------------------------------------------------


def agree(config: Config, **expected: object) -> None:
    """Fields that the class derives: given or not, they must be what it derives (3)."""
    for field, value in expected.items():
        given = config.raw(field, required=False, default=False)
        if given is not None and given != value:
            raise config.refuse(field, f"is {printable(repr(given), 60)}, where the class uses {value}")


def kinds(
    config: Config, field: str, layers: int | None, known: Sequence[str], otherwise: Callable[[], Sequence[str]]
) -> Sequence[str]:
    """What each layer is, in today's words, as the file lists it or as the class lays it out."""
    given = config.items(field, required=False)
    listed = otherwise() if given is None else given
    if layers is not None and len(listed) != layers:
        raise config.wrong(field, f"has {len(listed)} entries for {layers} layers")
    if not listed:
        raise config.wrong(field, "is empty")
    renamed = [_OLDER_NAMES.get(entry, entry) if isinstance(entry, str) else entry for entry in listed]
    for entry in renamed:
        if entry not in known:
            raise config.refuse(field, f"napkin does not know {printable(repr(entry), 60)}")
    return renamed


def positive(config: Config, field: str, value: int, what: str) -> int:
    """A derived size, which a strange value of `field` could have made nothing."""
    if value < 1:
        raise config.wrong(field, f"makes {what} {value}")
    return value


def scaled(config: Config, field: str, value: int) -> int:
    """⌊field · value⌋, where the field is any number above zero that keeps the product a dimension."""
    factor = config.real(field)
    assert factor is not None
    if not 0 < factor * value < LARGEST_DIMENSION:
        raise config.wrong(field, f"{printable(str(factor), 40)} times {value} is not a dimension")
    return positive(config, field, int(factor * value), "a width")


def rank_of(config: Config, field: str, hidden: int) -> int:
    """Δ's rank: ⌈h/16⌉ where "auto"."""
    return math.ceil(hidden / 16) if config.raw(field) == "auto" else config.integer(field)


def _attention(config: Config, hidden: int, heads: int, rope: Rope | None, *, bias: bool, **more: object) -> Block:
    """Grouped-query attention with the usual field names, biases on all four projections or none."""
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    return partial(
        attention,
        width=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=bias,
        out_bias=bias,
        rope=rope,
        **more,  # type: ignore[arg-type]
    )


def _network(
    config: Config,
    runs: Parts,
    *,
    hidden: int,
    norm: NormStyle = RMS,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: bool = False,
    logits_scale: bool = False,
    softcap: bool = False,
    tie: bool | None = None,
    routed: tuple[int, int] = (0, 0),
    positions: bool = True,
) -> Model:
    """A decoder; without attention, `heads` are the channels or heads that its recurrence can be divided into.

    routed     experts and how many a token chooses, of a class that can add a loss on how evenly they are used
    positions  the class says how many it was trained for
    """
    vocabulary = config.integer("vocab_size")
    tie = tied(config) if tie is None else tie
    none = headless(config)
    balances = routed[0] > 0 and config.flag("output_router_logits", otherwise=False)
    balance = BalanceLoss("balance_loss", (), *routed) if balances else None
    return decoder_only(
        config,
        embedding(vocabulary, hidden, scale=scale),
        runs,
        head(hidden, vocabulary, norm=norm, none=none, scale=logits_scale, softcap=softcap, balance=balance),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        max_length=config.optional_integer("max_position_embeddings") if positions else None,
        tie=tie,
    )


def _mixer_layer(hidden: int, norm: NormStyle, mix: Block, kind: str, *, wide: bool = False) -> Layer:
    """y = x + mix(norm(x)): a layer of one block. `wide`: x is kept in fp32, and narrowed for the norm."""
    operations = mix("norm")
    if not wide:
        own = (norm("norm", "x", hidden), *operations, Add("residual", ("x", operations[-1].name), hidden))
        return Layer(kind, own)
    return Layer(
        kind,
        (
            Cast("narrowed", ("x",), hidden),
            norm("norm", "narrowed", hidden),
            *operations,
            Cast("widened", ("x",), hidden, wide=True),
            Add("residual", ("widened", operations[-1].name), hidden),
        ),
    )


def _state_space(
    config: Config, mix: Block, layers: int, kind: str, *, hidden: int, heads: int, head_dim: int
) -> Model:
    """A network of one kind of mixer; the residual stream is fp32 where residual_in_fp32 says so."""
    wide = config.flag("residual_in_fp32", otherwise=True)
    layer = _mixer_layer(hidden, RMS, mix, kind, wide=wide)
    model = _network(
        config, ((layers, layer),), hidden=hidden, heads=heads, kv_heads=heads, head_dim=head_dim, positions=False
    )
    stack = model.stacks[0]
    if not wide or stack.after[-1].name != "lm_head":
        return model
    narrowed = (Cast("head_input", ("final_norm",), hidden), replace(stack.after[-1], reads=("head_input",)))
    return replace(model, stacks=(replace(stack, after=(*stack.after[:-1], *narrowed)),))


# --- Mamba -----------------------------------------------------------------------------------------------------------


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
        groups=_groups(config, "n_groups", inner, heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "hidden_act"),
    )
    return _state_space(config, mix, layers, "mamba2", hidden=hidden, heads=heads, head_dim=head_dim)


def _groups(config: Config, field: str, inner: int, heads: int) -> int:
    """Groups that share B and C: they divide heads and inner width."""
    groups = config.integer(field)
    if heads % groups or inner % groups:
        raise config.wrong(field, f"{heads} heads in an inner width of {inner} do not divide into {groups} groups")
    return groups


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
        groups=_groups(config, "mamba_n_groups", inner, heads),
        kernel=config.integer("mamba_d_conv"),
        chunk=config.integer("mamba_chunk_size"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        function=activation(config, "hidden_act"),
        **more,  # type: ignore[arg-type]
    )


# --- Mamba beside attention ------------------------------------------------------------------------------------------


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
    attend = _attention(config, hidden, heads, None, bias=False)
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

    return _network(
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
    attend = _attention(config, hidden, heads, Rope(head_dim // 2), bias=on(config, "attention_bias"))
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
    return _network(
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
    attend = _attention(config, hidden, heads, Rope(head_dim), bias=on(config, "attention_bias"))
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
    return _network(
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
        groups=_groups(config, "n_groups", inner, mamba_heads),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size"),
        bias=on(config, "use_bias"),
        conv_bias=on(config, "use_conv_bias"),
        function=activation(config, "mamba_hidden_act"),
    )
    attend = _attention(config, hidden, heads, None, bias=False)
    function, bias = activation(config, "mlp_hidden_act"), on(config, "mlp_bias")
    dense = partial(plain_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function, bias=bias)
    experts = config.integer("n_routed_experts")
    mixture = _latent_mixture(
        hidden,
        config.optional_integer("moe_latent_size"),
        bias,
        inner=config.integer("moe_intermediate_size"),
        routing=Routing(
            experts,
            min(config.integer("num_experts_per_tok"), experts),
            score="sigmoid",
            normalise=config.flag("norm_topk_prob", otherwise=True),
            upcast=True,
            balanced="buffer",
            groups=config.optional_integer("n_group") or 1,
            top_groups=config.optional_integer("topk_group") or 1,
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
    return _network(
        config,
        runs_of(listed, lambda kind: _mixer_layer(hidden, RMS_FP32, blocks[kind], names[kind])),
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
        always = shared(source)
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
    attend = _attention(config, hidden, heads, rope, bias=on(config, "attention_bias"))
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
    feed: Block = always
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
    return _network(
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


# --- shared attention between Mamba layers ---------------------------------------------------------------------------


def _reused(operations: Operations, owners: Operations) -> Operations:
    """The operations with the weights that others own."""
    pairs = zip(operations, owners, strict=True)
    return tuple(Reused(op.name, op.reads, owner) if op.weights() else op for op, owner in pairs)


def _zamba_attention(config: Config, hidden: int) -> tuple[int, int, int]:
    """Heads, key/value heads and head size of the shared block, which reads [x, token embedding]: 2h numbers."""
    heads = config.integer("num_attention_heads")
    agree(config, attention_hidden_size=2 * hidden)
    config.must_be("tie_word_embeddings", True)  # without it the class shares no weights at all, the blocks' included
    head_dim = config.optional_integer("attention_head_dim")
    if head_dim is None:
        head_dim = config.divides("num_attention_heads", 2 * hidden, heads, "(2 · hidden_size)")
    return heads, kv_heads_of(config, heads), head_dim


def _hybrid(hidden: int, block: Operations, mix: Block, adapters: Operations = ()) -> Operations:
    """y = x + mamba(norm(x + W·block([x, token embedding])))."""
    mixed = mix("norm")
    return (
        *block,
        *adapters,
        Matmul("linear", (block[-1].name,), hidden, hidden),
        Add("with_attention", ("x", "linear"), hidden),
        RMS("norm", "with_attention", hidden),
        *mixed,
        Add("residual", ("x", mixed[-1].name), hidden),
    )


def zamba(config: Config) -> Model:
    """Zamba (arXiv:2405.16712): Mamba layers; at some depths one attention block, the same each time, goes before."""
    hidden, layers = width(config), depth(config)
    heads, kv_heads, head_dim = _zamba_attention(config, hidden)
    function = activation(config, "hidden_act")
    inner = config.integer("mamba_expand") * hidden
    mamba_heads = config.integer("n_mamba_heads")
    config.divides("n_mamba_heads", inner, mamba_heads, "(the inner width)")
    mix = partial(
        selective,
        width=hidden,
        inner=inner,
        state=config.integer("mamba_d_state"),
        rank=rank_of(config, "mamba_dt_rank", hidden),
        kernel=config.integer("mamba_d_conv"),
        bias=on(config, "mamba_proj_bias"),
        conv_bias=on(config, "mamba_conv_bias"),
        heads=mamba_heads,
        function=activation(config, "hidden_mamba_act"),
    )

    def laid_out() -> Sequence[str]:
        period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
        rest = [HYBRID if i % period == offset else LINEAR for i in range(layers - 3)]
        return [LINEAR, LINEAR, HYBRID, *rest]

    listed = kinds(config, "layers_block_type", layers, (LINEAR, HYBRID), laid_out)
    config.ignore("attn_layer_period", "attn_layer_offset")
    attended = attention(
        "attention_norm",
        width=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        out_width=hidden,
    )
    block: Operations = (
        Concat("joined", ("x",), 2 * hidden),
        RMS("attention_norm", "joined", 2 * hidden),
        *attended,
        RMS("mlp_norm", attended[-1].name, hidden),
        *gated_mlp("mlp_norm", width=hidden, inner=config.integer("intermediate_size"), function=function),
    )
    hybrid = Layer("hybrid", _hybrid(hidden, _reused(block, block), mix))
    plain = _mixer_layer(hidden, RMS, mix, "mamba")
    model = _network(
        config,
        runs_of(listed, lambda kind: hybrid if kind == HYBRID else plain),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )
    return _sharing(model, block if HYBRID in listed else ())


def _sharing(model: Model, shared: Operations) -> Model:
    return replace(model, shared=shared)


def zamba2(config: Config) -> Model:
    """Zamba2 (arXiv:2411.15242): Mamba-2 layers; before some, `num_mem_blocks` attention blocks taken in turn, with
    low-rank adapters of their own at each use (always on gate and up, on q, k, v where the config says so)."""
    hidden, layers = width(config), depth(config)
    heads, kv_heads, head_dim = _zamba_attention(config, hidden)
    inner = config.integer("mamba_expand") * hidden
    mamba_heads = config.integer("n_mamba_heads")
    per_head = config.divides("n_mamba_heads", inner, mamba_heads, "(the inner width)")
    agree(
        config,
        mamba_headdim=per_head,
        num_query_groups=heads,
        kv_channels=hidden // heads,
        use_shared_mlp_adapter=True,
        use_shared_block_lora=True,
        use_shared_attention_lora=config.raw("use_shared_attention_adapter", required=False),
        ffn_hidden_size=config.raw("intermediate_size", required=False),
    )
    config.must_be("use_conv_bias", True)
    bias = on(config, "add_bias_linear")
    mix = partial(
        ssd,
        width=hidden,
        inner=inner,
        heads=mamba_heads,
        state=config.integer("mamba_d_state"),
        groups=_groups(config, "mamba_ngroups", inner, mamba_heads),
        kernel=config.integer("mamba_d_conv"),
        chunk=config.integer("chunk_size"),
        bias=bias,
        conv_bias=True,
    )

    def laid_out() -> Sequence[str]:
        early = ([LINEAR] * 5 + [HYBRID]) * 7
        return [LINEAR, *early, *[LINEAR] * 4, HYBRID, *[LINEAR] * 3, HYBRID, *[LINEAR] * 2]

    listed = kinds(config, "layers_block_type", layers, (LINEAR, HYBRID), laid_out)
    depths = [i for i, kind in enumerate(listed) if kind == HYBRID]
    agree(config, hybrid_layer_ids=depths)
    d_ff = config.optional_integer("intermediate_size") or 4 * hidden
    function = activation(config, "hidden_act")
    rank = config.integer("adapter_rank")
    adapted = on(config, "use_shared_attention_adapter")
    if adapted and (kv_heads != heads or heads * head_dim != 2 * hidden):
        raise config.refuse("use_shared_attention_adapter", "its adapters fit only 2 · hidden_size queries and keys")
    rope = Rope(head_dim) if config.flag("use_mem_rope", otherwise=False) else None
    attended = attention(
        "attention_norm",
        width=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope=rope,
        out_width=hidden,
    )
    block: Operations = (
        Concat("joined", ("x",), 2 * hidden),
        RMS("attention_norm", "joined", 2 * hidden),
        *attended,
        RMS("mlp_norm", attended[-1].name, hidden),
        *gated_mlp("mlp_norm", width=hidden, inner=d_ff, function=function, bias=bias, fused=True),
    )
    places = [("gate_up", "mlp_norm", hidden, 2 * d_ff)]
    if adapted:
        places += [(letter, "attention_norm", 2 * hidden, 2 * hidden) for letter in "qkv"]
    blocks = min(config.integer("num_mem_blocks"), len(depths))
    own = [_numbered(block, number) for number in range(blocks)]

    def layer(key: tuple[str, int]) -> Layer:
        kind, turn = key
        if kind != HYBRID:
            return _mixer_layer(hidden, RMS, mix, "mamba2")
        return Layer("hybrid", _hybrid(hidden, _adapted(_reused(block, own[turn]), places, rank), mix))

    turns = [depths.index(i) % blocks if kind == HYBRID else 0 for i, kind in enumerate(listed)]
    model = _network(
        config,
        runs_of(list(zip(listed, turns, strict=True)), layer),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )
    return _sharing(model, tuple(op for operations in own for op in operations))


def _numbered(block: Operations, number: int) -> Operations:
    return tuple(replace(op, name=f"block_{number}_{op.name}") for op in block)


def _adapted(block: Operations, places: Sequence[tuple[str, str, int, int]], rank: int) -> Operations:
    """The block with W·x + B·A·x in place of W·x where `places` say: (name, source, d_in, d_out)."""
    adapters = {name: (source, d_in, d_out) for name, source, d_in, d_out in places}
    operations: list[Operation] = []
    renamed: dict[str, str] = {}
    for op in block:
        moved = tuple(renamed.get(read, read) for read in op.reads)
        operations.append(_reading(op, moved))
        if op.name in adapters:
            source, d_in, d_out = adapters[op.name]
            down, up, total = f"{op.name}_adapter_down", f"{op.name}_adapter_up", f"{op.name}_adapted"
            operations += [
                Matmul(down, (source,), d_in, rank),
                Matmul(up, (down,), rank, d_out),
                Add(total, (op.name, up), d_out),
            ]
            renamed[op.name] = total
    return tuple(operations)


def _reading(op: Operation, reads: tuple[str, ...]) -> Operation:
    if isinstance(op, Reused):
        return Reused(op.name, reads, replace(op.of, reads=reads))
    return replace(op, reads=reads)


# --- Griffin, LFM2, MiniMax ------------------------------------------------------------------------------------------


def recurrent_gemma(config: Config) -> Model:
    """RecurrentGemma (arXiv:2404.07839): RG-LRU blocks, and local attention, in a repeated pattern."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    pattern = config.items("block_types") or []
    if not pattern or any(entry not in ("recurrent", "attention") for entry in pattern):
        raise config.refuse("block_types", "napkin knows recurrent and attention alone")
    function = activation(config, "hidden_activation", "hidden_act")
    inner = config.optional_integer("lru_width") or hidden
    config.divides("lru_width", inner, heads, "(lru_width)")
    attend = partial(
        attention,
        width=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=on(config, "attention_bias"),
        out_bias=True,
        rope=Rope(rotary_dim(config, head_dim, 0.5)),
        window=config.integer("attention_window_size"),
    )
    mix = partial(
        rg_lru, width=hidden, inner=inner, heads=heads, kernel=config.integer("conv1d_width"), function=function
    )
    d_ff = positive(config, "intermediate_size", config.integer("intermediate_size") // 2, "the feed-forward width")
    feed = partial(gated_mlp, width=hidden, inner=d_ff, function=function, bias=True)
    config.must_be("embeddings_scale_by_sqrt_dim", True)
    listed = [pattern[i % len(pattern)] for i in range(layers)]
    runs = runs_of(
        listed,
        lambda kind: Layer(kind, pre_norm(hidden, RMS_OFFSET, attend if kind == "attention" else mix, feed)),
    )
    model = _network(
        config,
        runs,
        hidden=hidden,
        norm=RMS_OFFSET,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=True,
        softcap=True,
        positions=False,
    )
    stack = model.stacks[0]
    factor = tuple(replace(op, held="bf16") if isinstance(op, Scale) else op for op in stack.before)
    return replace(model, stacks=(replace(stack, before=factor),))


def lfm2(config: Config, *, sparse: bool = False) -> Model:
    """LFM2: gated short convolutions, and attention with normalised queries and keys at some depths; the MLP's stated
    size may be shrunk by 2/3 and rounded up. LFM2-MoE: mixtures of experts from layer num_dense_layers on."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    agree(config, block_dim=hidden, conv_dim=hidden, conv_dim_out=hidden, num_heads=heads, block_use_swiglu=True)
    config.ignore(
        "block_mlp_init_scale",
        "block_out_init_scale",
        "block_use_xavier_init",
        "conv_use_xavier_init",
        "use_pos_enc",
        "theta",
    )
    attend = partial(
        attention, width=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope=Rope(head_dim), norm=RMS
    )
    mix = partial(short_conv, width=hidden, kernel=config.integer("conv_L_cache"), bias=on(config, "conv_bias"))
    d_ff = config.integer("intermediate_size")
    feeds: dict[bool, Block] = {}
    dense_layers = layers
    if sparse:
        dense_layers = config.integer("num_dense_layers", least=0)
        experts = config.integer("num_experts")
        feeds[True] = partial(
            moe,
            width=hidden,
            inner=config.integer("moe_intermediate_size"),
            routing=Routing(
                experts,
                min(config.integer("num_experts_per_tok"), experts),
                score="sigmoid",
                normalise=config.flag("norm_topk_prob", otherwise=True),
                balanced="buffer" if on(config, "use_expert_bias") else "",
            ),
        )
    elif on(config, "block_auto_adjust_ff_dim"):
        d_ff = int(2 * d_ff / 3)
        if config.raw("block_ffn_dim_multiplier", required=False) is not None:
            d_ff = scaled(config, "block_ffn_dim_multiplier", d_ff)
            multiple = config.integer("block_multiple_of")
            d_ff = -(-d_ff // multiple) * multiple
        positive(config, "intermediate_size", d_ff, "the feed-forward width")
    config.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    feeds[False] = partial(gated_mlp, width=hidden, inner=d_ff)

    def laid_out() -> Sequence[str]:
        if sparse:
            raise config.refuse("layer_types", "is missing", "add layer_types to the config; napkin does not guess it")
        if config.items("full_attn_idxs", required=False) is None:
            return [FULL] * layers
        attending = indices(config, "full_attn_idxs", layers)
        return [FULL if i in attending else CONV for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (FULL, CONV), laid_out)
    config.ignore("full_attn_idxs")

    def layer(key: tuple[str, bool]) -> Layer:
        kind, routed = key
        name = f"{'attention' if kind == FULL else 'conv'}_{'moe' if routed else 'mlp'}"
        return Layer(name, pre_norm(hidden, RMS, attend if kind == FULL else mix, feeds[routed]))

    return _network(
        config,
        runs_of([(kind, i >= dense_layers) for i, kind in enumerate(listed)], layer),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )


lfm2_moe = partial(lfm2, sparse=True)


def minimax(config: Config) -> Model:
    """MiniMax-01 (arXiv:2501.08313): lightning attention, full attention at some depths, mixtures of experts in all."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    function = activation(config, "hidden_act")
    attend = partial(
        attention,
        width=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope=Rope(rotary_dim(config, head_dim, 1.0)),
        window=config.optional_integer("sliding_window"),
    )
    mix = partial(
        lightning,
        width=hidden,
        heads=heads,
        head_dim=head_dim,
        chunk=config.integer("block_size"),
        function=function,
    )
    experts = config.integer("num_local_experts")
    feed = partial(
        moe,
        width=hidden,
        inner=config.integer("intermediate_size"),
        routing=Routing(
            experts,
            min(config.integer("num_experts_per_tok"), experts),
            normalise=True,
            jitter=1 if config.real("router_jitter_noise", required=False) else 0,
        ),
        function=function,
    )
    listed = kinds(
        config, "layer_types", layers, (LINEAR, FULL), lambda: [LINEAR if i % 2 else FULL for i in range(layers)]
    )
    runs = runs_of(
        listed,
        lambda kind: Layer(
            "attention" if kind == FULL else "lightning",
            pre_norm(hidden, RMS, attend if kind == FULL else mix, feed, scale=True, residual_after_norm=True),
        ),
    )
    return _network(
        config,
        runs,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        routed=(experts, min(config.integer("num_experts_per_tok"), experts)),
    )


# --- gated delta networks --------------------------------------------------------------------------------------------

Projections = tuple[tuple[str, tuple[str, ...]], ...]

FUSED_DELTA: Projections = (("in_proj_qkvz", ("q", "k", "v", "z")), ("in_proj_ba", ("b", "a")))
SPLIT_DELTA: Projections = (
    ("in_proj_qkv", ("q", "k", "v")),
    ("in_proj_z", ("z",)),
    ("in_proj_b", ("b",)),
    ("in_proj_a", ("a",)),
)
SINGLE_DELTA: Projections = tuple((f"{name}_proj", (part,)) for name, part in zip("qkvgba", "qkvzba", strict=True))


def _delta(
    config: Config, hidden: int, projections: Projections, sizes: tuple[int, int, int, int], *, doubled: bool = False
) -> Block:
    key_heads, value_heads, key_dim, value_dim = sizes
    if value_heads % key_heads:
        raise config.wrong("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    return partial(
        gated_delta,
        width=hidden,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=config.integer("linear_conv_kernel_dim"),
        projections=projections,
        doubled=doubled,
        function=activation(config, "hidden_act"),
    )


def qwen3_next(config: Config, *, feed_forward: str = "sparse_steps", fused: bool = True) -> Model:
    """Qwen3-Next and Qwen3.5: three gated delta layers to one of attention with an output gate and normalised queries
    and keys; gated MLPs or mixtures with one gated shared expert.

    feed_forward  sparse_steps: mixtures every decoder_sparse_step-th layer · all: in every layer · none
    fused         two input projections for the delta rule, or four
    """
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = config.integer("head_dim")
    kv_heads = kv_heads_of(config, heads)
    function = activation(config, "hidden_act")
    config.must_be("attn_output_gate", True)
    bias = on(config, "attention_bias")
    attend = partial(
        attention,
        width=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=bias,
        out_bias=bias,
        rope=Rope(rotary_dim(config, head_dim, 0.25)),
        norm=RMS_OFFSET,
        output_gate=True,
    )
    sizes = (
        config.integer("linear_num_key_heads"),
        config.integer("linear_num_value_heads"),
        config.integer("linear_key_head_dim"),
        config.integer("linear_value_head_dim"),
    )
    mix = _delta(config, hidden, FUSED_DELTA if fused else SPLIT_DELTA, sizes)
    sparse = _sparse_layers(config, layers, feed_forward)
    feeds: dict[bool, Block] = {}
    routed = (0, 0)
    if any(sparse):
        experts = config.integer("num_experts")
        routed = (experts, min(config.integer("num_experts_per_tok"), experts))
        feeds[True] = partial(
            moe,
            width=hidden,
            inner=config.integer("moe_intermediate_size"),
            routing=Routing(*routed, normalise=config.flag("norm_topk_prob", otherwise=True)),
            function=function,
            shared=partial(
                gated_mlp,
                width=hidden,
                inner=config.integer("shared_expert_intermediate_size"),
                function=function,
                prefix="shared/",
            ),
            shared_gate=True,
        )
    if not all(sparse):
        feeds[False] = partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    config.ignore(
        "intermediate_size",
        "moe_intermediate_size",
        "num_experts_per_tok",
        "shared_expert_intermediate_size",
    )

    def laid_out() -> Sequence[str]:
        interval = config.integer("full_attention_interval")
        return [LINEAR if (i + 1) % interval else FULL for i in range(layers)]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), laid_out)
    config.ignore("full_attention_interval")
    for field in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if config.optional_integer(field, least=0):
            config.notes.append("the multi-token-prediction layers are left out")
    config.ignore("mtp_use_dedicated_embeddings")

    def layer(key: tuple[str, bool]) -> Layer:
        kind, routed = key
        name = f"{'attention' if kind == FULL else 'delta'}_{'moe' if routed else 'mlp'}"
        return Layer(name, pre_norm(hidden, RMS_OFFSET, attend if kind == FULL else mix, feeds[routed]))

    return _network(
        config,
        runs_of(list(zip(listed, sparse, strict=True)), layer),
        hidden=hidden,
        norm=RMS_OFFSET,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        routed=routed,
    )


qwen3_5 = partial(qwen3_next, feed_forward="none", fused=False)
qwen3_5_moe = partial(qwen3_next, feed_forward="all", fused=False)


def _sparse_layers(config: Config, layers: int, feed_forward: str) -> list[bool]:
    if feed_forward != "sparse_steps":
        config.must_be("mlp_only_layers", [])
        return [feed_forward == "all"] * layers
    experts, step = config.integer("num_experts", least=0), config.integer("decoder_sparse_step")
    dense = indices(config, "mlp_only_layers", layers)
    return [bool(experts) and i not in dense and (i + 1) % step == 0 for i in range(layers)]


def olmo_hybrid(config: Config) -> Model:
    """OLMo Hybrid: gated delta layers with norms before their blocks, attention layers with norms after them."""
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    function = activation(config, "hidden_act")
    bias = on(config, "attention_bias")
    stated = config.raw("rope_parameters", required=False)
    rotates = not isinstance(stated, dict) or stated.get("rope_theta", 0) is not None or config.has("rope_theta")
    attend = partial(
        attention,
        width=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=bias,
        out_bias=bias,
        rope=Rope(head_dim) if rotates else None,
        norm=RMS_FP32,
        norm_over="all",
    )
    key_heads = config.optional_integer("linear_num_key_heads") or heads
    value_heads = config.optional_integer("linear_num_value_heads") or heads
    key_dim = config.optional_integer("linear_key_head_dim")
    if key_dim is None:
        key_dim = positive(config, "linear_num_key_heads", int(0.75 * hidden / key_heads), "the key size")
    value_dim = config.optional_integer("linear_value_head_dim") or 2 * key_dim
    doubled = config.flag("linear_allow_neg_eigval", otherwise=True)
    mix = _delta(config, hidden, SINGLE_DELTA, (key_heads, value_heads, key_dim, value_dim), doubled=doubled)
    feed = partial(gated_mlp, width=hidden, inner=config.integer("intermediate_size"), function=function)
    config.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max")
    config.ignore("linear_dt_init_floor")

    def laid_out() -> Sequence[str]:
        listed = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
        return listed if FULL in listed else [*listed[:-1], FULL]

    listed = kinds(config, "layer_types", layers, (LINEAR, FULL), laid_out)
    runs = runs_of(
        listed,
        lambda kind: (
            Layer("attention", output_norm(hidden, RMS_FP32, attend, feed))
            if kind == FULL
            else Layer("delta", pre_norm(hidden, RMS_FP32, mix, feed))
        ),
    )
    return _network(
        config,
        runs,
        hidden=hidden,
        norm=RMS_FP32,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )


# --- RWKV ------------------------------------------------------------------------------------------------------------


def rwkv(config: Config) -> Model:
    """RWKV-4 (arXiv:2305.13048): time mixing, then channel mixing; a norm of its own before the first layer."""
    hidden, layers = width(config), depth(config)
    inner = config.optional_integer("attention_hidden_size") or hidden
    mix = partial(wkv, width=hidden, inner=inner)
    feed = partial(channel_mix, width=hidden, d_ff=config.optional_integer("intermediate_size") or 4 * hidden)
    layer = Layer("rwkv", pre_norm(hidden, LAYER, mix, feed))
    model = _network(
        config,
        ((layers, layer),),
        hidden=hidden,
        norm=LAYER,
        heads=inner,
        kv_heads=inner,
        head_dim=1,
    )
    stack = model.stacks[0]
    first = LAYER("embedding_norm", stack.before[-1].name, hidden)
    return replace(model, stacks=(replace(stack, before=(*stack.before, first)),))

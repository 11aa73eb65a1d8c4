"""Decoders with softmax attention: one adapter, and a table of what each model_type does differently.

A trait that names a field is read from the config; a trait that is a constant is a fact of the class. The facts are
those of the transformers library's modelling code (version 5), which the published checkpoints are loaded with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import Any, NamedTuple

from napkin.formulas import blocks
from napkin.formulas.blocks import (
    LAYER,
    LAYER_BARE,
    LAYER_FP32,
    LAYER_FP32_PER_HEAD,
    LAYER_OFFSET,
    LAYER_PER_HEAD,
    RMS,
    RMS_BARE,
    RMS_FP32,
    RMS_OFFSET,
    Block,
    Gate,
    NormStyle,
    Operations,
    Rope,
    Routing,
)
from napkin.formulas.families import common
from napkin.formulas.families.common import CHUNKED, FULL, WINDOWED, Switch, on
from napkin.formulas.layer import BalanceLoss, Layer, Model
from napkin.inputs.model import Config, number_in
from napkin.record import record, replace

# --- which layers do what --------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What sets one layer apart from the others. `table`: which of the rotary tables it reads, by its number."""

    window: int | None = None
    chunk: int | None = None
    rope: bool = True
    sparse: bool = False
    table: int = 0
    last: bool = False
    heads: int = 0


Pattern = Callable[[Config, int], Callable[[int], str]]
"""(config, layers) → the attention of layer i, where config.json does not list it."""


def every(period: int, field: str = "") -> Pattern:
    """Windows everywhere but in each `period`-th layer."""

    def pattern(config: Config, layers: int) -> Callable[[int], str]:
        n = (config.optional_integer(field, least=0) if field else period) or period
        return lambda i: WINDOWED if (i + 1) % n else FULL

    return pattern


def first_of(period: int) -> Pattern:
    """Full attention in layers 0, n, 2n, …"""
    return lambda config, layers: lambda i: WINDOWED if i % period else FULL


def everywhere(config: Config, layers: int) -> Callable[[int], str]:
    return lambda i: WINDOWED


def in_windows(config: Config, kinds: Sequence[str], sparse: Sequence[bool]) -> list[bool]:
    """Rotary positions in layers with a window alone."""
    return [kind == WINDOWED for kind in kinds]


def nowhere(config: Config, layers: int) -> Callable[[int], str]:
    """Full attention where layer_types does not say otherwise."""
    return lambda i: FULL


def flint_pattern(config: Config, layers: int) -> Callable[[int], str]:
    """Full attention in the first two layers, in each fourth one from the second on, and in the last."""
    return lambda i: FULL if i < 2 or i % 4 == 1 or i == layers - 1 else WINDOWED


def late(config: Config, layers: int) -> Callable[[int], str]:
    """Windows from layer max_window_layers on."""
    start = config.integer("max_window_layers", least=0)
    return lambda i: WINDOWED if i >= start else FULL


def early_even(config: Config, layers: int) -> Callable[[int], str]:
    """Windows in the even layers before max_window_layers."""
    end = config.integer("max_window_layers", least=0)
    return lambda i: WINDOWED if i % 2 == 0 and i < end else FULL


def exaone_pattern(config: Config, layers: int) -> Callable[[int], str]:
    """sliding_window_pattern: a period, or letters as in LLLG (local and global), repeated."""
    value = config.raw("sliding_window_pattern", required=False)
    if isinstance(value, str) and value and not set(value) - set("LG"):
        return lambda i: WINDOWED if value[i % len(value)] == "L" else FULL
    return every(4, "sliding_window_pattern")(config, layers)


def alternating(config: Config, layers: int) -> Callable[[int], str]:
    """attention_types: [[[global, local], n], …] repeats each pair n times; global and local in turn by default."""
    blocks_of = config.items("attention_types", required=False)
    if blocks_of is None:
        return lambda i: WINDOWED if i % 2 else FULL
    kinds: list[str] = []
    for block in blocks_of:
        try:
            names, count = block
            kinds += [{"global": FULL, "local": WINDOWED}[name] for name in names] * min(count, layers)
        except (TypeError, ValueError, KeyError):
            raise config.wrong("attention_types", "is not a list of [[global, local], n]") from None
    if len(kinds) != layers:
        raise config.wrong("attention_types", f"lists {len(kinds)} layers of {layers}")
    return lambda i: kinds[i]


Sparse = Callable[[Config, int], Callable[[int], bool]]
"""(config, layers) → whether layer i has experts."""


def all_sparse(config: Config, layers: int) -> Callable[[int], bool]:
    return lambda i: True


def after_first(config: Config, layers: int) -> Callable[[int], bool]:
    """Dense for the first k layers."""
    config.must_be("moe_layer_freq", 1)
    dense = config.integer("first_k_dense_replace", least=0)
    return lambda i: i >= dense


def after_dense(config: Config, layers: int) -> Callable[[int], bool]:
    """Dense for the first num_dense_layers."""
    dense = config.integer("num_dense_layers", least=0)
    return lambda i: i >= dense


def stepped(config: Config, layers: int) -> Callable[[int], bool]:
    """Each n-th layer, but those listed as dense."""
    step = config.integer("decoder_sparse_step")
    dense = common.indices(config, "mlp_only_layers", layers)
    return lambda i: i not in dense and (i + 1) % step == 0


def stepped_after_two(config: Config, layers: int) -> Callable[[int], bool]:
    """Each n-th layer, but those listed as dense; the first two are where no list says it."""
    sparse = stepped(config, layers)
    if config.items("mlp_only_layers", required=False) is not None:
        return sparse
    return lambda i: i > 1 and sparse(i)


def between(config: Config, layers: int) -> Callable[[int], bool]:
    """Each n-th layer from a first to a last one."""
    start, step = config.integer("moe_layer_start_index", least=0), config.integer("moe_layer_interval")
    end = config.integer("moe_layer_end_index", least=-1)
    last = layers - 1 if end == -1 else end
    return lambda i: start <= i <= last and (i + 1) % step == 0


def listed(config: Config, layers: int) -> Callable[[int], bool]:
    """Layers listed in moe_layers, or each n-th one."""
    if config.has("moe_layers"):
        config.ignore("interleave_moe_layer_step")
        chosen = common.indices(config, "moe_layers", layers)
        return lambda i: i in chosen
    step = config.integer("interleave_moe_layer_step")
    return lambda i: (i + 1) % step == 0


def by_list(config: Config, layers: int) -> Callable[[int], bool]:
    """As mlp_layer_types lists them, or every layer."""
    if config.items("mlp_layer_types", required=False) is None:
        return all_sparse(config, layers)
    return by_type(config, layers)


def by_type(config: Config, layers: int) -> Callable[[int], bool]:
    """As mlp_layer_types lists them, or dense for the first k (1 where the class does not say)."""
    config.must_be("moe_layer_freq", 1)
    given = config.items("mlp_layer_types", required=False)
    if given is None:
        dense = config.optional_integer("first_k_dense_replace", least=0)
        first = 1 if dense is None else dense
        return lambda i: i >= first
    return listed_types(config, layers, given)


def listed_types(config: Config, layers: int, given: Sequence[object]) -> Callable[[int], bool]:
    """As mlp_layer_types lists them."""
    config.ignore("first_k_dense_replace")
    if len(given) != layers or set(map(str, given)) - {"sparse", "dense"}:
        raise config.wrong("mlp_layer_types", f"is not a list of {layers} times sparse or dense")
    return lambda i: given[i] == "sparse"


# --- traits ----------------------------------------------------------------------------------------------------------


@record
class Mixture:
    """The experts of a model_type.

    experts, top_k, inner   fields            where         which layers have them
    shared   "" none; "count": `shared_field` experts of the routed size, side by side; "size": one of that width;
             "like": one of the routed size; "mlp": the dense layers' own
    balances output_router_logits adds a loss on how evenly the experts are used
    jitter   the field that says how strong the noise is that multiplies the tokens, `jitters` times
    softcap  the field that says where the router's logits are cut softly; 0 where they are not
    scaled, averaged, wide_product   as scaled, averaged and upcast of blocks.moe
    """

    experts: str = "num_local_experts"
    top_k: str = "num_experts_per_tok"
    inner: str = "moe_intermediate_size"
    where: Sparse = all_sparse
    shared: str = ""
    shared_field: str = ""
    shared_least: int = 0
    shared_gate: bool = False
    score: str = "softmax"
    normalise: Switch = False
    upcast: bool = False
    balanced: str = ""
    router_bias: bool = False
    bias: bool = False
    function: str = ""
    weighted_input: bool = False
    fused_shared: bool = False
    jitter: str = ""
    jitters: int = 1
    balances: bool = False
    softcap: str = ""
    scaled: bool = False
    averaged: bool = False
    wide_product: bool = False


Rotates = Callable[[Config, Sequence[str], Sequence[bool]], list[bool]]
"""(config, each layer's attention, whether it has experts) → which layers have rotary positions."""


@record
class Traits:
    """What a model_type does differently from Llama (whose traits are the defaults). `square`: the output projection is
    h × h, so that heads · head_dim must be h. `tempered`: the field that says whether queries of layers without rotary
    positions are multiplied by a factor of their position (or that they are). `rotates`: which layers have rotary
    positions, by their attention as it is listed; the size of a window must then be stated where one is listed.
    `thetas`: the field that lists each layer's rotary base, 0 where it has no rotary positions. `last_out_bias`: the
    last layer's output projection alone has a bias. `inner_times`: the field that says how many times h the
    feed-forward network is wide."""

    norm: NormStyle = RMS
    arrangement: str = "pre"
    final_norm: bool = True
    bias: Switch = False
    out_bias: Switch = False
    last_out_bias: bool = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    kv_heads: str = "num_key_value_heads"
    own_head_dim: bool = True
    square: bool = False
    inner: str = "intermediate_size"
    inner_default: int = 0
    inner_times: str = ""
    function: tuple[str, ...] = ("hidden_act",)
    gated: bool = True
    function_is: str = ""
    fused: bool = False
    fused_mlp: bool = False
    rope: str = "half"
    rope_share: float = 1.0
    rope_upcast: bool = False
    no_rope_every: str = ""
    thetas: str = ""
    rope_in_windows_only: bool = False
    qk_norm: NormStyle | None = None
    qk_norm_switch: Switch = True
    qk_norm_over: str = "head"
    norm_after_rope: bool = False
    norm_needs_rope: bool = False
    rotates: Rotates | None = None
    gate: Gate | None = None
    value_dim: str = ""
    value_scale: bool = False
    tempered: Switch = ""
    clamp: Switch = False
    windows: Pattern | None = None
    window_switch: Switch = True
    window_field: str = "sliding_window"
    sinks: bool = False
    upcast: Switch = False
    indexed: bool = False
    groups: int = 1
    spread: bool = False
    softcap: str = ""
    final_softcap: str = ""
    wide_final_cap: bool = False
    position: str = "none"
    positions_offset: int | None = None
    embedding_scale: Switch = False
    embedding_norm: NormStyle | None = None
    logit_scale: Switch = False
    residual_scale: bool = False
    residual_after_norm: Switch = False
    weighted: bool = False
    parallel_switch: str = ""
    sandwich_switch: str = ""
    inner_norm: NormStyle | None = None
    parallel_norms: int = 1
    wide_product: bool = False
    dropout: tuple[bool, bool] = (False, False)
    dropout_sum: bool = False
    embedding_dropout: bool = False
    activation_dropout: bool = False
    moe: Mixture | None = None
    mtp: bool = False
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    ignored: tuple[str, ...] = ()


def _field_on(config: Config, switch: Switch) -> bool:
    """A switch that is a constant, or a field that counts as on when stated (a multiplier, a soft cap)."""
    if isinstance(switch, bool):
        return switch
    value = config.raw(switch, required=False)
    return value is not None and value is not False


# --- the adapter -----------------------------------------------------------------------------------------------------


Vary = Callable[[Plan], dict[str, Any]]
"""What sets one layer's attention apart → arguments of blocks.attention that it has of its own."""


def build(config: Config) -> Model:
    """config.json of any model_type in TRAITS → Model."""
    return decoder(config, TRAITS[config.model_type])


def decoder(
    config: Config,
    traits: Traits,
    *,
    kv_heads: int | None = None,
    table_width: int | None = None,
    max_length_field: str = "max_position_embeddings",
    heads_of: Sequence[int] = (),
    vary: Vary | None = None,
    beside: Callable[[Block], Block] | None = None,
) -> Model:
    """A decoder with the traits. `kv_heads`: where no one field says it; `table_width`: of a token table of its own
    width, projected to h and back; `heads_of`: each layer's heads, where they differ; `vary`: what sets one kind of
    layer's attention apart; `beside`: makes a feed-forward network of the dense one and what stands beside it."""
    for field, values in traits.only:
        config.must_be(field, *values)
    config.ignore(*traits.ignored)
    hidden, layers = common.width(config), common.depth(config)
    heads = config.integer("num_attention_heads")
    if kv_heads is None:
        kv_heads = common.kv_heads_of(config, heads, traits.kv_heads) if traits.kv_heads else heads
    head_dim = common.head_size(config, hidden, heads, traits.own_head_dim)
    if traits.square and heads * head_dim != hidden:
        raise config.wrong("head_dim", f"{heads} heads of {head_dim} are not hidden_size = {hidden}")
    rows = config.integer("vocab_size")
    max_length = config.optional_integer(max_length_field)
    attend = _attention(config, traits, hidden, heads, kv_heads, head_dim, vary)
    arrange = _arrangement(config, traits)
    dense, sparse = _feeds(config, traits, hidden, layers)
    if beside is not None and dense is not None:
        dense = beside(dense)

    def make(plan: Plan) -> Layer:
        feed = sparse if plan.sparse else dense
        assert feed is not None
        return Layer(_kind(plan, distinct), arrange(hidden, traits.norm, attend(plan), feed))

    plans = _plans(config, traits, layers)
    if heads_of:
        plans = [plan._replace(heads=own) for plan, own in zip(plans, heads_of, strict=True)]
    distinct = set(plans)
    runs = common.runs_of(plans, make)
    learnt = traits.positions_offset
    if learnt is not None and max_length is None:
        raise config.refuse("max_position_embeddings", "is missing: it sizes the table of learnt positions")
    none = common.headless(config)
    extra = common.prediction_modules(config, hidden, traits.norm, common.last_layer(runs)) if traits.mtp else ()
    return common.decoder_only(
        config,
        common.embedding(
            rows,
            hidden,
            table_width=table_width,
            positions=(max_length or 0) + learnt if learnt is not None else 0,
            scale=_field_on(config, traits.embedding_scale),
            norm=traits.embedding_norm,
            dropout=traits.embedding_dropout,
        ),
        runs,
        common.head(
            hidden,
            rows,
            norm=traits.norm if traits.final_norm else None,
            bias=on(config, traits.head_bias),
            table_width=table_width,
            scale=_field_on(config, traits.logit_scale),
            softcap=bool(traits.final_softcap) and _capped(config, traits.final_softcap),
            wide_cap=traits.wide_final_cap,
            balance=_balance(config, traits.moe),
            none=none,
        ),
        hidden=hidden,
        heads=gcd(*heads_of) or heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=rows,
        max_length=max_length,
        tie=common.tied(config) and not none,
        extra=extra,
    )


def _capped(config: Config, field: str) -> bool:
    """Whether a soft cap is on: a class that has one keeps it where the field is omitted, not where it is null."""
    if field not in config.fields:
        return field not in config.defaults or config.defaults[field] is not None
    return config.real(field, required=False) is not None


def _kind(plan: Plan, plans: set[Plan]) -> str:
    """A layer's name from what sets it apart among these."""
    words = []
    if len({(p.window, p.chunk) for p in plans}) > 1:
        words.append("sliding" if plan.window else "chunked" if plan.chunk else "full")
    if len({p.rope for p in plans if (p.window, p.chunk) == (plan.window, plan.chunk)}) > 1:
        words.append("rotary" if plan.rope else "unrotated")
    if len({p.heads for p in plans}) > 1:
        words.append(f"{plan.heads}_heads")
    if any(p.sparse for p in plans):
        words.append("moe" if plan.sparse else "dense")
    return "_".join(words) or "decoder"


def _plans(config: Config, traits: Traits, layers: int) -> list[Plan]:
    window = None
    types: list[str] = []
    if traits.windows is not None:
        window = config.optional_integer(traits.window_field, least=0) if on(config, traits.window_switch) else None
        if window == 0:
            window = None
        config.ignore(traits.window_field, "sliding_window_pattern", "max_window_layers", "layer_types")
        if window is not None or traits.rotates:
            types = list(common.layer_types(config, layers, traits.windows(config, layers)))
    rope = [True] * layers
    chunk = None
    if traits.no_rope_every:
        given = config.items("no_rope_layers", required=False)
        if given:
            if len(given) != layers or any(flag not in (0, 1) for flag in given):
                raise config.wrong("no_rope_layers", f"is not a list of {layers} times 0 or 1")
            rope = [bool(flag) for flag in given]
        else:
            period = config.optional_integer(traits.no_rope_every) or 4
            rope = [(i + 1) % period != 0 for i in range(layers)]
        if "attention_chunk_size" in config.defaults or config.has("attention_chunk_size"):
            chunk = config.optional_integer("attention_chunk_size")
            types = list(common.layer_types(config, layers, lambda i: CHUNKED if rope[i] else FULL))
    sparse = list(map(traits.moe.where(config, layers), range(layers))) if traits.moe else [False] * layers
    tables = _tables(config, traits.thetas, layers) if traits.thetas else None
    if tables is not None:
        rope = [table > 0 for table in tables]
    last = [False] * (layers - 1) + [traits.last_out_bias]
    alike = not types and tables is None and not traits.last_out_bias
    if alike and not traits.no_rope_every and traits.moe is None:  # however many
        return [Plan(None, None, True, False)] * layers
    attends = types or [FULL] * layers
    if traits.rotates:
        if window is None and WINDOWED in attends:
            raise config.refuse(traits.window_field, "is missing, but there are layers with a window")
        rope = traits.rotates(config, attends, sparse)
    if traits.rope_in_windows_only and window is not None:
        rope = [turned and kind != FULL for turned, kind in zip(rope, attends, strict=True)]
    keys = list(zip(attends, rope, sparse, tables or [0] * layers, last, strict=True))
    made = {
        key: Plan(window if key[0] == WINDOWED else None, chunk if key[0] == CHUNKED else None, *key[1:])
        for key in dict.fromkeys(keys)
    }
    return [made[key] for key in keys]


def _tables(config: Config, field: str, layers: int) -> list[int] | None:
    """Which rotary table each layer reads, one for each base that the field lists, from 1; 0 for none of them."""
    given = config.items(field, required=False)
    if given is None:
        return None
    bases = [number_in(value) for value in given]
    if len(bases) != layers or any(isinstance(v, bool) or not isinstance(v, (int, float)) or v < 0 for v in bases):
        raise config.wrong(field, f"is not a list of {layers} rotary bases")
    numbers = {base: number for number, base in enumerate(sorted({base for base in bases if base}), 1)}
    return [numbers.get(base, 0) for base in bases]


def _attention(
    config: Config, traits: Traits, hidden: int, heads: int, kv_heads: int, head_dim: int, vary: Vary | None = None
) -> Callable[[Plan], Block]:
    qk_norm = traits.qk_norm if traits.qk_norm is not None and on(config, traits.qk_norm_switch) else None
    rope = None
    if traits.rope:
        dim = common.rotary_dim(config, head_dim, traits.rope_share)
        rope = Rope(dim, traits.rope, traits.rope_upcast)
    fixed = partial(
        blocks.attention,
        width=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=on(config, traits.bias),
        fused=traits.fused,
        norm_over=traits.qk_norm_over,
        norm_after_rope=traits.norm_after_rope,
        clamp=_field_on(config, traits.clamp),
        sinks=traits.sinks,
        softcap=bool(traits.softcap) and _capped(config, traits.softcap),
        position=traits.position,
        upcast=upcast if isinstance(upcast := traits.upcast, bool) else config.flag(upcast, otherwise=False),
        indexed=traits.indexed,
        groups=traits.groups,
        spread=traits.spread,
        out_norm=traits.inner_norm,
        gate=traits.gate and replace(traits.gate, bias=on(config, traits.bias) and traits.gate.bias),
        v_dim=config.integer(traits.value_dim) if traits.value_dim else None,
        value_scale=traits.value_scale,
    )

    out_bias = on(config, traits.out_bias)
    tempered = bool(traits.tempered)
    if tempered and isinstance(traits.tempered, str):
        tempered = config.flag(traits.tempered, otherwise=True)

    def attend(plan: Plan) -> Block:
        normed = qk_norm if plan.rope or not traits.norm_needs_rope else None
        usual = partial(
            fixed,
            rope=replace(rope, table=plan.table) if rope is not None and plan.rope else None,
            out_bias=out_bias or plan.last,
            norm=normed,
            window=plan.window,
            chunk=plan.chunk,
            tempered=tempered and not plan.rope,
        )
        own = {"heads": plan.heads} if plan.heads else {}
        return partial(usual, **own, **vary(plan)) if vary else usual

    return attend


def _arrangement(config: Config, traits: Traits) -> Callable[..., Operations]:
    style = traits.arrangement
    if traits.parallel_switch:
        style = "parallel" if on(config, traits.parallel_switch) else "pre"
    if traits.sandwich_switch:
        style = "sandwich" if on(config, traits.sandwich_switch) else "pre"
    if style == "parallel":
        return partial(
            blocks.parallel,
            norms=traits.parallel_norms,
            dropout=(False, False) if traits.dropout_sum else traits.dropout,
            dropout_sum=traits.dropout_sum,
        )
    if style == "pre":
        after = on(config, traits.residual_after_norm)
        return partial(
            blocks.pre_norm,
            dropout=traits.dropout,
            scale=traits.residual_scale,
            residual_after_norm=after,
            weighted=traits.weighted,
        )
    if style == "post":
        return partial(blocks.post_norm, dropout=traits.dropout)
    if style == "sandwich":
        return partial(blocks.sandwich_norm, scale=traits.residual_scale)
    return {"output": blocks.output_norm}[style]


def _feeds(config: Config, traits: Traits, hidden: int, layers: int) -> tuple[Block | None, Block | None]:
    """The dense feed-forward and the mixture of experts of a layer; None where no layer has one."""
    mixture = traits.moe
    function = traits.function_is or common.activation(config, *traits.function)
    if mixture is None:
        return _dense(config, traits, hidden, function), None
    sparse_at = mixture.where(config, layers)
    count = sum(sparse_at(i) for i in range(layers))
    needs_dense = count < layers or mixture.shared == "mlp"
    dense = _dense(config, traits, hidden, function) if needs_dense else None
    if not needs_dense:
        config.ignore(traits.inner)
    if not count:
        config.ignore(mixture.experts, mixture.top_k, mixture.inner, mixture.shared_field, "norm_topk_prob")
        return dense, None
    return dense if count < layers else None, _experts(config, traits, mixture, hidden, function, dense)


def _dense(config: Config, traits: Traits, hidden: int, function: str) -> Callable[..., Operations]:
    if traits.inner_default:  # a class that computes it, from no field at all where `inner` is empty
        inner = config.optional_integer(traits.inner) if traits.inner else None
        width = inner if inner is not None else traits.inner_default * hidden
    elif traits.inner_times:
        width = config.integer(traits.inner_times) * hidden
    else:
        width = config.integer(traits.inner)
    bias = on(config, traits.mlp_bias)
    if traits.gated:
        return partial(
            blocks.gated_mlp,
            width=hidden,
            inner=width,
            function=function,
            bias=bias,
            fused=traits.fused_mlp,
            norm=traits.inner_norm,
            upcast=traits.wide_product,
        )
    learnt = 2 if function == "xielu" else 0  # α of the positive and of the negative side
    return partial(
        blocks.plain_mlp,
        width=hidden,
        inner=width,
        function=function,
        bias=bias,
        learnt=learnt,
        dropout=traits.activation_dropout,
    )


def _experts(
    config: Config,
    traits: Traits,
    mixture: Mixture,
    hidden: int,
    function: str,
    dense: Callable[..., Operations] | None,
) -> Block:
    inner = config.integer(mixture.inner)
    routing = _routing(config, mixture)
    shared: Block | None = None
    if mixture.shared == "mlp":
        assert dense is not None
        shared = partial(dense, prefix="shared/")
    elif mixture.shared:
        size = _shared_size(config, mixture, inner)
        if size:
            shared = partial(
                blocks.gated_mlp,
                width=hidden,
                inner=size,
                function=function,
                bias=on(config, traits.mlp_bias),
                fused=mixture.fused_shared,
                prefix="shared/",
            )
    return partial(
        blocks.moe,
        width=hidden,
        inner=inner,
        routing=routing,
        function=mixture.function or function,
        bias=mixture.bias,
        weighted_input=mixture.weighted_input,
        shared=shared,
        shared_gate=mixture.shared_gate,
        scaled=mixture.scaled,
        averaged=mixture.averaged,
        upcast=mixture.wide_product,
    )


def _balance(config: Config, mixture: Mixture | None) -> BalanceLoss | None:
    if mixture is None or not mixture.balances or not config.flag("output_router_logits", otherwise=False):
        return None
    return BalanceLoss("balance_loss", (), config.integer(mixture.experts), config.integer(mixture.top_k))


def _routing(config: Config, mixture: Mixture) -> Routing:
    experts, top_k = config.integer(mixture.experts), config.integer(mixture.top_k)
    if mixture.score == "sparsemixer" and top_k != SPARSEMIXER_CHOOSES:
        raise config.wrong(mixture.top_k, f"is {top_k}, but SparseMixer chooses {SPARSEMIXER_CHOOSES} experts")
    if top_k > experts:
        raise config.wrong(mixture.top_k, f"chooses {top_k} of {experts} experts")
    config.ignore("n_group", "topk_group")  # how the best are found
    normalise = mixture.normalise
    if isinstance(normalise, str):
        normalise = config.flag(normalise, otherwise=False)
    return Routing(
        experts,
        top_k,
        mixture.router_bias,
        mixture.score,
        normalise,
        mixture.upcast,
        mixture.balanced,
        mixture.jitters if mixture.jitter and config.real(mixture.jitter, required=False) else 0,
        softcap=bool(mixture.softcap) and (config.real(mixture.softcap, required=False) or 0) > 0,
    )


def _shared_size(config: Config, mixture: Mixture, inner: int) -> int:
    if mixture.shared == "like":
        return inner
    number = config.optional_integer(mixture.shared_field, least=mixture.shared_least) or 0
    return number * inner if mixture.shared == "count" else number


# --- the table -------------------------------------------------------------------------------------------------------

LLAMA = Traits(bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
MISTRAL = Traits(windows=everywhere)
QWEN2 = Traits(bias=True, windows=late, window_switch="use_sliding_window")
QWEN3 = Traits(
    bias="attention_bias", out_bias="attention_bias", qk_norm=RMS, windows=late, window_switch="use_sliding_window"
)
QWEN_MOE = Mixture("num_experts", where=stepped, normalise="norm_topk_prob", balances=True)
GEMMA = Traits(
    norm=RMS_OFFSET,
    bias="attention_bias",
    out_bias="attention_bias",
    function=("hidden_activation", "hidden_act"),
    embedding_scale=True,
    only=(("use_bidirectional_attention", (False,)),),
)
GEMMA2 = replace(
    GEMMA,
    arrangement="sandwich",
    windows=every(2),
    softcap="attn_logit_softcapping",
    final_softcap="final_logit_softcapping",
)
GPT2 = Traits(
    norm=LAYER,
    bias=True,
    out_bias=True,
    mlp_bias=True,
    kv_heads="",
    own_head_dim=False,
    inner="n_inner",
    inner_default=4,
    function=("activation_function",),
    gated=False,
    fused=True,
    rope="",
    positions_offset=0,
    dropout=(True, True),
    embedding_dropout=True,
    only=(("add_cross_attention", (False,)),),
)
GPTJ = Traits(
    norm=LAYER,
    arrangement="parallel",
    mlp_bias=True,
    head_bias=True,
    kv_heads="",
    own_head_dim=False,
    inner="n_inner",
    inner_default=4,
    function=("activation_function",),
    gated=False,
    rope="interleaved",
    dropout=(True, True),
    embedding_dropout=True,
    ignored=("rotary",),
)
OLMO2 = Traits(
    norm=RMS_FP32,
    arrangement="output",
    bias="attention_bias",
    out_bias="attention_bias",
    qk_norm=RMS_FP32,
    qk_norm_over="all",
)
COHERE = Traits(
    norm=LAYER_FP32,
    arrangement="parallel",
    bias="attention_bias",
    out_bias="attention_bias",
    rope="interleaved",
    rope_upcast=True,
    logit_scale=True,
)
GRANITE = replace(LLAMA, embedding_scale=True, logit_scale=True, residual_scale=True)
SPARSEMIXER_CHOOSES = 2
"""Experts that SparseMixer chooses for a token, one after the other (Phi-3.5-MoE; Liu et al. 2024, GRIN MoE,
arXiv:2409.12136): its code takes no other number."""
GRANITE_MOE = Mixture(inner="intermediate_size", score="softmax_top_k", balances=True)
GLM = Traits(bias="attention_bias", rope="interleaved", rope_share=0.5, fused_mlp=True)
OLMO_MOE = Mixture("num_experts", inner="intermediate_size", normalise="norm_topk_prob", balances=True)
SIGMOID_MOE = Mixture(
    "n_routed_experts",
    where=after_first,
    shared="count",
    shared_field="n_shared_experts",
    score="sigmoid",
    normalise="norm_topk_prob",
    upcast=True,
    balanced="buffer",
)

TRAITS: dict[str, Traits] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "ministral3": MISTRAL,
    "mixtral": replace(
        MISTRAL, moe=Mixture(inner="intermediate_size", normalise=True, jitter="router_jitter_noise", balances=True)
    ),
    "qwen2": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen2_moe": Traits(
        bias="qkv_bias",
        windows=early_even,
        window_switch="use_sliding_window",
        moe=replace(QWEN_MOE, shared="size", shared_field="shared_expert_intermediate_size", shared_gate=True),
    ),
    "qwen3": QWEN3,
    "qwen3_vl_text": replace(QWEN3, windows=None),
    "qwen3_moe": replace(QWEN3, windows=everywhere, moe=replace(QWEN_MOE, experts="num_local_experts")),
    "qwen3_vl_moe_text": replace(
        QWEN3, windows=None, moe=replace(QWEN_MOE, experts="num_local_experts", normalise=True)
    ),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": replace(GEMMA2, windows=every(6, "sliding_window_pattern"), softcap="", qk_norm=RMS_OFFSET),
    "phi": Traits(
        norm=LAYER,
        arrangement="parallel",
        bias=True,
        out_bias=True,
        mlp_bias=True,
        head_bias=True,
        gated=False,
        rope_share=0.5,
        qk_norm=LAYER,
        qk_norm_switch="qk_layernorm",
        dropout=(True, True),
        embedding_dropout=True,
    ),
    "phi3": Traits(
        fused=True,
        fused_mlp=True,
        windows=everywhere,
        dropout=(True, True),
        only=(
            ("attention_bias", (False,)),
            ("mlp_bias", (False,)),
            ("lm_head_bias", (False,)),
            ("full_attn_mod", (1,)),
        ),
        ignored=("interpolate_factor",),
    ),
    "phimoe": Traits(
        norm=LAYER,
        bias="attention_bias",
        out_bias="attention_bias",
        head_bias="lm_head_bias",
        windows=everywhere,
        moe=Mixture(
            inner="intermediate_size", score="sparsemixer", jitter="input_jitter_noise", jitters=2, balances=True
        ),
    ),
    "gpt2": replace(GPT2, upcast="reorder_and_upcast_attn"),
    "gpt_neo": replace(
        GPT2,
        bias=False,
        inner="intermediate_size",
        fused=False,
        windows=alternating,
        window_field="window_size",
        ignored=("attention_layers", "attention_types"),
    ),
    "gpt-sw3": replace(GPT2, upcast="reorder_and_upcast_attn"),  # GPT-2's class with another tokenizer
    "gptj": GPTJ,
    "codegen": replace(GPTJ, fused=True, groups=4, ignored=("rotary",)),  # one a core of a TPU v4
    "gpt_neox": Traits(
        norm=LAYER,
        bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias=True,
        kv_heads="",
        own_head_dim=False,
        gated=False,
        fused=True,
        rope_share=0.25,
        parallel_switch="use_parallel_residual",
        parallel_norms=2,
        dropout=(True, True),
        embedding_dropout=True,
    ),
    "gpt_neox_japanese": Traits(
        norm=LAYER,
        last_out_bias=True,
        kv_heads="",
        own_head_dim=False,
        inner_times="intermediate_multiple_size",
        gated=False,
        fused=True,
        dropout=(True, True),
    ),
    "starcoder2": Traits(
        norm=LAYER,
        bias="use_bias",
        out_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        windows=everywhere,
        dropout=(True, True),
        embedding_dropout=True,
        only=(("mlp_type", ("default",)), ("norm_type", ("layer_norm",))),
    ),
    "olmo": Traits(norm=LAYER_BARE, bias="attention_bias", out_bias="attention_bias", clamp="clip_qkv"),
    "olmo2": OLMO2,
    "olmo3": replace(OLMO2, windows=every(4)),
    "olmoe": Traits(
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=RMS,
        qk_norm_over="all",
        clamp="clip_qkv",
        moe=OLMO_MOE,
    ),
    "flex_olmo": replace(OLMO2, moe=OLMO_MOE),
    "cohere": replace(COHERE, qk_norm=LAYER_FP32_PER_HEAD, qk_norm_switch="use_qk_norm"),
    "cohere2": replace(
        COHERE,
        windows=every(4, "sliding_window_pattern"),
        rope_in_windows_only=True,
        ignored=(
            "layer_switch",
            "order_of_interleaved_layers",
            "position_embedding_type",
            "use_embedding_sharing",
            "use_gated_activation",
            "use_parallel_block",
            "use_parallel_embedding",
        ),
    ),
    "stablelm": Traits(
        norm=LAYER,
        bias="use_qkv_bias",
        own_head_dim=False,
        rope_share=0.25,
        qk_norm=LAYER_PER_HEAD,
        qk_norm_switch="qk_layernorm",
        parallel_switch="use_parallel_residual",
        dropout=(False, True),
    ),
    "persimmon": Traits(
        norm=LAYER,
        bias=True,
        out_bias=True,
        mlp_bias=True,
        kv_heads="",
        own_head_dim=False,
        gated=False,
        fused=True,
        rope_share=0.5,
        qk_norm=LAYER,
        qk_norm_switch="qk_layernorm",
        dropout=(False, True),
    ),
    "nemotron": Traits(
        norm=LAYER_OFFSET,
        bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
        gated=False,
        rope_share=0.5,
    ),
    "granite": GRANITE,
    "granitemoe": replace(GRANITE, mlp_bias=False, moe=GRANITE_MOE),
    "granitemoeshared": replace(
        GRANITE,
        mlp_bias=False,
        moe=replace(GRANITE_MOE, shared="size", shared_field="shared_intermediate_size", fused_shared=True),
    ),
    "granite_swa": replace(GRANITE, windows=first_of(4), thetas="layer_rope_theta", sinks=True),
    "granitemoe_swa": replace(
        GRANITE,
        mlp_bias=False,
        windows=first_of(4),
        thetas="layer_rope_theta",
        sinks=True,
        moe=replace(GRANITE_MOE, shared="size", shared_field="shared_intermediate_size", fused_shared=True),
    ),
    "glm": GLM,
    "glm4": replace(GLM, arrangement="sandwich"),
    "glm4_moe": Traits(
        bias="attention_bias",
        rope_share=0.5,
        qk_norm=RMS,
        qk_norm_switch="use_qk_norm",
        moe=SIGMOID_MOE,
        mtp=True,
    ),
    "dots1": Traits(bias="attention_bias", out_bias="attention_bias", qk_norm=RMS, windows=late, moe=SIGMOID_MOE),
    "deepseek": replace(
        LLAMA,
        mlp_bias=False,
        moe=Mixture(
            "n_routed_experts",
            where=after_first,
            shared="count",
            shared_field="n_shared_experts",
            normalise="norm_topk_prob",
        ),
    ),
    "llama4_text": Traits(
        bias="attention_bias",
        out_bias="attention_bias",
        rope="complex",
        rope_upcast=True,
        no_rope_every="no_rope_layer_interval",
        qk_norm=RMS_BARE,
        qk_norm_switch="use_qk_norm",
        norm_after_rope=True,
        norm_needs_rope=True,
        tempered="attn_temperature_tuning",
        inner="intermediate_size_mlp",
        moe=Mixture(inner="intermediate_size", where=listed, shared="like", score="sigmoid", weighted_input=True),
        ignored=("for_llm_compressor",),
    ),
    "smollm3": replace(
        LLAMA,
        no_rope_every="no_rope_layer_interval",
        windows=everywhere,
        window_switch="use_sliding_window",
    ),
    "seed_oss": replace(LLAMA, out_bias="attention_out_bias", dropout=(True, True)),
    "ernie4_5": Traits(bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", rope="interleaved", rope_upcast=True),
    "ernie4_5_moe": Traits(
        bias="use_bias",
        out_bias="use_bias",
        mlp_bias="use_bias",
        head_bias="use_bias",
        rope="interleaved",
        rope_upcast=True,
        moe=Mixture(
            "moe_num_experts",
            "moe_k",
            where=between,
            shared="count",
            shared_field="moe_num_shared_experts",
            normalise=True,
            upcast=True,
            balanced="parameter",
            balances=True,
        ),
        ignored=("moe_capacity", "moe_gate", "moe_use_aux_free"),
    ),
    "gpt_oss": Traits(
        norm=RMS_FP32,
        bias="attention_bias",
        out_bias="attention_bias",
        windows=every(2),
        sinks=True,
        moe=Mixture(
            inner="intermediate_size",
            score="softmax_top_k",
            router_bias=True,
            bias=True,
            function="swiglu_oai",
            balances=True,
        ),
        ignored=("experts_per_token", "initial_context_length"),
    ),
    "minimax_m2": Traits(
        qk_norm=RMS,
        qk_norm_over="all",
        moe=Mixture(
            inner="intermediate_size",
            score="sigmoid",
            normalise=True,
            balanced="buffer",
            jitter="router_jitter_noise",
            balances=True,
        ),
        only=(
            ("use_qk_norm", (True,)),
            ("qk_norm_type", ("per_layer",)),
            ("shared_intermediate_size", (0,)),
            ("use_routing_bias", (True,)),
        ),
        ignored=("attn_type_list", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"),  # unknown to the class
    ),
    "exaone4": Traits(arrangement="output", qk_norm=RMS, windows=exaone_pattern, rope_in_windows_only=True),
    "flint": Traits(
        norm=RMS_FP32,
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=RMS_FP32,
        windows=flint_pattern,
        rope_in_windows_only=True,
        sinks=True,
        upcast=True,
        moe=Mixture(
            "num_experts",
            where=stepped_after_two,
            shared="size",
            shared_field="shared_expert_intermediate_size",
            score="sigmoid",
            normalise="norm_topk_prob",
            upcast=True,
            balances=True,
        ),
    ),
    "hy_v3": replace(
        LLAMA,
        qk_norm=RMS,
        moe=replace(
            SIGMOID_MOE, experts="num_experts", where=by_type, shared_field="num_shared_experts", normalise=True
        ),
        mtp=True,
        only=tuple(
            (field, (True,))
            for field in ("moe_router_enable_expert_bias", "moe_router_use_sigmoid", "qk_norm", "route_norm")
        ),
    ),
    "kolibri1": Traits(
        arrangement="sandwich",
        qk_norm=RMS,
        windows=every(5),
        rope_in_windows_only=True,
        moe=Mixture(
            shared="size",
            shared_field="shared_expert_intermediate_size",
            score="sigmoid_top_k",
            normalise="norm_topk_prob",
            upcast=True,
            balanced="buffer",
        ),
    ),
    "mellum": replace(
        QWEN3,
        windows=nowhere,
        window_switch=True,
        moe=replace(QWEN_MOE, experts="num_local_experts", where=by_list),
        mtp=True,
        ignored=("mtp_layer_types", "mtp_mlp_layer_types", "use_sliding_window"),  # unknown to the class
    ),
    "hunyuan_v1_dense": Traits(bias="attention_bias", out_bias="attention_bias", qk_norm=RMS, norm_after_rope=True),
    "hunyuan_v1_moe": Traits(
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=RMS,
        norm_after_rope=True,
        moe=Mixture("num_experts", "moe_topk", inner="intermediate_size", shared="mlp", normalise=True, upcast=True),
    ),
    "apertus": Traits(
        bias="attention_bias",
        out_bias="attention_bias",
        gated=False,
        qk_norm=RMS,
        function_is="xielu",
        only=(("hidden_act", ("xielu",)),),
    ),
    "afmoe": Traits(
        norm=RMS_FP32,
        arrangement="sandwich",
        bias="attention_bias",
        out_bias="attention_bias",
        qk_norm=RMS_FP32,
        windows=every(4, "global_attn_every_n_layers"),
        rotates=in_windows,
        gate=Gate(),
        embedding_scale="mup_enabled",
        moe=Mixture(
            "num_experts",
            where=after_dense,
            shared="count",
            shared_field="num_shared_experts",
            score="sigmoid",
            normalise=True,
            balanced="parameter",
        ),
        only=(("route_norm", (True,)), ("score_func", ("sigmoid",))),
        ignored=("num_expert_groups", "num_limited_groups", "use_grouped_mm"),  # unknown to the class
    ),
    "arcee": replace(LLAMA, gated=False),
    "aria_text": replace(
        LLAMA,
        moe=Mixture(
            "moe_num_experts",
            "moe_topk",
            inner="intermediate_size",
            shared="count",
            shared_field="moe_num_shared_experts",
            shared_least=1,
            score="softmax_top_k",
            function="silu",
        ),
    ),
    "bitnet": replace(LLAMA, mlp_bias=False, square=True, inner_norm=RMS),
    "hyperclovax": replace(GRANITE, sandwich_switch="use_post_norm"),
    "internlm3": LLAMA,
    "iquestcoder": replace(LLAMA, only=(("clip_qkv", ()), ("use_sliding_window", (False,)))),
    "helium": Traits(norm=RMS_FP32, bias="attention_bias", mlp_bias="mlp_bias", rope="interleaved", square=True),
    "nanochat": Traits(
        norm=RMS_BARE,
        bias="attention_bias",
        out_bias="attention_bias",
        gated=False,
        qk_norm=RMS_BARE,
        norm_after_rope=True,
        embedding_norm=RMS_BARE,
        final_softcap="final_logit_softcapping",
    ),
    "jais2": replace(LLAMA, norm=LAYER, gated=False),
    "solar_open": Traits(bias="attention_bias", moe=replace(SIGMOID_MOE, where=all_sparse)),
    "vaultgemma": replace(GEMMA2, arrangement="pre"),
    "exaone_moe": Traits(
        qk_norm=RMS,
        windows=exaone_pattern,
        rope_in_windows_only=True,
        moe=replace(SIGMOID_MOE, experts="num_experts", where=by_type, shared_field="num_shared_experts"),
    ),
    "ctrl": replace(
        GPT2,
        inner="dff",
        inner_default=0,
        function_is="relu",
        fused=False,
        positions_offset=None,
        position="sinusoidal",
        embedding_scale=True,
        head_bias=True,
    ),
    "glm4v_text": replace(GLM, arrangement="sandwich", bias=True, own_head_dim=False),
    "glm4v_moe_text": Traits(bias="attention_bias", rope_share=0.5, moe=replace(SIGMOID_MOE, balances=True)),
    "internlm2": Traits(bias="bias", out_bias="bias", fused=True),
    "minicpm": replace(GRANITE, bias=False, out_bias=False, mlp_bias=False, only=(("attention_bias", (False,)),)),
    "cwm": replace(LLAMA, bias=False, out_bias=False, windows=first_of(4)),
    "xglm": replace(
        GPT2,
        inner="ffn_dim",
        inner_default=0,
        fused=False,
        positions_offset=None,
        position="sinusoidal",
        embedding_scale="scale_embedding",
        activation_dropout=True,
    ),
}

"""Decoders with softmax attention: one adapter for whatever traits a model_type has (traits.py, decoders.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

from napkin.architectures import arrangements, blocks, common
from napkin.architectures.attention import Attention, Heads, QkNorm, QkvProjections, Rope, Scaling, Scores
from napkin.architectures.blocks import Block, Operations, Routing
from napkin.architectures.common import CHUNKED, FULL, WINDOWED, Switch, on
from napkin.architectures.traits import SPARSEMIXER_CHOOSES, Mixture, Traits
from napkin.inputs.model import Config, number_in
from napkin.operations.experts import BalanceLoss
from napkin.operations.model import Layer, Model
from napkin.record import replace


class Plan(NamedTuple):
    """What sets one layer apart from the others. `table`: which of the rotary tables it reads, by its number."""

    window: int | None = None
    chunk: int | None = None
    rope: bool = True
    sparse: bool = False
    table: int = 0
    last: bool = False
    heads: int = 0


Vary = Callable[[Attention, Plan], Attention]
"""(attention as all layers have it, what sets a layer apart) → that layer's."""


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
    fixed = Attention(
        Heads(hidden, heads, kv_heads, head_dim, config.integer(traits.value_dim) if traits.value_dim else 0),
        QkvProjections(
            bias=on(config, traits.bias),
            out_bias=on(config, traits.out_bias),
            fused=traits.fused,
            indexed=traits.indexed,
            groups=traits.groups,
            repeated=traits.spread,
            clamped=_field_on(config, traits.clamp),
        ),
        scaling=Scaling(values=traits.value_scale),
        scores=Scores(
            sinks=traits.sinks,
            softcap=bool(traits.softcap) and _capped(config, traits.softcap),
            position=traits.position,
            upcast=upcast if isinstance(upcast := traits.upcast, bool) else config.flag(upcast, otherwise=False),
        ),
        gate=traits.gate and replace(traits.gate, bias=on(config, traits.bias) and traits.gate.bias),
        out_norm=traits.inner_norm,
    )
    tempered = bool(traits.tempered)
    if tempered and isinstance(traits.tempered, str):
        tempered = config.flag(traits.tempered, otherwise=True)

    def attend(plan: Plan) -> Block:
        normed = qk_norm if plan.rope or not traits.norm_needs_rope else None
        usual = replace(
            fixed,
            rope=replace(rope, table=plan.table) if rope is not None and plan.rope else None,
            norm=normed and QkNorm(normed, traits.qk_norm_over, traits.norm_after_rope),
            scaling=replace(fixed.scaling, by_position=tempered and not plan.rope),
        ).scored(window=plan.window, chunk=plan.chunk)
        if plan.last:
            usual = usual.projected(out_bias=True)
        if plan.heads:
            usual = replace(usual, heads=replace(usual.heads, heads=plan.heads))
        return vary(usual, plan) if vary else usual

    return attend


def _arrangement(config: Config, traits: Traits) -> Callable[..., Operations]:
    style = traits.arrangement
    if traits.parallel_switch:
        style = "parallel" if on(config, traits.parallel_switch) else "pre"
    if traits.sandwich_switch:
        style = "sandwich" if on(config, traits.sandwich_switch) else "pre"
    if style == "parallel":
        return partial(
            arrangements.parallel,
            norms=traits.parallel_norms,
            dropout=(False, False) if traits.dropout_sum else traits.dropout,
            dropout_sum=traits.dropout_sum,
        )
    if style == "pre":
        after = on(config, traits.residual_after_norm)
        return partial(
            arrangements.pre_norm,
            dropout=traits.dropout,
            scale=traits.residual_scale,
            residual_after_norm=after,
            weighted=traits.weighted,
        )
    if style == "post":
        return partial(arrangements.post_norm, dropout=traits.dropout)
    if style == "sandwich":
        return partial(arrangements.sandwich_norm, scale=traits.residual_scale)
    return {"output": arrangements.output_norm}[style]


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
    if shared is not None and mixture.shared_gate:
        shared = blocks.behind_gate(shared, hidden)
    block = partial(
        blocks.moe,
        width=hidden,
        inner=inner,
        routing=routing,
        function=mixture.function or function,
        bias=mixture.bias,
        weighted_input=mixture.weighted_input,
        shared=shared,
        scaled=mixture.scaled,
        upcast=mixture.wide_product,
    )
    return mixture.with_shared(block, hidden) if shared is not None else block


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


def _field_on(config: Config, switch: Switch) -> bool:
    """A switch that is a constant, or a field that counts as on when stated (a multiplier, a soft cap)."""
    if isinstance(switch, bool):
        return switch
    value = config.raw(switch, required=False)
    return value is not None and value is not False

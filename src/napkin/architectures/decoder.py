"""Decoders with softmax attention: what sets one apart, what its config.json says, and the operations of both.

`Decoder` is the record that a family's module writes for a model_type. Called with a config.json it reads every field
once, into a `DecoderConfig`; operations are made from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from napkin.architectures import assembly, blocks, reading
from napkin.architectures.arrangements import Arrangement, pre_norm
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope
from napkin.architectures.blocks import RMS, Block, NormStyle
from napkin.architectures.decoder_parts import (
    Embedded,
    Headed,
    Inner,
    NormedHeads,
    RotaryPositions,
    Vary,
    activation_in,
    always,
    capped,
    stated,
)
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions, prediction_modules, predictions
from napkin.architectures.layer_plans import Plan, Rotates, Seen, in_all
from napkin.architectures.mixture import Feed, Mixture
from napkin.architectures.reading import Switch, on
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model
from napkin.record import record, replace


@record
class Decoder:
    """What sets a decoder apart from the most common one: a field that is a text names a field of config.json, a
    function reads what it needs, anything else is a fact of the class.

    norm, arrangement      the norm of all layers, and where norms and residual additions are
    sizes                  reads the dimensions
    bias, out_bias, fused  of attention's projections (attention.QkvProjections)
    qk_norm, rotary        of queries and keys; `rotates`: in which layers
    windows                which layers see a window
    attention              (config, attention so far) → what this model has instead, in all layers
    layer                  (config, dimensions) → what this model has instead, by the layer
    plans                  (config, plans so far) → plans with what sets this model's layers apart
    inner, function, gated, mlp_bias   of the dense feed-forward network
    feed_forward           (config, block so far) → what this model has instead
    experts                in place of the dense network, in some layers or all
    predicts               checkpoints have multi-token prediction modules
    crosses                the field that says whether layers also attend to an encoder, which text alone does not run
    only                   (field, values) of which the class knows no others
    ignored                fields that change no count
    """

    norm: NormStyle = RMS
    arrangement: Callable[[Config], Arrangement] = always(pre_norm)
    sizes: Callable[[Config], Dimensions] = dimensions
    bias: Switch = False
    out_bias: Switch = False
    fused: bool = False
    qk_norm: NormedHeads | None = None
    rotary: RotaryPositions | None = RotaryPositions()
    rotates: Rotates = in_all
    windows: Callable[[Config, int], Seen] | None = None
    attention: Callable[[Config, Attention], Attention] = lambda config, usual: usual
    layer: Callable[[Config, Dimensions], Vary] = lambda config, sizes: lambda usual, plan: usual
    plans: Callable[[Config, Sequence[Plan]], Sequence[Plan]] = lambda config, plans: plans
    inner: Inner = Inner("intermediate_size")
    function: Callable[[Config], str] = activation_in("hidden_act")
    gated: bool = True
    mlp_bias: Switch = False
    feed_forward: Callable[[Config, Feed], Feed] = lambda config, usual: usual
    experts: Mixture | None = None
    embedding: Embedded = Embedded()
    head: Headed = Headed()
    predicts: bool = False
    crosses: str = ""
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    ignored: tuple[str, ...] = ()

    def __call__(self, config: Config) -> Model:
        """Return the network that a config.json describes."""
        model = build(read(config, self))
        if not self.crosses:
            return model
        from napkin.architectures.idle import beside_encoder

        return beside_encoder(model, config, self.crosses)


# --- what its config.json says ---------------------------------------------------------------------------------------


@record
class DecoderConfig:
    """What a config.json says of a decoder: nothing below reads it again."""

    sizes: Dimensions
    norm: NormStyle
    arrangement: Arrangement
    plans: Sequence[Plan]
    attention: Attention
    vary: Vary
    dense: Block | None
    sparse: Block | None
    positions: int
    embedding: Embedded
    head: Headed
    balance: Operation | None
    predictions: int


def read(config: Config, of: Decoder) -> DecoderConfig:
    """Read a config.json."""
    reading.restrict(config, of.only, of.ignored)
    sizes = of.sizes(config)
    hidden, layers = sizes.hidden, sizes.layers
    attention = _attention(config, of, sizes)
    vary = of.layer(config, sizes)
    arrangement = of.arrangement(config)
    sparse_at = of.experts.where(config, layers) if of.experts is not None else lambda i: False
    sparse = [sparse_at(i) for i in range(layers)] if of.experts is not None else [False] * layers
    dense_block, sparse_block = _feeds(config, of, hidden, sparse)
    plans = _plans(config, of, sparse)
    before = of.embedding.positions
    if before is not None and sizes.max_length is None:
        raise config.refuse("max_position_embeddings", "is missing: it sizes the table of learned positions")
    head = of.head
    return DecoderConfig(
        sizes,
        of.norm,
        arrangement,
        plans,
        attention,
        vary,
        dense_block,
        sparse_block,
        (sizes.max_length or 0) + before if before is not None else 0,
        replace(of.embedding, scale=stated(config, of.embedding.scale)),
        replace(
            head,
            bias=on(config, head.bias),
            scale=stated(config, head.scale),
            softcap=head.softcap if head.softcap and capped(config, head.softcap) else "",
        ),
        of.experts.balance_loss(config) if of.experts is not None else None,
        predictions(config) if of.predicts else 0,
    )


def _attention(config: Config, of: Decoder, sizes: Dimensions) -> Attention:
    """Read attention as all layers have it."""
    norm = of.qk_norm.read(config) if of.qk_norm is not None else None
    rope = None
    if of.rotary is not None:
        dim = reading.rotary_dim(config, sizes.head_dim, of.rotary.part)
        rope = Rope(dim, of.rotary.pairing, of.rotary.upcast, once=of.rotary.once, fused=of.rotary.fused)
    usual = Attention(
        Heads(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim),
        QkvProjections(bias=on(config, of.bias), out_bias=on(config, of.out_bias), fused=of.fused),
        rope=rope,
        norm=norm,
    )
    return of.attention(config, usual)


def _plans(config: Config, of: Decoder, sparse: Sequence[bool]) -> Sequence[Plan]:
    """Read what sets layers apart."""
    seen = of.windows(config, len(sparse)) if of.windows is not None else Seen()
    if seen.kinds is None and of.rotates is in_all and of.experts is None:  # however many
        return of.plans(config, [Plan()] * len(sparse))
    kinds = seen.kinds or [reading.FULL] * len(sparse)
    keys = list(zip(kinds, of.rotates(config, seen, sparse), sparse, strict=True))
    made = {
        (kind, table, routed): Plan(
            seen.window if kind == reading.WINDOWED else None,
            seen.chunk if kind == reading.CHUNKED else None,
            table,
            routed,
        )
        for kind, table, routed in dict.fromkeys(keys)
    }
    return of.plans(config, [made[key] for key in keys])


def _feeds(config: Config, of: Decoder, hidden: int, sparse: Sequence[bool]) -> tuple[Block | None, Block | None]:
    """Read the dense feed-forward and the mixture of experts of a layer; None if no layer has one."""
    function, experts = of.function(config), of.experts
    if experts is None:
        return _dense(config, of, hidden, function), None
    dense: Feed | None = None
    if experts.shares_dense or not all(sparse):
        dense = _dense(config, of, hidden, function)
    else:
        config.ignore(of.inner.field)
    if not any(sparse):
        experts.ignore(config)
        return dense, None
    mixture = experts.read(config, hidden, function, of.mlp_bias, dense)
    return dense if not all(sparse) else None, mixture


def _dense(config: Config, of: Decoder, hidden: int, function: str) -> Feed:
    block = blocks.gated_mlp if of.gated else blocks.plain_mlp
    inner, bias = of.inner.read(config, hidden), on(config, of.mlp_bias)
    return of.feed_forward(config, partial(block, width=hidden, inner=inner, function=function, bias=bias))


# --- its operations --------------------------------------------------------------------------------------------------


def build(of: DecoderConfig) -> Model:
    """Return the operations of a network."""
    sizes, distinct = of.sizes, set(of.plans)

    def make(plan: Plan) -> Layer:
        feed = of.sparse if plan.sparse else of.dense
        assert feed is not None
        return Layer(_kind(plan, distinct), of.arrangement(sizes.hidden, of.norm, _attention_of(of, plan), feed))

    runs = assembly.runs_of(of.plans, make)
    return decoder_only(
        replace(sizes, heads=gcd(*(plan.heads for plan in distinct)) or sizes.heads),
        assembly.embedding(
            sizes.vocabulary + sizes.more_rows,
            sizes.hidden,
            embedding_width=sizes.embedding_width,
            positions=of.positions,
            sines=of.embedding.sines,
            scale=bool(of.embedding.scale),
            norm=of.embedding.norm,
            dropout=of.embedding.dropout,
        ),
        runs,
        assembly.head(
            sizes.hidden,
            sizes.vocabulary,
            norm=of.norm if of.head.norm else None,
            bias=bool(of.head.bias),
            embedding_width=sizes.embedding_width,
            scale=bool(of.head.scale),
            softcap=bool(of.head.softcap),
            fp32_cap=of.head.fp32,
            balance=of.balance,
            none=sizes.headless,
        ),
        prediction_modules(of.predictions, sizes.hidden, of.norm, assembly.last_layer(runs)),
    )


def _attention_of(of: DecoderConfig, plan: Plan) -> Attention:
    usual = of.attention
    rope = replace(usual.rope, table=plan.table) if usual.rope is not None and plan.table is not None else None
    return of.vary(replace(usual.scored(window=plan.window, chunk=plan.chunk), rope=rope), plan)


def _kind(plan: Plan, plans: set[Plan]) -> str:
    """Return a layer's name from what sets it apart among these."""
    words = []
    if len({(p.window, p.chunk) for p in plans}) > 1:
        words.append("sliding" if plan.window else "chunked" if plan.chunk else "full")
    if len({p.table is None for p in plans if (p.window, p.chunk) == (plan.window, plan.chunk)}) > 1:
        words.append("rotary" if plan.table is not None else "unrotated")
    if len({p.heads for p in plans}) > 1:
        words.append(f"{plan.heads}_heads")
    if any(p.sparse for p in plans):
        words.append("moe" if plan.sparse else "dense")
    return "_".join(words) or "decoder"

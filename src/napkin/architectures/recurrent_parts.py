"""What families with recurrent layers share: reading their fields, and putting a network together.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

from napkin.architectures.arrangements import Arrangement, pre_norm
from napkin.architectures.assembly import embedding, head, runs_of
from napkin.architectures.attention import Attention
from napkin.architectures.attention_parts import Heads, QkvProjections, Rope
from napkin.architectures.blocks import RMS, Block, NormStyle, Operations, Routing, moe, shared_expert
from napkin.architectures.dimensions import Dimensions, decoder_only, dimensions_of, prediction_modules
from napkin.architectures.reading import FULL, checked, depth, head_size, kv_heads_of, width
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts
from napkin.operations.pointwise import Add
from napkin.operations.views import Cast
from napkin.record import record, replace

LINEAR, HYBRID, CONV, MIXTURE, DENSE = "linear_attention", "hybrid", "conv", "moe", "mlp"
_OLDER_NAMES = {"mamba": LINEAR, "attention": FULL}


# --- reading ---------------------------------------------------------------------------------------------------------


def agree(config: Config, **expected: object) -> None:
    """Refuse (3) fields that the class derives and that are given with another value."""
    for field, value in expected.items():
        given = config.raw(field, required=False, default=False)
        if given is not None and given != value:
            raise config.refuse(field, f"is {printable(repr(given), 60)}, where the class uses {value}")


def kinds(
    config: Config, field: str, layers: int | None, known: Sequence[str], otherwise: Callable[[], Sequence[str]]
) -> Sequence[str]:
    """Return what each layer is, in today's words, as the file lists it or as the class lays it out."""
    given = config.items(field, required=False)
    listed = otherwise() if given is None else given
    if layers is not None and len(listed) != layers:
        raise config.wrong(field, f"has {len(listed)} entries for {layers} layers")
    if not listed:
        raise config.wrong(field, "is empty")
    renamed = [_OLDER_NAMES.get(entry, entry) if isinstance(entry, str) else entry for entry in listed]
    return checked(config, field, renamed, len(renamed), known)


def positive(config: Config, field: str, value: int, what: str) -> int:
    """Return a derived size; a value of `field` that makes it less than 1 is refused."""
    if value < 1:
        raise config.wrong(field, f"makes {what} {value}")
    return value


def scaled(config: Config, field: str, value: int) -> int:
    """Return ⌊field · value⌋, if the field is any number above zero that keeps the result a dimension."""
    factor = config.real(field)
    assert factor is not None
    if not 0 < factor * value < LARGEST_DIMENSION:
        raise config.wrong(field, f"{printable(str(factor), 40)} times {value} is not a dimension")
    return positive(config, field, int(factor * value), "a width")


def rank_of(config: Config, field: str, hidden: int) -> int:
    """Return Δ's rank: ⌈h/16⌉ where "auto"."""
    return math.ceil(hidden / 16) if config.raw(field) == "auto" else config.integer(field)


def groups_of(config: Config, field: str, inner: int, heads: int) -> int:
    """Return groups that share B and C: they divide heads and inner width."""
    groups = config.integer(field)
    if heads % groups or inner % groups:
        raise config.wrong(field, f"{heads} heads in an inner width of {inner} do not divide into {groups} groups")
    return groups


def sizes_of(
    config: Config,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    layers: int | None = None,
    tie: bool | None = None,
    positions: bool = True,
) -> Dimensions:
    """Read the decoder's dimensions; those of attention are known.

    Without attention, `heads` are the channels or heads that the recurrence can be divided into.

    layers     their number, if a list of them says it
    tie        whether the head's weight is the embedding's, if no field says it
    positions  the class says how many it was trained for
    """
    hidden, count = width(config), depth(config) if layers is None else layers
    most = config.optional_integer("max_position_embeddings") if positions else None
    return dimensions_of(config, hidden, count, heads, kv_heads, head_dim, most, tie)


def grouped_sizes(config: Config, *, layers: int | None = None, tie: bool | None = None) -> Dimensions:
    """Read the dimensions of a decoder with grouped-query attention and the usual field names."""
    heads = config.integer("num_attention_heads")
    head_dim = head_size(config, width(config), heads)
    return sizes_of(config, heads, kv_heads_of(config, heads), head_dim, layers=layers, tie=tie)


def heads_of(sizes: Dimensions) -> Heads:
    """Return the sizes of a decoder's attention."""
    return Heads(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim)


def grouped_attention(sizes: Dimensions, rope: Rope | None, *, bias: bool) -> Attention:
    """Return grouped-query attention with biases on all four projections or none."""
    return Attention(heads_of(sizes), projections=QkvProjections(bias=bias, out_bias=bias), rope=rope)


# --- putting together ------------------------------------------------------------------------------------------------


@record
class Hybrid:
    """A decoder whose layers differ in their mixers or feed-forward networks, as config.json describes it.

    layers       of each layer: its mixer and its feed-forward network, by their names below
    mixers       {name: block}       feeds  {name: feed-forward block}; the names make a layer's name
    arrangement  of the two blocks of a layer
    balance      the loss on how evenly experts are used, where the file asks for it
    predictions  of each multi-token prediction module: its mixer and its feed-forward network
    """

    sizes: Dimensions
    layers: tuple[tuple[str, str], ...]
    mixers: Mapping[str, Block]
    feeds: Mapping[str, Block]
    norm: NormStyle = RMS
    arrangement: Arrangement = pre_norm
    balance: Operation | None = None
    predictions: tuple[tuple[str, str], ...] = ()


def hybrid(read: Hybrid, *, scale: bool = False, logits_scale: bool = False) -> Model:
    """Return the decoder."""

    def layer(names: tuple[str, str]) -> Layer:
        mixer, feed = names
        operations = read.arrangement(read.sizes.hidden, read.norm, read.mixers[mixer], read.feeds[feed])
        return Layer("_".join(filter(None, names)), operations)

    runs = runs_of(read.layers, layer)
    model = network(read.sizes, runs, norm=read.norm, scale=scale, logits_scale=logits_scale, balance=read.balance)
    modules = (prediction_modules(1, read.sizes.hidden, read.norm, layer(names)) for names in read.predictions)
    return replace(model, extra=tuple(chain(*modules)))


def network(
    sizes: Dimensions,
    runs: Parts,
    *,
    norm: NormStyle = RMS,
    scale: bool = False,
    logits_scale: bool = False,
    softcap: bool = False,
    balance: Operation | None = None,
) -> Model:
    """Return a decoder: its embedding, layers, final norm and head. Constants multiply the embedding (`scale`) or the
    logits (`logits_scale`)."""
    hidden, rows = sizes.hidden, sizes.vocabulary
    return decoder_only(
        sizes,
        embedding(rows, hidden, scale=scale),
        runs,
        head(hidden, rows, norm=norm, none=sizes.headless, scale=logits_scale, softcap=softcap, balance=balance),
    )


def mixer_layer(hidden: int, norm: NormStyle, mix: Block, kind: str, *, wide: bool = False) -> Layer:
    """Return y = x + mix(norm(x)), a layer of one block. `wide`: x is kept in fp32, and cast down for the norm."""
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
            Cast("widened", ("x",), hidden, fp32=True),
            Add("residual", ("widened", operations[-1].name), hidden),
        ),
    )


def latent_mixture(
    hidden: int,
    latent: int | None,
    bias: bool,
    *,
    inner: int,
    routing: Routing,
    function: str,
    shared: Block,
    gated: bool = False,
    norm: NormStyle | None = None,
) -> Block:
    """Return experts, which work between a projection h → latent and one back if `latent`, with a `norm` before the
    latter. The router and the shared experts read the full width."""
    if latent is None:
        return partial(moe, width=hidden, inner=inner, routing=routing, function=function, gated=gated, shared=shared)
    narrow = latent

    def block(source: str) -> Operations:
        router, experts = moe("latent", width=narrow, inner=inner, routing=routing, function=function, gated=gated)
        always = shared_expert(shared(source))
        wide = moe(source, width=hidden, inner=inner, routing=routing)[0]
        assert router.name == wide.name  # the router reads the full width
        normed = (norm("latent_norm", experts.name, narrow),) if norm is not None else ()
        return (
            wide,
            Matmul("latent", (source,), hidden, narrow, bias),
            experts,
            *normed,
            Matmul("latent_out", ((experts, *normed)[-1].name,), narrow, hidden, bias),
            *always,
            Add("moe", ("latent_out", always[-1].name), hidden),
        )

    return block

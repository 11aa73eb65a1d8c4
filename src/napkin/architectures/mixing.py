"""What adapters of networks with recurrences share: reading their fields, and putting a network together.

Field names and arrangements are facts of the classes of Hugging Face transformers 5.23.0
(src/transformers/models/<model type>/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from napkin.architectures.attention import Attention, Heads, QkvProjections, Rope
from napkin.architectures.blocks import RMS, Block, NormStyle
from napkin.architectures.common import FULL, depth_of, embedding, head, head_size, headless, kv_heads_of, tied
from napkin.architectures.dimensions import Dimensions, decoder_only
from napkin.inputs.load import printable
from napkin.inputs.model import LARGEST_DIMENSION, Config
from napkin.operations.experts import BalanceLoss
from napkin.operations.model import Layer, Model, Parts
from napkin.operations.pointwise import Add
from napkin.operations.views import Cast

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
    """Return what each layer is, in today's words, as the file lists it or as the class lays it out."""
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
    """Return a derived size, which a strange value of `field` could have made nothing."""
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


def groups_of(config: Config, field: str, inner: int, heads: int) -> int:
    """Return groups that share B and C: they divide heads and inner width."""
    groups = config.integer(field)
    if heads % groups or inner % groups:
        raise config.wrong(field, f"{heads} heads in an inner width of {inner} do not divide into {groups} groups")
    return groups


def grouped_attention(config: Config, hidden: int, heads: int, rope: Rope | None, *, bias: bool) -> Attention:
    """Return grouped-query attention with the usual field names, biases on all four projections or none."""
    head_dim = head_size(config, hidden, heads)
    kv_heads = kv_heads_of(config, heads)
    return Attention(
        Heads(hidden, heads, kv_heads, head_dim), projections=QkvProjections(bias=bias, out_bias=bias), rope=rope
    )


def network(
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
    """Return a decoder; without attention, `heads` are the channels or heads that its recurrence can be divided into.

    routed     experts and how many a token chooses, of a class that can add a loss on how evenly they are used
    positions  the class says how many it was trained for
    """
    vocabulary = config.integer("vocab_size")
    tie = tied(config) if tie is None else tie
    none = headless(config)
    balances = routed[0] > 0 and config.flag("output_router_logits", otherwise=False)
    balance = BalanceLoss("balance_loss", (), *routed) if balances else None
    return decoder_only(
        Dimensions(
            config.name,
            config.model_type,
            hidden,
            depth_of(runs),
            heads,
            kv_heads,
            head_dim,
            vocabulary,
            config.optional_integer("max_position_embeddings") if positions else None,
            tie,
        ),
        embedding(vocabulary, hidden, scale=scale),
        runs,
        head(hidden, vocabulary, norm=norm, none=none, scale=logits_scale, softcap=softcap, balance=balance),
    )


def mixer_layer(hidden: int, norm: NormStyle, mix: Block, kind: str, *, wide: bool = False) -> Layer:
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
            Cast("widened", ("x",), hidden, fp32=True),
            Add("residual", ("widened", operations[-1].name), hidden),
        ),
    )

"""A decoder as a whole: its dimensions, read once, and the Model of its layers."""

from __future__ import annotations

from napkin.architectures.assembly import embedding, head
from napkin.architectures.blocks import NormStyle, Operations
from napkin.architectures.reading import DEEPEST, depth, head_size, headless, kv_heads_of, tied, width
from napkin.inputs.model import Config
from napkin.operations.base import Operation
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer, Model, Parts, stack_of
from napkin.record import record, replace


@record
class Dimensions:
    """What a config.json says about a decoder as a whole, read once.

    name, family     of the model, and its model_type
    heads, kv_heads  query heads and key/value heads of attention, of `head_dim` elements each
    vocabulary       rows of the head and the embedding, of `embedding_width` elements if they are not `hidden` (0)
    more_rows        rows that the embedding has beyond the head's
    max_length       tokens that the model was trained for, if the file says so
    tied             the head's weight is the embedding's
    headless         `architectures` names a class without a language model's head
    """

    name: str
    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_length: int | None
    tied: bool
    headless: bool = False
    embedding_width: int = 0
    more_rows: int = 0


def dimensions(
    config: Config,
    *,
    kv_heads: str | int = "num_key_value_heads",
    own_head_dim: bool = True,
    floor: bool = False,
    square: bool = False,
    max_length: str = "max_position_embeddings",
) -> Dimensions:
    """Read a decoder's dimensions.

    kv_heads      their field, or their number ("": as many as query heads)
    own_head_dim  the class reads `head_dim`
    floor         the class rounds h / a down if no `head_dim` is stated
    square        the output projection is h × h: heads · head_dim must be h
    max_length    its field
    """
    hidden, layers = width(config), depth(config)
    heads = config.integer("num_attention_heads")
    number = kv_heads if isinstance(kv_heads, int) else kv_heads_of(config, heads, kv_heads) if kv_heads else heads
    head_dim = head_size(config, hidden, heads, own_head_dim, floor=floor)
    if square and heads * head_dim != hidden:
        raise config.wrong("head_dim", f"{heads} heads of {head_dim} are not hidden_size = {hidden}")
    return dimensions_of(config, hidden, layers, heads, number, head_dim, config.optional_integer(max_length))


def dimensions_of(
    config: Config,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    max_length: int | None = None,
    tie: bool | None = None,
) -> Dimensions:
    """Return dimensions of which those of attention are known, with vocabulary and head read. tie: whether the head's
    weight is the embedding's, if no field says it; nothing is tied if there is no head."""
    none = headless(config)
    return Dimensions(
        config.name,
        config.model_type,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        config.integer("vocab_size"),
        max_length,
        not none and (tied(config) if tie is None else tie),
        none,
    )


def decoder_only(
    sizes: Dimensions, before: Operations, runs: Parts, after: Operations, extra: tuple[Layer, ...] = ()
) -> Model:
    """Return a decoder as a Model."""
    return Model(
        name=sizes.name,
        stacks=(stack_of("decoder", before, runs, after),),
        tied=sizes.tied,
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        vocabulary=sizes.vocabulary,
        max_length=sizes.max_length,
        extra=extra,
        family=sizes.family,
    )


def decoder_of(
    sizes: Dimensions, runs: Parts, norm: NormStyle, *, scale: bool = False, balance: Operation | None = None
) -> Model:
    """Return a decoder with an embedding and a head like most. `scale`: constants multiply embedding and logits."""
    rows, hidden = sizes.vocabulary, sizes.hidden
    after = head(hidden, rows, norm=norm, scale=scale, balance=balance, none=sizes.headless)
    return decoder_only(sizes, embedding(rows, hidden, scale=scale), runs, after)


def predictions(config: Config, field: str = "num_nextn_predict_layers") -> int:
    """Read the number of multi-token prediction modules."""
    count = config.optional_integer(field, least=0) or 0
    if count > DEEPEST:
        raise config.wrong(field, f"{count:,} modules are more than {DEEPEST:,}")
    return count


def prediction_modules(count: int, hidden: int, norm: NormStyle, *layers: Layer) -> tuple[Layer, ...]:
    """Return multi-token prediction modules (DeepSeek-V3, arXiv 2412.19437, section 2.2): norms of the hidden state and
    of the next token's embedding, a projection 2h → h of both, one more layer (or several), a norm; embedding and head
    are the model's."""
    if not count:
        return ()
    from napkin.operations.views import Concat

    inner: Operations = ()
    for place, layer in enumerate(layers):
        inner += _reading(layer.operations, inner[-1].name if inner else "joined", f"{place}/" if place else "")
    operations: Operations = (
        norm("hidden_norm", "x", hidden),
        norm("token_norm", "x", hidden),
        Concat("pair", ("hidden_norm", "token_norm"), 2 * hidden),
        Matmul("joined", ("pair",), 2 * hidden, hidden),
        *inner,
        norm("output_norm", inner[-1].name, hidden),
    )
    return (Layer("multi_token_prediction", operations),) * count


def _reading(operations: Operations, stream: str, prefix: str) -> Operations:
    """Return a layer's operations that read this stream, with the prefix before their names."""
    names = {op.name: prefix + op.name for op in operations} | {"x": stream}
    return tuple(
        replace(op, name=prefix + op.name, reads=tuple(names.get(one, one) for one in op.reads)) for op in operations
    )

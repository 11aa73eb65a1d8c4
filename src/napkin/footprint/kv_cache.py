"""What sequences keep on a GPU that serves a model: the cache of keys and values, or of their latent, and states."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.elementwise import Number, ceil_div
from napkin.operations.base import Operation
from napkin.operations.facts import Cache, LinearLayer, Served
from napkin.operations.model import Layer, Model
from napkin.term import GIVEN, TRUE, Term, add, constant, leaf, multiply

LATENT = "DeepSeek-V2, arXiv:2405.04434, section 2.1.2: the latent and the shared rotary key are cached"


def caches_of(layer: Layer, over: Served) -> list[Cache]:
    """Return what a layer's operations cache for one sequence; some of them the same tensor."""
    return [kept for op in layer.operations if (kept := op.cache(over)) is not None]


def cached_numbers(layer: Layer, context: Number, ranks: Number = 1, source: Number = 0) -> tuple[Number, Number]:
    """Return the elements that one sequence of `context` tokens keeps in one layer: per-token cache, and states of
    fixed size.

    Each operation says what it keeps; a tensor that several read is kept once. Where keys and values are made from one
    narrower latent, the latent is kept instead, by every rank; of heads each of `ranks` tensor-parallel ranks keeps
    whole ones, so that fewer key/value heads than ranks are kept more than once. `source`: tokens of the other stack
    (0: as many)."""
    by_name = {op.name: op for op in layer.operations}
    growing: Number = 0
    fixed: Number = 0
    for kept in _kept_once(layer, Served(context, source or context, ranks)):
        growing = growing + kept.growing
        fixed = fixed + kept.fixed
        if kept.heads:
            growing = growing + kept.tokens * _width(kept, by_name, ranks)
    return growing, fixed


def _kept_once(layer: Layer, over: Served) -> list[Cache]:
    """Return what a layer caches for one sequence, each tensor once, as the first operation that needs it says; nothing
    where another layer keeps it."""
    found: dict[str, Cache] = {}
    for kept in caches_of(layer, over):
        found.setdefault(kept.tensor, kept)
    return [kept for kept in found.values() if not kept.again]


def _width(kept: Cache, by_name: Mapping[str, Operation], ranks: Number) -> Number:
    """Return the elements cached a token: keys and values as attention reads them, or the latent that they are made
    from."""
    latent = latent_of(kept, by_name)
    return ceil_div(kept.heads, ranks) * sum(kept.head_dim) if latent is None else latent.d_out


def latent_of(kept: Cache, by_name: Mapping[str, Operation]) -> LinearLayer | None:
    """Return the linear layer that makes the narrower latent from which both keys and values come, if there is one."""
    each = sum(kept.head_dim)
    keys, values = kept.made_from
    shared = set(_linears_behind(keys, by_name)) & set(_linears_behind(values, by_name))
    direct = {one.name for tensor in kept.made_from if (one := nearest_linear(tensor, by_name)) is not None}
    latents = [by_name[name].linear() for name in shared - direct if not _reaches_input(keys, by_name, name)]
    narrow = [one for one in latents if one is not None and one.d_out < kept.heads * each]
    return min(narrow, key=lambda one: one.d_out) if narrow else None


def absorbed(layer: Layer) -> dict[str, float]:
    """Return, by the name of an operation whose keys and values are cached as their latent, how many FLOPs a decoded
    token's scores and values take over those with keys and values: each head reads the whole latent in place of its
    key, and the part that values are made from in place of its value (DeepSeek-V2, section 2.1.2: the up-projections
    are absorbed)."""
    by_name = {op.name: op for op in layer.operations}
    found = {}
    for op in layer.operations:
        kept = op.cache(Served(1, 1, 1))
        if kept is None or not kept.heads or (latent := latent_of(kept, by_name)) is None:
            continue
        made = nearest_linear(kept.made_from[1], by_name)
        values = latent.d_out if made is None else min(made.d_in, latent.d_out)
        found[op.name] = (latent.d_out + values) / sum(kept.head_dim)
    return found


def _reaches_input(name: str, by_name: Mapping[str, Operation], without: str) -> bool:
    """Return whether an output depends on what the layer reads in another way than through one of its operations."""
    open_names, seen = [name], {without}
    while open_names:
        name = open_names.pop()
        if name not in by_name:
            return True
        if name not in seen:
            seen.add(name)
            open_names += by_name[name].reads
    return False


def _linears_behind(name: str, by_name: Mapping[str, Operation]) -> list[str]:
    """Return every linear layer that an output depends on inside the layer."""
    found, open_names, seen = [], [name], set()
    while open_names:
        op = by_name.get(open_names.pop())
        if op is None or op.name in seen:
            continue
        seen.add(op.name)
        if op.linear() is not None:
            found.append(op.name)
        open_names += op.reads
    return found


def nearest_linear(name: str, by_name: Mapping[str, Operation]) -> LinearLayer | None:
    """Return the linear layer nearest to an output."""
    open_names = [name]
    while open_names:
        op = by_name.get(open_names.pop(0))
        if op is None:
            continue
        if (linear := op.linear()) is not None:
            return linear
        open_names += op.reads
    return None


def cache(
    model: Model,
    context: Number,
    sequences: Number,
    dtype_bytes: float,
    dtype: str,
    ranks: Number = 1,
    source: Number = 0,
) -> Term:
    """Return the bytes that `sequences` sequences of `context` tokens keep on one of `ranks` ranks: `memory/kv_cache`.
    `source`: tokens of the encoder's sequences, whose keys the decoder reads (0: as many)."""
    parts: list[Term] = []
    for stack in model.decoders:
        for name, count, layer in stack.kinds():
            growing, fixed = cached_numbers(layer, context, ranks, source)
            if isinstance(growing, int) and isinstance(fixed, int) and growing + fixed == 0:
                continue
            parts.append(
                multiply(
                    f"memory/kv_cache/{stack.name}/{name}",
                    leaf("layers", count, "1", TRUE),
                    leaf("numbers_per_sequence", growing + fixed, "1", TRUE, LATENT),
                    leaf("sequences", sequences, "1", GIVEN),
                    constant(f"bytes of {dtype}", dtype_bytes, "byte"),
                )
            )
    return add("memory/kv_cache", *parts) if parts else constant("memory/kv_cache", 0, "byte")


def growing(model: Model, context: Number, source: Number = 0) -> Number:
    """Return the elements that one sequence keeps of its tokens, undivided."""
    return _kept(model, context, 1, source, 0)


def growing_on(model: Model, context: Number, ranks: Number, source: Number = 0) -> Number:
    """Return the elements that one sequence keeps of its tokens on one of `ranks` ranks."""
    return _kept(model, context, ranks, source, 0)


def states(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the elements of fixed size that one sequence keeps on one of `ranks` ranks: states of recurrent layers."""
    return _kept(model, context, ranks, source, 1)


def read(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the elements of the cache that the next token of a sequence reads on one of `ranks` ranks: all that is
    kept, but what sparse attention does not choose; what another layer keeps is read by each layer that shares it."""
    total = growing_on(model, context, ranks, source) + states(model, context, ranks, source)
    total = total - unread(model, context, ranks, source)
    for count, by_name, kept in _caches(model, Served(context, source or context, ranks)):
        if kept.again:
            total = total + count * _read_again(kept, by_name, ranks)
    return total


def unread(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the elements that one sequence keeps on one of `ranks` ranks and that its next token does not read: keys
    and values that sparse attention does not choose."""
    total: Number = 0
    seen: set[tuple[int, str]] = set()
    for count, by_name, kept in _caches(model, Served(context, source or context, ranks)):
        if not kept.again and (id(by_name), kept.tensor) not in seen:
            seen.add((id(by_name), kept.tensor))
            total = total + count * kept.unread * (_width(kept, by_name, ranks) if kept.heads else 1)
    return total


def _caches(model: Model, over: Served) -> list[tuple[int, Mapping[str, Operation], Cache]]:
    """Return (layers, operations by name, cache) of what layers keep or read of each other's."""
    layers = [kind for stack in model.decoders for kind in stack.kinds()]
    return [
        (int(count), names, kept)
        for _, count, layer in layers
        for names in [{op.name: op for op in layer.operations}]
        for kept in caches_of(layer, over)
    ]


def _read_again(kept: Cache, by_name: Mapping[str, Operation], ranks: Number) -> Number:
    """Return the elements that attention reads of what another layer keeps."""
    seen = kept.growing if not kept.heads else kept.tokens
    return (seen - kept.unread) * (_width(kept, by_name, ranks) if kept.heads else 1)


def _kept(model: Model, context: Number, ranks: Number, source: Number, which: int) -> Number:
    """Return what all layers keep of one sequence: `which` of the two numbers of `cached_numbers`."""
    kinds = [kind for stack in model.decoders for kind in stack.kinds()]
    return sum((count * cached_numbers(layer, context, ranks, source)[which] for _, count, layer in kinds), 0)

"""The bytes of sequences on a GPU that serves a model: the cache of keys and values, or of their latent, and states."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.elementwise import Number, ceil_div
from napkin.operations.base import Operation
from napkin.operations.facts import Cache, LinearLayer, Served
from napkin.operations.fold_cache import remembered
from napkin.operations.model import Layer, Model
from napkin.term import GIVEN, TRUE, Term, add, constant, leaf, multiply

KEYS = "Ainslie et al. 2023, arXiv:2305.13245: a key and a value of each KV head for each token"
LATENT = "DeepSeek-V2, arXiv:2405.04434, section 2.1.2: the latent and the shared rotary key are cached"
STATES = "what each operation of the layer keeps of a sequence"


def caches_of(layer: Layer, over: Served) -> list[Cache]:
    """Return what a layer's operations cache for one sequence; several may name the same tensor."""
    return [kept for op in layer.operations if (kept := op.cache(over)) is not None]


def cached_numbers(layer: Layer, context: Number, ranks: Number = 1, source: Number = 0) -> tuple[Number, Number]:
    """Return the elements that one sequence of `context` tokens caches in one layer: the per-token cache, and states of
    fixed size.

    Each operation states what it caches; a shared tensor is counted once. If keys and values are computed from one
    narrower latent, every rank caches the latent instead. Each of `ranks` tensor-parallel ranks caches entire heads, so
    fewer key/value heads than ranks are replicated. `source`: tokens of the other stack (0: the same number)."""
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
    """Return what a layer caches for one sequence, each tensor once, as stated by the first operation that needs it;
    nothing for tensors that another layer caches."""
    found: dict[str, Cache] = {}
    for kept in caches_of(layer, over):
        found.setdefault(kept.tensor, kept)
    return [kept for kept in found.values() if not kept.again]


def _width(kept: Cache, by_name: Mapping[str, Operation], ranks: Number) -> Number:
    """Return the cached elements per token: keys and values as attention reads them, or the latent that they are
    computed from."""
    latent = latent_of(kept, by_name)
    return ceil_div(kept.heads, ranks) * sum(kept.head_dim) if latent is None else latent.d_out


def latent_of(kept: Cache, by_name: Mapping[str, Operation]) -> LinearLayer | None:
    """Return the linear layer that computes the narrower latent of both keys and values, if there is one."""
    each = sum(kept.head_dim)
    keys, values = kept.made_from
    shared = set(_linears_behind(keys, by_name)) & set(_linears_behind(values, by_name))
    direct = {one.name for tensor in kept.made_from if (one := nearest_linear(tensor, by_name)) is not None}
    latents = [by_name[name].linear() for name in shared - direct if not _reaches_input(keys, by_name, name)]
    narrow = [one for one in latents if one is not None and one.d_out < kept.heads * each]
    return min(narrow, key=lambda one: one.d_out) if narrow else None


def absorbed(layer: Layer) -> dict[str, float]:
    """Return, by the name of an operation whose keys and values are cached as a latent, the FLOPs of a decoded token's
    scores and values relative to those with keys and values: each head reads the entire latent in place of its key, and
    the part that values are computed from in place of its value (DeepSeek-V2, section 2.1.2: the up-projections are
    absorbed)."""
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
    """Return whether an output depends on the layer's input by a path that avoids an operation."""
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
    """Return the bytes that `sequences` sequences of `context` tokens take on one of `ranks` ranks: `memory/kv_cache`.

    dtype   in which keys and values are cached, of `dtype_bytes` bytes an element
    source  tokens of the encoder's sequences, whose keys the decoder reads (0: the same number)"""
    parts: list[Term] = []
    for stack in model.decoders:
        for name, count, layer in stack.kinds():
            growing, fixed = cached_numbers(layer, context + model.prompt, ranks, source)
            if isinstance(growing, int) and isinstance(fixed, int) and growing + fixed == 0:
                continue
            parts.append(
                multiply(
                    f"memory/kv_cache/{stack.name}/{name}",
                    leaf("layers", count, "1", TRUE),
                    leaf("numbers_per_sequence", growing + fixed, "1", TRUE, _source(layer)),
                    leaf("sequences", sequences, "1", GIVEN),
                    constant(f"bytes of {dtype}", dtype_bytes, "byte"),
                )
            )
    return add("memory/kv_cache", *parts) if parts else constant("memory/kv_cache", 0, "byte")


def _source(layer: Layer) -> str:
    """Return the source of what a layer caches: a latent, keys and values, or something else."""
    by_name = {op.name: op for op in layer.operations}
    attended = [kept for kept in caches_of(layer, Served(1, 1, 1)) if kept.heads]
    if any(latent_of(kept, by_name) is not None for kept in attended):
        return LATENT
    return KEYS if attended else STATES


@remembered
def growing(model: Model, context: int, source: int = 0) -> Number:
    """Return the per-token cache of one sequence in elements, over all ranks."""
    return _kept(model, context, 1, source, 0)


def growing_on(model: Model, context: Number, ranks: Number, source: Number = 0) -> Number:
    """Return the per-token cache of one sequence in elements, on one of `ranks` ranks."""
    return _kept(model, context, ranks, source, 0)


def states(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the elements of the fixed-size states (recurrent layers) of one sequence on one of `ranks` ranks."""
    return _kept(model, context, ranks, source, 1)


def read(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the elements of the cache that the next token of a sequence reads on one of `ranks` ranks: all except
    those that sparse attention does not choose. A shared cache is read by each layer that shares it."""
    total = growing_on(model, context, ranks, source) + states(model, context, ranks, source)
    total = total - unread(model, context, ranks, source)
    for count, by_name, kept in _caches(model, Served(context + model.prompt, source or context, ranks)):
        if kept.again:
            total = total + count * _read_again(kept, by_name, ranks)
    return total


def unread(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the cached elements of one sequence on one of `ranks` ranks that its next token does not read: keys and
    values that sparse attention does not choose."""
    total: Number = 0
    seen: set[tuple[int, str]] = set()
    for count, by_name, kept in _caches(model, Served(context + model.prompt, source or context, ranks)):
        if not kept.again and (id(by_name), kept.tensor) not in seen:
            seen.add((id(by_name), kept.tensor))
            total = total + count * kept.unread * (_width(kept, by_name, ranks) if kept.heads else 1)
    return total


def _caches(model: Model, over: Served) -> list[tuple[int, Mapping[str, Operation], Cache]]:
    """Yield (layers, operations by name, cache) for what layers cache, or read from the cache of other layers."""
    layers = [kind for stack in model.decoders for kind in stack.kinds()]
    return [
        (int(count), names, kept)
        for _, count, layer in layers
        for names in [{op.name: op for op in layer.operations}]
        for kept in caches_of(layer, over)
    ]


def _read_again(kept: Cache, by_name: Mapping[str, Operation], ranks: Number) -> Number:
    """Return the elements that attention reads from the cache of another layer."""
    seen = kept.growing if not kept.heads else kept.tokens
    return (seen - kept.unread) * (_width(kept, by_name, ranks) if kept.heads else 1)


def _kept(model: Model, context: Number, ranks: Number, source: Number, which: int) -> Number:
    """Return what all layers cache of one sequence: `which` of the two results of `cached_numbers`."""
    kinds = [kind for stack in model.decoders for kind in stack.kinds()]
    held = context + model.prompt
    return sum((count * cached_numbers(layer, held, ranks, source)[which] for _, count, layer in kinds), 0)

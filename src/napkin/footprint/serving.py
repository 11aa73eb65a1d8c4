"""What serving a model holds in memory and moves per token: weights, the cache of keys and values, recurrent states.

Symbols: b sequences, n tokens of context, L layers, kv key/value heads, d head size, W bytes of all weights, A bytes of
the weights that one token reads (experts: those of the sequences of a batch), β memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping

from napkin import formats
from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.elementwise import Number, ceil_div
from napkin.errors import NapkinError
from napkin.operations.base import Operation
from napkin.operations.facts import Cache, LinearLayer, Served
from napkin.operations.model import Layer, Model
from napkin.operations.roles import REPLICATED
from napkin.record import record
from napkin.term import GIVEN, TRUE, Term, add, ceil_divide, constant, leaf, multiply

LATENT = "DeepSeek-V2, arXiv:2405.04434, section 2.1.2: the latent and the shared rotary key are cached"


# --- weights ---------------------------------------------------------------------------------------------------------

WIDE = 2
"""Bytes of a weight that such a format leaves alone."""


@record
class StoredWeights:
    """How weights are stored: `each` bytes for a matrix of a layer, `rest` for everything else."""

    name: str
    each: float
    rest: float


def stored(name: str) -> StoredWeights:
    """Return a number format of weights. An unknown one is refused (2)."""
    word = name.strip().lower()
    if word in formats.QUANTIZED:
        return StoredWeights(word, formats.QUANTIZED[word], WIDE)
    if word in formats.GGUF:
        return StoredWeights(word, formats.GGUF[word], formats.GGUF[word])
    try:
        form = formats.find(word)
    except NapkinError as problem:
        hint = (
            f"{problem.hint}, or {', '.join(formats.QUANTIZED)}"
            if problem.hint
            else f"or {', '.join(formats.QUANTIZED)}"
        )
        raise NapkinError(problem.message, hint) from None
    width = formats.element_bytes(form).value
    return StoredWeights(form.name, width, width)


def divided(model: Model) -> tuple[int, int]:
    """Return the parameters that tensor parallelism divides, and those that every rank has; a vision tower's too."""
    whole, parts = 0, model.vision.parts if model.vision is not None else ()
    for stack in (*model.stacks, *(stack for part in parts for stack in part.stacks)):
        runs = [(1, stack.before), *((count, layer.operations) for _, count, layer in stack.kinds()), (1, stack.after)]
        for count, operations in runs:
            for op in operations:
                whole += count * sum(w.count for w in op.weights() if w.shard == REPLICATED)
    everything = params_of(model)[1] if parts else params(model)["params/total"]
    return everything.value - whole, whole


def in_matrices(model: Model) -> int:
    """Return the parameters in the matrices of layers: what a blocked format stores."""
    return sum(
        count * weight.count
        for stack in model.stacks
        for _, count, layer in stack.kinds()
        for op in layer.operations
        if not op.embeds()
        for weight in op.weights()
        if len(weight.shape) > 1
    )


def repeated(model: Model, ranks: int) -> int:
    """Return the parameters of the products of keys and values that are on more than one of `ranks` ranks, less once:
    where there are more ranks than heads, each holds a whole one (vLLM, model_executor/layers/linear.py,
    QKVParallelLinear)."""
    found = 0
    for stack in model.stacks:
        for _, count, layer in stack.kinds():
            by_name = {op.name: op for op in layer.operations}
            for kept in caches_of(layer, Served(0, 0, 1)):
                if ranks <= kept.heads or not kept.heads:
                    continue
                for tensor, size in zip(kept.made_from, kept.head_dim, strict=True):
                    made = _nearest_linear(tensor, by_name)
                    if made is not None and made.d_out >= kept.heads * size:
                        more = ranks // kept.heads - 1
                        found += count * more * kept.heads * size * (made.d_in + made.bias)
    return found


def weights(model: Model, how: StoredWeights, ranks: int) -> Term:
    """Return the bytes of the weights on one of `ranks` tensor-parallel ranks: `memory/parameters`."""
    split, whole = divided(model)
    again = repeated(model, ranks)
    split = split + again
    each = leaf("bytes_of_a_weight", how.each, "byte/param", TRUE, how.name)
    over = constant("tensor_parallel_ranks", ranks)
    if how.each == how.rest:
        here = ceil_divide("weights/divided", leaf("weights/sharded", split, "param", TRUE), over)
        return multiply("memory/parameters", add("weights", here, leaf("weights/whole", whole, "param", TRUE)), each)
    narrow = in_matrices(model) + again
    wide = leaf("bytes_of_another_weight", how.rest, "byte/param", TRUE, "16 bits: tables, head, norms and biases")
    return add(
        "memory/parameters",
        multiply(
            "weights/matrices/bytes", ceil_divide("matrices/here", leaf("matrices", narrow, "param", TRUE), over), each
        ),
        multiply(
            "weights/others/bytes",
            add(
                "others",
                ceil_divide("others/here", leaf("others/sharded", split - narrow, "param", TRUE), over),
                leaf("others/whole", whole, "param", TRUE),
            ),
            wide,
        ),
    )


def expert_bytes(model: Model, how: StoredWeights) -> float:
    """Return the bytes of all routed experts."""
    return sum(
        count * weight.count * (how.each if len(weight.shape) > 1 else how.rest)
        for stack in model.stacks
        for _, count, layer in stack.kinds()
        for op in layer.operations
        for weight in op.weights()
        if weight.used < weight.copies
    )


def end_bytes(model: Model, how: StoredWeights, ranks: int) -> tuple[float, float]:
    """Return the bytes of what precedes the layers and of what follows them, on one of `ranks` ranks; a tied head is
    on the last stage too."""
    first, last = model.stacks[0], model.stacks[-1]
    before = sum(w.count for op in first.before for w in op.weights())
    after = sum(w.count for op in last.after for w in op.owner().weights())
    return before * how.rest / ranks, after * how.rest / ranks


# --- keys and values -------------------------------------------------------------------------------------------------


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
    seen: set[str] = set()
    for kept in caches_of(layer, Served(context, source or context, ranks)):
        if kept.tensor not in seen:
            seen.add(kept.tensor)
            growing = growing + kept.growing
            fixed = fixed + kept.fixed
            if kept.heads:
                growing = growing + kept.tokens * _width(kept, by_name, ranks)
    return growing, fixed


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
    direct = {one.name for tensor in kept.made_from if (one := _nearest_linear(tensor, by_name)) is not None}
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
        made = _nearest_linear(kept.made_from[1], by_name)
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


def _nearest_linear(name: str, by_name: Mapping[str, Operation]) -> LinearLayer | None:
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
    for stack in model.stacks:
        if stack.name == "encoder":
            continue
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


def states(model: Model, context: Number, ranks: Number = 1, source: Number = 0) -> Number:
    """Return the elements of fixed size that one sequence keeps on one of `ranks` ranks: states of recurrent layers."""
    return _kept(model, context, ranks, source, 1)


def _kept(model: Model, context: Number, ranks: Number, source: Number, which: int) -> Number:
    """Return what all layers keep of one sequence: `which` of the two numbers of `cached_numbers`."""
    stacks = [stack for stack in model.stacks if stack.name != "encoder"]
    kinds = [kind for stack in stacks for kind in stack.kinds()]
    return sum((count * cached_numbers(layer, context, ranks, source)[which] for _, count, layer in kinds), 0)


@record
class ReadWeights:
    """Bytes of the weights that a pass reads: of routed experts, and all others."""

    experts: Number
    others: Number

    @property
    def total(self) -> Number:
        return self.experts + self.others


def weights_read(model: Model, tokens: Number, how: StoredWeights, encodes: bool = False) -> ReadWeights:
    """Return the bytes that a pass of `tokens` tokens reads: every matrix once, of a table of embeddings only rows
    (counted as none). Of E experts with k chosen by each token, E·(1 − (1 − k/E)^tokens) are expected to be hit where
    all are equally likely: k for one token. encodes: the encoder runs too."""
    experts: Number = 0
    others: Number = 0
    for stack in model.stacks:
        if stack.name == "encoder" and not encodes:
            continue
        runs = [(1, stack.before), *((count, layer.operations) for _, count, layer in stack.kinds()), (1, stack.after)]
        for at, (count, operations) in enumerate(runs):
            inside = 0 < at < len(runs) - 1
            for op in operations:
                if op.embeds():
                    continue
                for weight in op.owner().weights():
                    each = count * weight.each * (how.each if inside and len(weight.shape) > 1 else how.rest)
                    if weight.used == weight.copies:
                        others = others + each * weight.copies
                    else:
                        hit = 1 - (1 - weight.used / weight.copies) ** tokens
                        experts = experts + each * weight.copies * hit
    return ReadWeights(experts, others)

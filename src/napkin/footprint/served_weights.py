"""Bytes of a served model's weights on a GPU, by number format, and the bytes that a pass reads."""

from __future__ import annotations

from napkin import formats
from napkin.counting.params import params
from napkin.counting.vision import params_of
from napkin.elementwise import Number
from napkin.errors import NapkinError
from napkin.footprint.kv_cache import caches_of, nearest_linear
from napkin.operations.base import Operation
from napkin.operations.facts import Served
from napkin.operations.fold_cache import remembered
from napkin.operations.model import Model, Stack
from napkin.operations.roles import REPLICATED
from napkin.operations.work import Weight
from napkin.record import record
from napkin.term import TRUE, Term, add, ceil_divide, constant, leaf, multiply

WIDE = 2
"""Bytes of a weight that a quantized format does not cover."""


@record
class StoredWeights:
    """How weights are stored: `each` bytes per element of a layer's matrices, `rest` for everything else and for the
    modules in `kept` (stored_modules.py)."""

    name: str
    each: float
    rest: float
    kept: tuple[str, ...] = ()


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


@remembered
def divided(model: Model) -> tuple[int, int]:
    """Return the parameters that tensor parallelism divides, and those replicated on every rank, including a vision
    tower's."""
    whole, parts = 0, model.vision.parts if model.vision is not None else ()
    for stack in (*model.stacks, *(stack for part in parts for stack in part.stacks)):
        runs = [(1, stack.before), *((count, layer.operations) for _, count, layer in stack.kinds()), (1, stack.after)]
        for count, operations in runs:
            for op in operations:
                whole += count * sum(w.count for w in op.weights() if w.shard == REPLICATED)
    everything = (params(model)["params/total"], *params_of(model))[-1]
    return everything.value - whole, whole


@remembered
def in_matrices(model: Model, kept: tuple[str, ...] = ()) -> int:
    """Return the parameters in the matrices of layers, without those of modules in `kept`: what a quantized format
    stores."""
    return sum(
        narrow * weight.count
        for stack in model.stacks
        for kind, count, layer in stack.kinds()
        for op in layer.operations
        if not op.embeds() and (narrow := _narrow(model, kept, stack, kind, count, op))
        for weight in op.weights()
        if len(weight.shape) > 1
    )


def _narrow(model: Model, kept: tuple[str, ...], stack: Stack, kind: str, count: int, op: Operation) -> int:
    """Return the number of layers, of `count` of one type, in which the matrices of an operation are in the quantized
    format."""
    if not kept:
        return count
    from napkin.footprint.stored_modules import narrow_layers  # patterns are slow to load

    return narrow_layers(model, kept)[stack.name, kind, op.name]


@remembered
def repeated(model: Model, ranks: int) -> int:
    """Return the extra copies, in parameters, of the key and value projections: if there are more ranks than heads,
    each rank holds an entire head (vLLM, model_executor/layers/linear.py, QKVParallelLinear)."""
    found = 0
    for stack in model.stacks:
        for _, count, layer in stack.kinds():
            by_name = {op.name: op for op in layer.operations}
            for kept in caches_of(layer, Served(0, 0, 1)):
                if ranks <= kept.heads or not kept.heads:
                    continue
                for tensor, size in zip(kept.made_from, kept.head_dim, strict=True):
                    made = nearest_linear(tensor, by_name)
                    if made is not None and made.d_out >= kept.heads * size:
                        more = ranks // kept.heads - 1
                        found += count * more * kept.heads * size * (made.d_in + made.bias)
    return found


def weights(model: Model, stored: StoredWeights, ranks: int) -> Term:
    """Return the bytes of the weights on one of `ranks` tensor-parallel ranks: `memory/parameters`."""
    split, whole = divided(model)
    again = repeated(model, ranks)
    split = split + again
    each = leaf("bytes_of_a_weight", stored.each, "byte/param", TRUE, stored.name)
    over = constant("tensor_parallel_ranks", ranks)
    if stored.each == stored.rest:
        here = ceil_divide("weights/divided", leaf("weights/sharded", split, "param", TRUE), over)
        return multiply("memory/parameters", add("weights", here, leaf("weights/whole", whole, "param", TRUE)), each)
    narrow = in_matrices(model, stored.kept) + again
    wide = leaf("bytes_of_another_weight", stored.rest, "byte/param", TRUE, "16 bits: tables, head, norms and biases")
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


@remembered
def expert_bytes(model: Model, stored: StoredWeights) -> float:
    """Return the bytes of all routed experts."""
    return sum(
        weight.count * _of_layers(model, stored, stack, kind, count, op, weight)
        for stack in model.stacks
        for kind, count, layer in stack.kinds()
        for op in layer.operations
        for weight in op.weights()
        if weight.used < weight.copies
    )


def _of_layers(
    model: Model, stored: StoredWeights, stack: Stack, kind: str, count: int, op: Operation, weight: Weight
) -> float:
    """Return the bytes of an element of a weight, summed over all `count` layers of one type."""
    narrow = _narrow(model, stored.kept, stack, kind, count, op) if len(weight.shape) > 1 else 0
    return narrow * stored.each + (count - narrow) * stored.rest


@remembered
def end_bytes(model: Model, stored: StoredWeights, ranks: int) -> tuple[float, float]:
    """Return the bytes of the weights before and after the layers, on one of `ranks` ranks; a tied head is also on the
    last stage."""
    first, last = model.stacks[0], model.stacks[-1]
    before = sum(w.count for op in first.before for w in op.weights())
    after = sum(w.count for op in last.after for w in op.owner().weights())
    return before * stored.rest / ranks, after * stored.rest / ranks


# --- what a pass reads -----------------------------------------------------------------------------------------------


@record
class ReadWeights:
    """Bytes of the weights that a pass reads: of routed experts, and all others."""

    experts: Number
    others: Number

    @property
    def total(self) -> Number:
        return self.experts + self.others


def weights_read(model: Model, tokens: Number, stored: StoredWeights, encodes: bool = False) -> ReadWeights:
    """Return the bytes that a pass of `tokens` tokens reads: every matrix once, and only rows of an embedding (counted
    as 0). Of E equally likely experts with k chosen per token, E·(1 − (1 − k/E)^tokens) are expected to be read: k for
    one token. encodes: the encoder runs as well."""
    others, routed = _read_at_most(model, stored, encodes)
    experts: Number = 0
    for share, held in routed.items():
        experts = experts + held * (1 - (1 - share) ** tokens)
    return ReadWeights(experts, others)


@remembered
def _read_at_most(model: Model, stored: StoredWeights, encodes: bool) -> tuple[Number, dict[float, Number]]:
    """Return the bytes of the weights that every pass reads, and by the share of the experts that a token chooses, the
    bytes of all experts."""
    others: Number = 0
    routed: dict[float, Number] = {}
    for stack in model.stacks if encodes else model.decoders:
        runs = [("", 1, stack.before), *((kind, n, layer.operations) for kind, n, layer in stack.kinds())]
        for kind, count, operations in (*runs, ("", 1, stack.after)):
            for op in operations:
                if op.embeds():
                    continue
                for weight in op.owner().weights():
                    width = _of_layers(model, stored, stack, kind, count, op, weight) if kind else stored.rest
                    each = weight.each * width
                    if weight.used == weight.copies:
                        others = others + each * weight.copies
                    else:
                        share = weight.used / weight.copies
                        routed[share] = routed.get(share, 0) + each * weight.copies
    return others, routed

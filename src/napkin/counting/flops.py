"""FLOPs of one step: a fold over the matmuls of the operations.

A multiply-add is 2 FLOP. Only matmuls count; lookups, norms, softmax, rotary embedding, activation functions and biases
count 0. Backward is 2 × forward: one matmul for the input's gradient, one for the weight's. Operations without gradient
(an indexer's choice of keys) have no backward pass. Attention counts the full square s² of every layer, unless half
(causal without the diagonal) or exact (only the allowed pairs: causal, windows, chunks, documents) is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from napkin.counting.products import BACKWARD, MULTIPLY_ADD, product_term
from napkin.elementwise import Number
from napkin.errors import Refused
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model, Stack
from napkin.operations.roles import LM_HEAD, MEMORY
from napkin.operations.work import Gemm, Pairs, Work
from napkin.record import replace
from napkin.term import GIVEN, Term, add, constant, divide, leaf, multiply
from napkin.training.layout import Layout
from napkin.training.tasks import Passes

ONE_GRADIENT = "one product: frozen weights have no gradient, or inputs that nothing trained depends on"

FULL, HALF, EXACT = "full", "half", "exact"
Works = Mapping[str, Work]
"""The work of each stack, by the stack's name."""


def works(
    model: Model,
    batch: Number,
    seq: Number,
    *,
    target: Number | None = None,
    pairs: str = FULL,
    documents: tuple[tuple[int, int], ...] = (),
    indexer_loss: bool = False,
) -> dict[str, Work]:
    """Return the work of `batch` sequences of `seq` tokens; of `target` tokens in an encoder-decoder's second stack."""
    first, *others = model.stacks
    added = model.added(seq)
    if documents and model.prompt:
        raise Refused(
            f"{model.name} puts {model.prompt:,} learned tokens before each sequence, not before each document",
            "leave out the documents' lengths",
        )
    found = {first.name: Work(batch, seq + added, pairs, documents, indexer_loss=indexer_loss, added=added)}
    for stack in others:
        found[stack.name] = Work(batch, seq if target is None else target, pairs, (), seq)
    return found


def of_layout(model: Model, layout: Layout, batch: Number) -> dict[str, Work]:
    """Return the work of `batch` sequences of a layout."""
    return works(model, batch, layout.seq, target=layout.target or None)


def tokens(over: Works) -> Number:
    """Return the tokens of the sequences, which rates and amounts of training count: an encoder-decoder's inputs, not
    its targets."""
    first, *_ = over.values()
    return first.given.tokens


# --- one operation ---------------------------------------------------------------------------------------------------


def _product(name: str, product: Gemm) -> Term:
    """Return the FLOPs of a matmul; for attention 2·pairs·heads·d, with pairs counted by the convention."""
    if product.pairs is not None:
        return _attention(name, product.pairs)
    return product_term(name, product, f"{name}/")


def _attention(name: str, pairs: Pairs) -> Term:
    """Return the 2·pairs·heads·d FLOP of scores q·kᵀ, or of values."""
    path = name.rpartition("/")[0]
    count, heads = leaf(f"{path}/pairs", pairs.count, "1", GIVEN), leaf(f"{path}/heads", pairs.heads, "1", GIVEN)
    per_pair = constant("2", 2, "FLOP", MULTIPLY_ADD)
    if pairs.halved:
        per_pair = constant("1", 1, "FLOP", "half of 2: half of the square")
    return multiply(name, per_pair, count, heads, leaf(f"{name}/size", pairs.size, "1", GIVEN))


def products_of(operation: Operation, work: Work) -> tuple[Gemm, ...]:
    """Return the matmuls of one operation, over its own tokens."""
    return operation.products(over_own(operation, work))


def over_own(operation: Operation, work: Work) -> Work:
    """Return the work of an operation: the other stack's sequence if it reads nothing else, and of the head the tokens
    that the step gives."""
    if operation.reads == (MEMORY,):
        return replace(work, length=work.memory, lengths=())
    return work.given if operation.role == LM_HEAD else work


def operation_flops(
    path: str, operation: Operation, work: Work, which: Callable[[Gemm], bool] | None = None
) -> list[Term]:
    """Return the forward FLOPs of an operation's matmuls; `which` selects the matmuls that count."""
    name = f"{path}/{operation.name}"
    products = products_of(operation, work)
    found = [p for p in products if which is None or which(p)]
    if len(products) == len(found) == 1:
        return [_product(name, found[0])]
    return [_product(f"{name}/{p.name.rpartition('/')[2]}", p) for p in found]


# --- a model ---------------------------------------------------------------------------------------------------------


def summed(name: str, parts: Sequence[Term]) -> Term:
    """Return the sum of FLOPs under this name; 0 if there are no parts."""
    if not parts:
        return constant(name, 0, "FLOP", "no matrix product")
    return parts[0].renamed(name) if len(parts) == 1 else add(name, *parts)


def _operations(model: Model, stack: Stack, mtp: bool) -> list[tuple[str, Number, Operation]]:
    """Yield (layer type, number of layers, operation) of a stack, each layer type once; mtp: include the multi-token
    prediction modules."""
    found: list[tuple[str, Number, Operation]] = [("", 1, op) for op in stack.before]
    for kind, count, layer in stack.kinds():
        found += [(kind, count, op) for op in layer.operations]
    found += [("", 1, op) for op in stack.after]
    heads = [op for op in stack.after if op.role == LM_HEAD]
    if mtp and model.extra and stack is model.stacks[-1]:
        found += [("multi_token_prediction", len(model.extra), op) for op in (*model.extra[0].operations, *heads)]
    if stack.losses > 1:
        found += [("multi_token_prediction", stack.losses - 1, op) for op in heads]
    return found


def by_operation(
    model: Model,
    over: Works,
    *,
    mtp: bool = False,
    only: Callable[[Operation], bool] | None = None,
    which: Callable[[Gemm], bool] | None = None,
) -> dict[str, Term]:
    """Return the forward FLOPs by the operation's name, summed over its layers. only, which: select the operations and
    the matmuls that count; default all."""
    parts: dict[str, list[Term]] = {}
    for stack in model.stacks:
        prefix = f"{stack.name}/" if len(model.stacks) > 1 else ""
        for kind, count, operation in _operations(model, stack, mtp):
            if only is not None and not only(operation):
                continue
            path = f"flops/forward/{prefix}{kind}" if kind else f"flops/forward{'/' + stack.name if prefix else ''}"
            terms = operation_flops(path, operation, over[stack.name], which)
            if not terms:
                continue
            one = summed(f"{path}/{operation.name}", terms)
            if not isinstance(count, int) or count != 1:
                one = multiply(f"{path}/{operation.name}/all", leaf(f"{prefix}{kind}_layers", count, "1", GIVEN), one)
            parts.setdefault(prefix + operation.name, []).append(one)
    return {name: summed(f"flops/operation/{name}", terms) for name, terms in parts.items()}


def layer_forward(path: str, layer: Layer, work: Work) -> Term:
    """Return the forward FLOPs of one layer."""
    return summed(path, [term for operation in layer.operations for term in operation_flops(path, operation, work)])


def forward(model: Model, over: Works, mtp: bool = False) -> Term:
    """Return the FLOPs of one forward pass."""
    return summed("flops/forward", list(by_operation(model, over, mtp=mtp).values()))


def runs_backward(model: Model, over: Works) -> set[int]:
    """Return the number of backward matmuls per forward matmul of the same size."""
    operations = ((over[stack.name], op) for stack in model.stacks for _, _, op in _operations(model, stack, False))
    return {product.backward for work, op in operations for product in products_of(op, work)}


def backward(
    model: Model, over: Works, ahead: Term, mtp: bool = False, only: Callable[[Operation], bool] | None = None
) -> Term:
    """Return the FLOPs of the backward pass: twice `ahead`, those of the forward pass, without operations that have no
    gradient. only: selects the operations that count; default all."""
    found = runs_backward(model, over)
    if found <= {2}:
        return multiply("flops/backward", constant("2", 2), ahead, source=BACKWARD)

    def of(times: int) -> Term:
        parts = by_operation(model, over, mtp=mtp, only=only, which=lambda product: product.backward == times)
        return summed(f"flops/backward/of_{times}", list(parts.values()))

    twice = multiply("flops/backward/twice", constant("2", 2), of(2), source=BACKWARD)
    if 1 not in found:
        return twice.renamed("flops/backward")
    return add("flops/backward", twice, of(1), source=ONE_GRADIENT)


def passes(name: str, model: Model, over: Works, mtp: bool = False) -> Term:
    """Return the FLOPs of the forward and the backward pass."""
    ahead = forward(model, over, mtp)
    if runs_backward(model, over) <= {2}:
        return multiply(name, constant("3", 3, "1", "forward, and twice it backward"), ahead)
    return add(name, ahead, backward(model, over, ahead, mtp))


def with_pairs(over: Works, pairs: str) -> dict[str, Work]:
    """Return the same work with another convention for (query, key) pairs."""
    return {name: replace(work, pairs=pairs) for name, work in over.items()}


def is_attention(operation: Operation) -> bool:
    """Return whether an operation computes attention's scores and values."""
    return bool(operation.attention_width())


def attention(model: Model, over: Works, pairs: str, mtp: bool = False) -> Term:
    """Return the forward and backward FLOPs of scores and values under a convention for pairs."""
    name = "flops/attention" if pairs == FULL else f"flops/attention/{pairs}"
    counted = with_pairs(over, pairs)
    parts = list(by_operation(model, counted, mtp=mtp, only=is_attention).values())
    ahead = summed(f"{name}/forward", parts)
    if runs_backward(model, over) <= {2}:
        return multiply(name, constant("3", 3), ahead, source="forward, and twice it backward")
    return add(name, ahead, backward(model, counted, ahead, mtp, is_attention))


def step(model: Model, over: Works, mtp: bool = False) -> dict[str, Term]:
    """Return every published FLOP count of one step, by path."""
    operations = by_operation(model, over, mtp=mtp)
    ahead = summed("flops/forward", list(operations.values()))
    back = backward(model, over, ahead, mtp)
    total = add("flops/total", ahead, back)
    count = leaf("tokens", tokens(over), "token", GIVEN)
    found = [
        ahead,
        back,
        total,
        *(attention(model, over, pairs, mtp) for pairs in (FULL, HALF, EXACT)),
        divide("flops/per_token", total, count),
        *operations.values(),
    ]
    return {term.name: term for term in found}


def forwards_of(passes: Passes, over: Callable[[Model, int], Works]) -> list[Term]:
    """Return the FLOPs of each other pass. over: returns the work of a model on a multiple of the step's sequences."""
    found = []
    for one in passes.others:
        work = over(one.model, one.times)
        done = step(one.model, work)["flops/total"] if one.trained else forward(one.model, work)
        found.append(done.renamed(f"flops/{one.name}"))
    return found


def of_passes(passes: Passes, over: Callable[[Model, int], Works]) -> Term:
    """Return the FLOPs of a step with its passes without gradients."""
    trained = step(passes.trained, over(passes.trained, 1))["flops/total"]
    others = forwards_of(passes, over)
    return trained if not others else add("flops/total", trained.renamed("flops/trained"), *others)


def remarks(model: Model) -> list[str]:
    """Return notes on operations of this model that affect the count."""
    return sorted({text for op in model.operations if (text := op.remark())})


# --- documents -------------------------------------------------------------------------------------------------------


def packed(lengths: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the documents that fill a sequence, as (length, count)."""
    counts: dict[int, int] = {}
    for length in lengths:
        counts[length] = counts.get(length, 0) + 1
    return tuple(sorted(counts.items(), reverse=True))


def equal_documents(seq: int, length: int) -> tuple[tuple[int, int], ...]:
    """Return (length, count) of the documents that fill a sequence; the last one may be shorter."""
    if length >= seq:
        return ((seq, 1),)
    whole, rest = divmod(seq, length)
    return ((length, whole), (rest, 1)) if rest else ((length, whole),)

"""Stacks of linear layers, the lecture's examples: d₀ → d₁ → … → dₙ without biases, as a list of Matmul operations.

For B examples: parameters Σ dᵢ·dᵢ₊₁; forward 2·B·Σ dᵢ·dᵢ₊₁ FLOP; backward twice that, less 2·B·d₀·d₁ where nobody asks
for the gradient of the input; saved for backward: the input of each layer, of which the first is the data itself.
"""

from __future__ import annotations

from itertools import pairwise

from napkin.elementwise import Number
from napkin.operations.linear import Matmul
from napkin.operations.model import Layer
from napkin.operations.work import Gemm, Work
from napkin.record import record
from napkin.term import Term, add, constant, divide, leaf, multiply, subtract

TWICE = "backward makes two products of the forward's size: one for the input's gradient, one for the weight's"


def chain(widths: tuple[int, ...]) -> Layer:
    """Return the linear layers between consecutive widths."""
    operations = []
    reads = "x"
    for at, (d_in, d_out) in enumerate(pairwise(widths), 1):
        operations.append(Matmul(f"linear{at}", (reads,), d_in, d_out))
        reads = f"linear{at}"
    return Layer("linear", tuple(operations))


def deep(width: int, depth: int) -> tuple[int, ...]:
    """Widths of `depth` square layers and a head of one output: D, D, …, D, 1."""
    return (width,) * (depth + 1) + (1,)


def product_term(product: Gemm, name: str) -> Term:
    """2 · batch · m · k · n FLOP of one product."""
    factors = [constant("2", 2, "FLOP", "a multiply-add is 2 FLOP")]
    if product.batch != 1:
        factors.append(leaf("batch", product.batch, "1"))
    factors += [leaf(axis, size, "1") for axis, size in (("m", product.m), ("k", product.k), ("n", product.n))]
    return multiply(name, *factors)


def forward(layer: Layer, batch: int) -> Term:
    """Return the FLOP of one forward pass over `batch` examples, a part for each layer."""
    work = Work(1, batch)
    parts = [product_term(p, f"flops/forward/{p.name}") for op in layer.operations for p in op.gemms(work)]
    return add("flops/forward", *parts)


def backward(forward_flops: Term) -> Term:
    """Twice the forward pass."""
    return multiply("flops/backward", constant("2", 2), forward_flops, source=TWICE)


def input_gradient(layer: Layer, batch: int) -> Term:
    """Return the FLOP of the first layer's input gradient, which plain data does not ask for."""
    first = layer.operations[0].gemms(Work(1, batch))[0]
    return product_term(first, "flops/backward/input_gradient")


def backward_of_data(backward_flops: Term, first: Term) -> Term:
    """Return the FLOPs of backward where the data needs no gradient: without those of the first layer's input."""
    return subtract("flops/backward/of_data", backward_flops, first)


@record
class StepFlops:
    """FLOPs of one training step of a stack of linear layers.

    of_data, total_of_data  the backward pass and the step where the data needs no gradient
    six_nd                  the estimate 6·N·D      params  N      per_example  of the total
    """

    total: Term
    forward: Term
    backward: Term
    of_data: Term
    total_of_data: Term
    per_example: Term
    six_nd: Term
    params: Term


def step(widths: tuple[int, ...], batch: int) -> StepFlops:
    """Return the FLOPs of a training step on `batch` examples: exact, and by 6·N·D."""
    layer = chain(widths)
    ahead = forward(layer, batch)
    back = backward(ahead)
    of_data = backward_of_data(back, input_gradient(layer, batch))
    weights = sum(w.count for op in layer.operations for w in op.weights())
    params, examples = leaf("params/total", weights, "param", "true"), leaf("batch", batch, "1")
    six = constant("6", 6, "FLOP/param", "2 forward and 4 backward a weight and example")
    total = add("flops/total", ahead, back)
    return StepFlops(
        total,
        ahead,
        back,
        of_data,
        add("flops/total/of_data", ahead, of_data),
        divide("flops/per_example", total, examples),
        multiply("flops/6nd", six, params, examples),
        params,
    )


def training_flops(forward_flops: Number) -> Number:
    """Return the FLOPs of a matmul in training, 3 · forward: its backward pass makes two more of the same size."""
    return 3 * forward_flops


def saved(widths: tuple[int, ...], batch: Number) -> tuple[Number, Number]:
    """Return the numbers kept for backward: (the data itself, the outputs that later layers read)."""
    return batch * widths[0], batch * sum(widths[1:-1])

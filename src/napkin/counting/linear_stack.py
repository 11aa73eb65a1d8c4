"""Stacks of linear layers d₀ → d₁ → … → dₙ without biases, as a list of Matmul operations.

For B examples: parameters Σ dᵢ·dᵢ₊₁; forward 2·B·Σ dᵢ·dᵢ₊₁ FLOP; backward twice that, less 2·B·d₀·d₁ if the input needs
no gradient; saved for backward: the input of each layer, of which the first is the data itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from napkin.counting.products import BACKWARD, product_term
from napkin.elementwise import Number
from napkin.operations.linear import Matmul
from napkin.operations.work import Work
from napkin.record import record
from napkin.term import TRUE, Term, add, constant, divide, leaf, multiply, subtract


@record
class EqualLayers:
    """A run of equal linear layers, so that the cost of a stack does not grow with its depth.

    first  index of the first of them in the stack, from 1      layers  number of layers
    """

    first: int
    layers: int
    d_in: int
    d_out: int

    @property
    def name(self) -> str:
        """`linear3`, or `linear1-8` if there are several."""
        return f"linear{self.first}" + (f"-{self.first + self.layers - 1}" if self.layers > 1 else "")

    @property
    def one(self) -> Matmul:
        """One of the layers as an operation."""
        return Matmul(f"linear{self.first}", ("x",), self.d_in, self.d_out)

    def all(self, one: Term) -> Term:
        """Return a quantity of one layer times the number of layers."""
        return one if self.layers == 1 else multiply(f"{one.name}/all", constant("layers", self.layers), one)


def chain(widths: Sequence[int]) -> tuple[EqualLayers, ...]:
    """Return the linear layers between consecutive widths."""
    runs, at = [], 1
    for (d_in, d_out), equal in groupby(pairwise(widths)):
        runs.append(EqualLayers(at, len(list(equal)), d_in, d_out))
        at += runs[-1].layers
    return tuple(runs)


def deep(width: int, depth: int) -> tuple[EqualLayers, ...]:
    """Return `depth` square layers and a head of one output: D, D, …, D, 1."""
    if width == 1:
        return (EqualLayers(1, depth + 1, 1, 1),)
    return EqualLayers(1, depth, width, width), EqualLayers(depth + 1, 1, width, 1)


def forward(runs: Sequence[EqualLayers], batch: int) -> Term:
    """Return the FLOP of one forward pass over `batch` examples, with one part for each run of equal layers."""
    work = Work(1, batch)
    parts = [run.all(product_term(f"flops/forward/{run.name}", p)) for run in runs for p in run.one.gemms(work)]
    return add("flops/forward", *parts)


def backward(forward_flops: Term) -> Term:
    """Return the FLOP of the backward pass: twice the forward's."""
    return multiply("flops/backward", constant("2", 2), forward_flops, source=BACKWARD)


def input_gradient(runs: Sequence[EqualLayers], batch: int) -> Term:
    """Return the FLOP of the first layer's input gradient, which plain data does not need."""
    first = runs[0].one.gemms(Work(1, batch))[0]
    return product_term("flops/backward/input_gradient", first)


def backward_of_data(backward_flops: Term, first: Term) -> Term:
    """Return the FLOPs of the backward pass without the gradient of the data."""
    return subtract("flops/backward/of_data", backward_flops, first)


@record
class StepFlops:
    """FLOPs of one training step of a stack of linear layers.

    of_data, total_of_data  the backward pass and the step if the data needs no gradient
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


def step(runs: Sequence[EqualLayers], batch: int) -> StepFlops:
    """Return the FLOPs of a training step on `batch` examples: exact, and by 6·N·D."""
    ahead = forward(runs, batch)
    back = backward(ahead)
    of_data = backward_of_data(back, input_gradient(runs, batch))
    params, examples = leaf("params/total", weights(runs), "param", TRUE), leaf("batch", batch, "1")
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


def weights(runs: Sequence[EqualLayers]) -> Number:
    """Return the number of weights of all layers."""
    return sum(run.layers * weight.count for run in runs for weight in run.one.weights())


def training_flops(forward_flops: Term) -> Term:
    """Return the FLOPs of a matmul in training, 3 · forward: its backward pass has two matmuls of the same size."""
    return multiply("flops/training", constant("forward_and_backward", 3), forward_flops)


def saved(runs: Sequence[EqualLayers], batch: Number) -> tuple[Number, Number]:
    """Return the elements saved for backward: (the data itself, the outputs that later layers read)."""
    read = sum(run.layers * run.d_in for run in runs)
    return batch * runs[0].d_in, batch * (read - runs[0].d_in)

"""What torch.optim's classes make while they step and let go of afterwards (torch 2.13, torch/optim/*.py).

Bytes for tensors of n numbers, N together, of the states' type (w bytes a number):
    foreach   copies of all tensors: they run through the update together
    forloop   own·n + before·n', the largest over the tensors: n' is the tensor before, whose variables the loop still
              holds while it makes the next ones
    fused     nothing
Where states are fp32, so are these tensors, and a 16-bit gradient of the tensor at hand is cast. Adafactor makes an
estimate of the second moment beside each tensor; Muon orthogonalises in bf16: with m the smaller side's square,
w·n + 2·(2n + 2m): the update, it in bf16 twice, Gram matrix and polynomial. States are made before the first step's
buffers, so that no later step needs less than the first."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import Number, ceil_div, maximum
from napkin.training.optimizers import FP32_BYTES, GRAM, MEANS, Optimizer

FOREACH, FUSED = "foreach", "fused"
Size = tuple[Number, tuple[int, ...]]
"""A weight tensor: its numbers on a rank, and its whole shape."""


def temporaries(optimizer: Optimizer, form: str, sizes: Sequence[Size], whole: Number, width: int) -> Number:
    """Bytes that a step makes at most. `whole`: numbers of all tensors; `sizes`: each kind of tensor, in order."""
    if form == FUSED or not sizes:
        return 0
    if optimizer.step == MEANS:
        return _means(form, sizes, whole, width)
    if optimizer.step == GRAM:
        return maximum(0, *(_gram(n, shape, width) for n, shape in sizes))
    if form == FOREACH:
        largest = maximum(0, *(n for n, _ in sizes))
        masks = (width + 1) * largest + width if optimizer.masks else 0
        return optimizer.foreach * whole * width + masks
    cast = int(optimizer.in_fp32 and width < FP32_BYTES)
    pairs = [(own + cast, before) for own, before in optimizer.forloop]
    return _in_turn(pairs, [n for n, _ in sizes]) * (FP32_BYTES if optimizer.in_fp32 else width)


def _in_turn(pairs: Sequence[tuple[int, int]], sizes: Sequence[Number]) -> Number:
    """max over tensors of own·n + before·n', for each moment of the loop's body."""
    befores = [0, *sizes]
    return maximum(0, *(own * n + past * p for own, past in pairs for n, p in zip(sizes, befores, strict=False)))


def _means(form: str, sizes: Sequence[Size], whole: Number, width: int) -> Number:
    """Adafactor: one estimate of each tensor, those of matrices held while vectors' are made. In turn, a tensor's
    beside the one before's, a vector's squares, and the means of a matrix' rows and columns; each stays until the next
    of its kind."""
    vectors = [n for n, shape in sizes if len(shape) < 2]
    if form == FOREACH:
        return whole * width + (0 if vectors else width)
    found = squares = rows = columns = estimate = 0 * whole  # what the loop's variables name
    for n, shape in sizes:
        others = estimate + rows + columns + squares
        if len(shape) < 2:
            found = maximum(found, others + n, others - squares + 2 * n)
            squares = n
        else:
            means = ceil_div(n, shape[-1]), ceil_div(n, shape[-2])
            found = maximum(found, others + means[0], others - rows + sum(means))
            rows, columns = means
            found = maximum(found, estimate + squares + sum(means) + n + 1)
        estimate = n
    return found * width


def _gram(n: Number, shape: tuple[int, ...], width: int) -> Number:
    """Muon: Newton and Schulz's iteration on one matrix."""
    if len(shape) != 2:
        return 0
    least = ceil_div(n, max(shape))
    return width * n + 2 * (2 * n + 2 * least * least)

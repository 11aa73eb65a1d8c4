"""Memory traffic and temporaries of optimizer steps (torch 2.13, torch/optim/*.py).

Temporaries for tensors of n elements, N in total, in the states' format (w bytes per element):
    foreach   copies of all tensors: they run through the update together
    forloop   own·n + before·n', the maximum over the tensors: n' is the previous tensor, whose variables the loop still
              holds while it creates the next ones
    fused     nothing

Each function returns an `Update` for an optimizer's record. States are created before the buffers of the first step, so
no later step needs less than the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin.elementwise import Number, ceil_div, maximum
from napkin.formats import BYTES
from napkin.record import record
from napkin.training.precision import Precision

FOREACH, FUSED = "foreach", "fused"
FP32_BYTES = BYTES["fp32"]
Size = tuple[Number, tuple[int, ...]]
"""A weight tensor: its elements on a rank, and its undivided shape."""
Update = Callable[[str, Sequence[Size], Number, int, bool], Number]
"""(form, each kind of tensor in order, elements of all tensors, bytes of a state's element, whether states are fp32 for
any parameter dtype) → peak bytes of the temporaries of a step that is not fused."""


def elementwise_update(foreach: int = 0, forloop: tuple[tuple[int, int], ...] = (), masks: bool = False) -> Update:
    """Return the temporaries of an elementwise update.

    foreach  tensors of the size of all parameters in a foreach step        masks  and masks of the size of the largest
    forloop  temporaries (own, before) in turn, of the size of the current tensor and of the previous one; with fp32
             states these are fp32, and a 16-bit gradient of the current tensor is cast"""

    def bytes_of(form: str, sizes: Sequence[Size], all_elements: Number, width: int, in_fp32: bool) -> Number:
        if form == FOREACH:
            most = maximum(0, *(n for n, _ in sizes))
            return foreach * all_elements * width + ((width + 1) * most + width if masks else 0)
        cast = int(in_fp32 and width < FP32_BYTES)
        pairs = [(own + cast, before) for own, before in forloop]
        return _in_turn(pairs, [n for n, _ in sizes]) * (FP32_BYTES if in_fp32 else width)

    return bytes_of


def _in_turn(pairs: Sequence[tuple[int, int]], sizes: Sequence[Number]) -> Number:
    """Return the maximum over tensors of own·n + before·n', for each moment of the loop's body."""
    befores = [0, *sizes]
    return maximum(0, *(own * n + past * p for own, past in pairs for n, p in zip(sizes, befores, strict=False)))


def factored_update(form: str, sizes: Sequence[Size], all_elements: Number, width: int, in_fp32: bool) -> Number:
    """Adafactor: one estimate of each tensor's second moment; those of matrices are held while those of vectors are
    computed. In turn: a tensor's estimate next to the previous one, a vector's squares, and the row and column means
    of a matrix; each lives until the next of its kind."""
    vectors = [n for n, shape in sizes if len(shape) < 2]
    if form == FOREACH:
        return all_elements * width + (0 if vectors else width)
    found = squares = rows = columns = estimate = 0 * all_elements  # what the loop's variables name
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


def orthogonalized_update(form: str, sizes: Sequence[Size], all_elements: Number, width: int, in_fp32: bool) -> Number:
    """Muon orthogonalizes the updates matrix by matrix (Newton-Schulz iteration) in bf16: with m the square of the
    smaller side, w·n + 2·(2n + 2m) bytes for the update, two bf16 copies, the Gram matrix and the polynomial."""
    return maximum(0, *(_orthogonalized(n, shape, width) for n, shape in sizes))


def _orthogonalized(n: Number, shape: tuple[int, ...], width: int) -> Number:
    if len(shape) != 2:
        return 0
    least = ceil_div(n, max(shape))
    return width * n + 2 * (2 * n + 2 * least * least)


@record
class Accesses:
    """How often a step in elementwise kernels reads or writes an element of the updated copy, of the gradient, and of
    all tensors in the states' format together."""

    updated: int
    gradient: int
    states: int


ADAM = Accesses(2, 2, 14)
"""Adam's elementwise kernels (torch/optim/adam.py, _multi_tensor_adam): lerp reads and writes the first moment and
reads the gradient; mul and addcmul read and write the second, and read the gradient; sqrt, div and add of a third
tensor read and write; addcdiv reads both and the parameter and writes it: 3 + 2 + 2 + 6 + 1 accesses of states."""
ADAMW = Accesses(4, 2, 14)
"""The same after the parameter is multiplied by 1 − lr·decay."""


def step_traffic(policy: Precision, states: int, gradient: float, each: Accesses | None = None) -> float:
    """Return the bytes that a step moves per parameter: gradient read; states and the copy that it updates read and
    written; the parameter also written if that copy is a master copy. each: accesses of elementwise kernels, if these
    run.

    Formats other than fp32 and fp64 count 2 bytes."""
    state, param, master = (_MOVED.get(kind or "", 2) for kind in (policy.state, policy.param, policy.master))
    copy, written = (master, param) if policy.master else (param, 0)
    every = each or Accesses(2, 1, 2 * states)
    return every.gradient * gradient + every.states * state + every.updated * copy + written


_MOVED = {kind: BYTES[kind] for kind in ("fp64", "fp32")}

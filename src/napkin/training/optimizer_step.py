"""What optimizers move and allocate while they step, and free afterwards (torch 2.13, torch/optim/*.py).

Bytes for tensors of n elements, N in total, of the states' format (w bytes an element):
    foreach   copies of all tensors: they run through the update together
    forloop   own·n + before·n', the largest over the tensors: n' is the tensor before, whose variables the loop still
              holds while it makes the next ones
    fused     nothing
Each function here returns an `Update`, which an optimizer's record holds. States are made before the first step's
buffers, so that no later step needs less than the first.
"""

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
"""(form, each kind of tensor in order, elements of all tensors, bytes of a state's element, whether states are fp32
whatever the parameters) → the most bytes that a step which is not fused allocates."""


def elementwise_update(foreach: int = 0, forloop: tuple[tuple[int, int], ...] = (), masks: bool = False) -> Update:
    """Return an update that works element by element.

    foreach  tensors as large as all parameters that a foreach step makes        masks  and masks of the largest
    forloop  tensors (own, before) that a step makes in turn, as large as the tensor at hand and the one before it;
             where states are fp32, so are these, and a 16-bit gradient of the tensor at hand is cast"""

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
    """Adafactor: one estimate of each tensor's second moment, those of matrices held while vectors' are made.

    In turn, a tensor's next to the one before's, a vector's squares, and the means of a matrix' rows and columns; each
    stays until the next of its kind."""
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
    """Muon orthogonalizes the update of one matrix after the other (Newton and Schulz's iteration), in bf16: with m the
    smaller side's square, w·n + 2·(2n + 2m) bytes: the update, it in bf16 twice, Gram matrix and polynomial."""
    return maximum(0, *(_orthogonalized(n, shape, width) for n, shape in sizes))


def _orthogonalized(n: Number, shape: tuple[int, ...], width: int) -> Number:
    if len(shape) != 2:
        return 0
    least = ceil_div(n, max(shape))
    return width * n + 2 * (2 * n + 2 * least * least)


@record
class Accesses:
    """How often a step of elementary kernels reads or writes an element of the copy that it updates, of the gradient,
    and of all tensors of the states' format together."""

    updated: int
    gradient: int
    states: int


ADAM = Accesses(2, 2, 14)
"""Adam's elementary kernels (torch/optim/adam.py, _multi_tensor_adam): lerp reads and writes the first moment and reads
the gradient; mul and addcmul read and write the second, and read the gradient; sqrt, div and add of a third tensor read
and write; addcdiv reads both and the parameter and writes it: 3 + 2 + 2 + 6 + 1 accesses of states."""
ADAMW = Accesses(4, 2, 14)
"""The same after the parameter is multiplied by 1 − lr·decay."""


def step_traffic(policy: Precision, states: int, gradient: float, each: Accesses | None = None) -> float:
    """Return the bytes that a step moves per parameter: gradient read; states and the copy that it updates read and
    written; the parameter written too where that copy is a master. each: of elementary kernels, if they run.

    Formats other than fp32 and fp64 are taken to move 2 bytes."""
    state, param, master = (_MOVED.get(kind or "", 2) for kind in (policy.state, policy.param, policy.master))
    copy, written = (master, param) if policy.master else (param, 0)
    every = each or Accesses(2, 1, 2 * states)
    return every.gradient * gradient + every.states * state + every.updated * copy + written


_MOVED = {kind: BYTES[kind] for kind in ("fp64", "fp32")}

"""Whether a step fits: its memory on the worst rank against the capacity of a GPU."""

from __future__ import annotations

from functools import partial

from napkin.autograd.tensors import sized
from napkin.elementwise import Number, is_zero
from napkin.errors import DOES_NOT_FIT, UNDECIDED
from napkin.footprint import allocator, memory
from napkin.footprint.allocator import CONTEXT, Figure, Flow, Reported
from napkin.footprint.loading import after_loading, loaded_by_each
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Rank
from napkin.footprint.stages import places
from napkin.formats import EXACT_KEPT
from napkin.inputs.class_facts import traced_error
from napkin.operations.implementations import EAGER, FLASH, measured, mode
from napkin.operations.model import Model
from napkin.record import record, replace
from napkin.term import TRUE, leaf
from napkin.training.setup import EXACT, Setup, Width

FITS, NOT = "fits", DOES_NOT_FIT
VERDICTS = (FITS, UNDECIDED, NOT)


@record
class Fit:
    """The memory of a step and its verdict.

    rank     the worst rank
    verdict  on the run: on its steps, and on the weights that each GPU holds while they are loaded
    steps    on its steps alone         loads  on the weights alone; each is "" without a capacity
    """

    step: PreparedStep
    rank: Rank
    reported: Reported
    verdict: str
    steps: str
    loads: str


def mode_of(setup: Setup) -> str:
    """Return the name of the mode in which a step runs, as it would be traced."""
    numbers = setup.precision
    precision = "autocast" if numbers.autocast else "fp32" if numbers.param == "fp32" else "bf16"
    recompute = setup.layout.recompute.word
    return mode(precision, setup.attention, setup.dropout > 0, int(setup.layout.sequences), recompute)


def is_measured(model: Model, setup: Setup) -> bool:
    """Return whether the activations of this step were measured on the reference code: not with 8-bit matmuls,
    torch.compile, adapters, a special loss or another head, which were not run."""
    numbers = setup.precision
    operations = model.operations
    if not all(op.depends_on_shapes(int(setup.layout.seq)) for op in operations):
        return False
    if numbers.compute not in EXACT_KEPT or setup.implementation.tuning is not None or setup.implementation.loss:
        return False
    if setup.compiled or model.outputs:
        return False
    if setup.layout.images and not _is_traced_with_images(model, setup):
        return False
    return measured(setup.implementation, model.family, mode_of(setup))


def _is_traced_with_images(model: Model, setup: Setup) -> bool:
    """Return whether the activations of the vision tower were measured on the reference class."""
    traced = model.vision is not None and model.vision.traced
    return traced and setup.attention in (FLASH, EAGER) and not setup.dropout and not setup.asleep


def width_of(model: Model, setup: Setup) -> Width:
    """Return the interval widths of the figures. If nothing else is uncertain, the width of live bytes is the error on
    traced steps of the same code."""
    counted = is_measured(model, setup) and setup.attention in setup.implementation.kernels
    width = setup.widths[0 if setup.layout.gpus == 1 else 1][0 if counted else 1]
    if not setup.implementation.of_transformers or not counted or width.live != EXACT.live:
        return width
    error = traced_error(model.family)
    return replace(width, live=(-error, error))


def worst_rank(step: PreparedStep) -> Rank:
    """Return the rank that uses the most memory, with what torch's allocator keeps there."""
    ranks = [memory.rank_of(step, place) for place in places(step)]
    return ranks[0] if len(ranks) == 1 else max(ranks, key=partial(used_on, step.setup))


def used_bytes(model: Model, setup: Setup) -> Number:
    """Return `memory/used` of a step, in bytes, without intervals."""
    return used_on(setup, worst_rank(prepare(model, setup)))


def used_on(setup: Setup, rank: Rank) -> Number:
    """Return `memory/used` of one rank, in bytes, without an interval."""
    used: Number = figures_of(setup, rank.live, rank.flow(setup)).used.value
    return used


def figures_of(
    setup: Setup,
    live: Number,
    flow: Flow,
    width: Width = EXACT,
    copies: Number = 0,
    context: Figure = CONTEXT,
    bounds: tuple[str, ...] = ("low", "high"),
) -> Reported:
    """Return the figures that the allocator and the driver report of a rank's live bytes.

    copies   bytes of narrow copies of weights, which only the upper ends allow for
    context  of CUDA
    bounds   which ends of the intervals are computed
    """
    whole = leaf("memory/live", live, "byte", TRUE)
    found = allocator.reported(whole, setup.layout.gpus, width, flow, context, bounds=bounds)
    if is_zero(copies):
        return found
    return replace(found, ends={path: (low, high + copies) for path, (low, high) in found.ends.items()})


def evaluate(
    model: Model,
    setup: Setup,
    capacity: Number | None,
    context: Figure = CONTEXT,
) -> Fit:
    """Return a step's memory and whether it fits: `fits` if even the upper end does, `does not fit` if the bytes needed
    without any cache already exceed the capacity. context: of CUDA."""
    step = prepare(model, setup)
    rank = worst_rank(step)
    width, copies = width_of(model, setup), narrow_copies(setup, rank)
    found = figures_of(setup, rank.live, rank.flow(setup), width, copies, context)
    if capacity is not None:
        found = allocator.within(found, capacity)
    steps = verdict(found, capacity)
    loads = "" if capacity is None else on_loading(model, setup, capacity)
    return Fit(step, rank, found, worse(steps, loads), steps, loads)


def on_loading(model: Model, setup: Setup, capacity: Number) -> str:
    """Return whether the weights that each GPU holds while a checkpoint is loaded fit."""
    return after_loading(FITS, loaded_by_each(model, setup), capacity, setup.loading)


def worse(first: str, second: str) -> str:
    """Return the worse of two verdicts; "" if neither was given."""
    return max(first, second, key=("", *VERDICTS).index)


def narrow_copies(setup: Setup, rank: Rank) -> Number:
    """Return the bytes of copies of weights in 8 or 4 bits that a library may keep until the backward pass, which the
    upper ends allow for: plain and transposed (TransformerEngine pytorch/module/linear.py saves both; torchao's float8
    keeps none)."""
    compute = setup.precision.compute
    return 0 if compute in EXACT_KEPT or setup.framework.keeps_inputs else 2 * sized(rank.weights.all, compute)


def verdict(found: Reported, capacity: Number | None) -> str:
    """Return whether the reported bytes fit into a capacity; "" if none is given."""
    if capacity is None:
        return ""
    if found.least > capacity:
        return NOT
    return FITS if found.ends["memory/used"][1] <= capacity else UNDECIDED

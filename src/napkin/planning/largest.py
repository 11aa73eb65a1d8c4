"""The largest micro-batch, sequence, number of layers or model whose step fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from napkin.counting.params import params
from napkin.errors import Refused
from napkin.footprint import buckets, capacity
from napkin.footprint.rank import BUCKETS
from napkin.operations.model import Model
from napkin.operations.queries import learned_positions
from napkin.planning import enlarge
from napkin.planning.verdicts import FITS, NOT, Fit
from napkin.record import record, replace
from napkin.term import TRUE, Term, constant, leaf, multiply
from napkin.training.setup import Setup

LONGEST, MOST = 10**8, 10**6
"""The longest sequence, and the largest value of other quantities, that is tried."""

Evaluate = Callable[[Model, Setup], Fit]


@record
class Binding:
    """What rules out a larger value: the stage and phase of the peak, the category that grows most, and its growth."""

    stage: int
    moment: str
    bucket: str
    grows: int


@record
class LargestFit:
    """The largest value of a quantity that fits.

    value     the largest that fits by the estimate, or surely if requested; 0 if none does
    surely    the largest whose interval lies within capacity         possibly  the largest whose lower end does
    unit      the step of the search                                  ended     whether no larger value was tried
    model, setup, fit   of the value, or of `unit` if none fits    binding   what rules out a larger value, if any fits
    """

    value: int
    surely: int
    possibly: int
    unit: int
    ended: bool
    model: Model
    setup: Setup
    fit: Fit
    binding: Binding | None


def largest_that_fits(
    what: str, model: Model, setup: Setup, evaluate: Evaluate, available: int, surely: bool = False
) -> LargestFit:
    """Find the largest `what` (micro-batch, seq, layers or params) whose step fits in `available` bytes. Raises Refused
    (3) for a number of layers that these bytes do not limit.

    evaluate  how a model's setup is evaluated against the accelerator
    surely    the value must fit with its whole interval, not only by the estimate"""

    @cache
    def evaluated(value: int) -> Fit:
        return evaluate(*_changed(what, model, setup, value))

    def likely(value: int) -> bool:
        found = evaluated(value)
        return bool(found.reported.used.value <= available) and found.loads != NOT

    unit, most = _range(what, model, setup)
    by_estimate = enlarge.largest_that_fits(likely, unit, most)
    certain = enlarge.largest_that_fits(lambda n: evaluated(n).verdict == FITS, unit, most)
    possible = enlarge.largest_that_fits(lambda n: evaluated(n).verdict != NOT, unit, most)
    value = certain if surely else by_estimate
    ended = value + unit > most
    if ended and what in ("layers", "params"):
        raise Refused(
            f"--max {what}: a GPU's memory does not limit it, because all that grows with the layers is on the host",
            "leave parameters or activations out of --offload",
        )
    found = evaluated(value or unit)
    binding = _binding(found, evaluated(value + unit), ended) if value else None
    return LargestFit(
        value, certain, possible, unit, ended, *_changed(what, model, setup, value or unit), found, binding
    )


def _changed(what: str, model: Model, setup: Setup, value: int) -> tuple[Model, Setup]:
    """Return model and setup with the value that is tried."""
    if what == "micro-batch":
        return model, replace(setup, layout=setup.layout.replaced(micro=value))
    if what == "seq":
        return model, replace(setup, layout=setup.layout.replaced(seq=value))
    return enlarge.with_layers(model, value), setup


def _range(what: str, model: Model, setup: Setup) -> tuple[int, int]:
    """Return the step and the end of the search. Learned positions limit the sequence length."""
    layout = setup.layout
    if what == "seq":
        return int(layout.cp * (layout.tp if layout.sp else 1)), min([LONGEST, *learned_positions(model)])
    return int(layout.pp * layout.vp if what in ("layers", "params") else 1), MOST


def _binding(found: Fit, beyond: Fit, ended: bool) -> Binding:
    """Return what rules out a larger value: the category that grows most at the next step of the search."""
    peak, then = buckets.peak_of(found.rank), buckets.peak_of(beyond.rank)
    if ended:
        return Binding(int(found.rank.stage.index), peak.name, "positions", 0)
    growth = {bucket: getattr(then, bucket) - getattr(peak, bucket) for bucket in BUCKETS}
    bucket = max(growth, key=lambda name: growth[name])
    return Binding(int(beyond.rank.stage.index), then.name, bucket, growth[bucket])


def size_terms(found: LargestFit, setup: Setup, each_capacity: Term) -> list[Term]:
    """Return the parameters of the largest model, and the ceiling that states set if they are perfectly sharded; no
    ceiling for an optimizer whose states depend on the shapes."""
    counted = params(found.model)["params/total"]
    terms = [counted.renamed("params/max") if found.value else leaf("params/max", 0, "param", TRUE)]
    if not setup.optimizer.factored:
        each = capacity.bytes_per_param(setup.precision, setup.optimizer)
        whole = multiply("capacity_of_all", each_capacity, constant("gpus", setup.layout.gpus))
        terms.append(capacity.most_params(whole, each, "params/ceiling"))
    return terms

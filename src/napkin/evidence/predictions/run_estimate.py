"""Estimated MFU of an entire run, from published runs or from the step model for a layout, and the derived
quantities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache

from napkin.counting.six_n import six
from napkin.evidence.figures.goodput import PUBLISHED
from napkin.evidence.predictions import runs
from napkin.evidence.rates.constants import deviations
from napkin.inputs.hardware import Hardware
from napkin.record import record, replace
from napkin.term import SEEN, Term, leaf
from napkin.timing import time
from napkin.timing.goodput import Goodput

TYPE_CHECKING = False  # mypy takes it as true; these are loaded if a step is predicted
if TYPE_CHECKING:
    from napkin.evidence.predictions.one_run import StepPrediction
    from napkin.training.layout import Layout

START = 70e9
"""Starting value if parameters are solved for."""
ROUNDS = 6


def is_wanted(known: Mapping[str, Term], with_budget: bool) -> bool:
    """Return whether to estimate MFU: it is missing, and the other unknowns use all equations."""
    if "mfu" in known:
        return False
    missing = time.missing_of({"mfu": six(), **known})
    return len(missing) >= (2 if with_budget else 1)


def solved(
    known: Mapping[str, Term],
    hardware: Hardware,
    peak: Term,
    budget: Term | None,
    price: Term | None,
    confidence: float,
    goodput: Goodput,
    of_step: runs.Estimate | None = None,
) -> tuple[dict[str, Term], runs.Estimate]:
    """Return the run's quantities with an estimated whole-run MFU, and the estimate; of_step: the step model's, if
    there is a layout. Where the size or the count is what is asked for, estimate and answer are found together, by
    iterating."""

    def solved_with(estimate: runs.Estimate, source: str) -> dict[str, Term]:
        while_running = estimate.mfu / goodput.share.value * hardware.peak(hardware.default_dtype) / peak.value
        used = leaf("mfu/while_running", while_running, "1", SEEN, source)
        found = time.solve({**known, "mfu": used}, peak, budget, price, goodput)
        return {**found, "mfu/while_running": used, "mfu": goodput.whole_run(used)}

    if of_step is not None:
        return solved_with(of_step, "the step model"), of_step
    rule = _rule(goodput.run_kind, confidence)
    found: dict[str, Term] = dict(known)
    before: runs.Estimate | None = None
    for _ in range(ROUNDS):
        estimate = _with_goodput(runs.estimate(_asked(found, hardware, goodput.run_kind), rule), goodput)
        if before is not None and estimate == before:
            break
        found = solved_with(estimate, f"{estimate.runs} published runs of {estimate.teams} teams")
        before = estimate
    assert before is not None
    return found, before


@cache
def _rule(kind: str, confidence: float) -> runs.FittedRule:
    """Return the rule of published runs of a kind, fitted once: sweeps and what-ifs ask for it at every point."""
    return runs.FittedRule(runs.judging(runs.evidence(), kind), confidence)


def _with_goodput(estimate: runs.Estimate, goodput: Goodput) -> runs.Estimate:
    """Return the MFU of published whole runs as that of a run with another goodput than theirs."""
    if not goodput.is_given:
        return estimate
    times = goodput.share.value / PUBLISHED[goodput.run_kind].share.value
    ends = {name: min(getattr(estimate, name) * times, 1.0) for name in ("mfu", "low", "high")}
    return replace(estimate, **ends)


def _asked(found: Mapping[str, Term], hardware: Hardware, kind: str) -> runs.PlannedRun:
    """Return the planned run to compare with published ones."""
    total = found["params"].value if "params" in found else START
    active = found["per_token"].value / 6 if "per_token" in found else total
    gpus = int(found["gpus"].value) if "gpus" in found else None
    return runs.PlannedRun(max(active, 1), max(total, active), hardware, gpus, run_kind=kind)


@record
class StepEstimate:
    """The estimate from the step model: of the whole run, the step's seconds, half the interval of their logarithm, and
    the ids of the nearest evidence."""

    estimate: runs.Estimate
    seconds: float
    half: float
    near: tuple[str, ...]


def of_step(
    layout: Layout,
    prediction: StepPrediction,
    hardware: Hardware,
    per_token: float,
    confidence: float,
    stack_named: bool,
    goodput: Goodput,
    most: float,
) -> StepEstimate:
    """Return the step model's utilization in a convention's terms, times the goodput; per_token: the convention's
    FLOPs; most: the utilization by them at which the hardware's peak is reached."""
    found = prediction.step().time
    seconds = found.value
    done = per_token * layout.global_batch * layout.seq
    middle = done / (seconds * layout.gpus * hardware.peak(hardware.default_dtype)) * goodput.share.value
    of_step, close = prediction.half_width(confidence, named=stack_named, found=found)
    faster, slower = goodput.half_widths(of_step, deviations(confidence))
    low, high = middle / math.exp(slower), min(middle * math.exp(faster), max(most, middle))
    estimate = runs.Estimate(middle, low, high, confidence, 0, 0, ())
    return StepEstimate(estimate, seconds, of_step, tuple(one.id for _, one in close))


def intervals(
    known: Mapping[str, Term], found: Mapping[str, Term], terms: Iterable[Term], estimate: runs.Estimate
) -> dict[str, tuple[float, float]]:
    """Return the ends of those of the terms that follow from the estimated MFU, by path: better utilization takes less
    time, or trains more parameters or tokens."""
    low, high = estimate.low / estimate.mfu, estimate.high / estimate.mfu
    grows = {"params", "tokens"} - set(known)
    if "per_token" in known:
        grows.discard("params")
    shrinks = (
        set() if grows else {"time", "time/uninterrupted", "gpus", "gpu_hours", "cost", "energy", "carbon"} - set(known)
    )
    if "time/allowed" in found:
        shrinks -= {"time", "time/uninterrupted"}  # the GPUs are chosen to meet the deadline
    ends = {"mfu": (found["mfu"].value * low, found["mfu"].value * high)}
    for term in terms:
        if term.name in shrinks:
            ends[term.name] = (term.value / high, term.value / low)
        elif term.name in grows:
            ends[term.name] = (term.value * low, term.value * high)
    return ends

"""Predicted against measured steps, for the shipped evidence or a user's file of the same form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from napkin.evidence.figures.host_updates import UPDATE_SPREAD
from napkin.evidence.intervals.steps import (
    HOST_SPREAD,
    NETWORK_SPREAD,
    RunPoint,
    SeenStep,
    class_of,
    distance,
    point,
    quantile,
    scale,
    seen_step,
    widened,
)
from napkin.evidence.rates.constants import (
    at_lowest_voltage,
    constants,
    deviations,
    may_be_at_lowest_voltage,
    own_error_of,
    spreads,
)
from napkin.evidence.rates.machines import constants_of, machine
from napkin.evidence.rows.printed import block_weights
from napkin.evidence.rows.steps import StepRow
from napkin.evidence.software import stacks
from napkin.evidence.validation.compared import Compared
from napkin.formats import COMPUTE_BITS
from napkin.inputs import hardware
from napkin.record import record, replace
from napkin.training.precision import POLICIES

TYPE_CHECKING = False  # mypy takes it as true; numpy is slow to load
if TYPE_CHECKING:
    from napkin.evidence.fit.columns import Columns


BY_HOST = ("host_layer/eager", "host_layer/modules", "host_chunk")
"""Constants of what a host launches one by one from Python: other hosts take as many times as long."""


def weights_of(row: StepRow) -> float:
    """Return the parameters of a published shape, only to judge similarity."""
    d = row.shape
    assert d is not None
    return block_weights(d, d.experts) + d.hidden * max(d.vocab, 1)


def point_of(row: StepRow) -> RunPoint:
    """Return the point of a published step in the evidence."""
    compute = POLICIES[row.policy].compute
    return point(
        constants_of(hardware.find(row.chip)),
        stacks.stack(row.stack or stacks.UNKNOWN).family,
        bool(row.shape and row.shape.experts),
        COMPUTE_BITS.get(compute, 16),
        weights_of(row),
        row.seq,
        row.gpus,
    )


def _share_of_host(row: StepRow, source: str, seconds: float) -> float:
    """Return the share of a step's seconds in which a host updates the optimizer's states."""
    from napkin.evidence.fit.columns import Columns

    if not row.hosts:
        return 0.0
    on_gpus = Columns([replace(row, hosts=False)])
    return 1 - float(on_gpus.predict(on_gpus.values(constants(source)))[0]) / seconds


def _of_kernel(row: StepRow, source: str, seconds: float, generation: str) -> float:
    """Return ln of the seconds of a step over those with the attention kernel of another release of its software, 0 if
    that is known."""
    from napkin.evidence.fit.columns import Columns, kernel_of

    stack = stacks.stack(row.stack or stacks.UNKNOWN)
    kernel = row.newer_attention or stack.newer_kernel(kernel_of(row, stack, generation), generation)
    if not kernel:
        return 0.0
    newer = Columns([replace(row, attention=kernel)])
    return math.log(seconds / float(newer.predict(newer.values(constants(source)))[0]))


def _of_clock(row: StepRow, source: str, seconds: float) -> float:
    """Return ln of the seconds of a step at the accelerator's lowest voltage over the predicted ones; 0 if its clock is
    not limited by its power, or was measured."""
    from napkin.evidence.fit.columns import Columns

    card = hardware.find(row.chip)
    if not may_be_at_lowest_voltage(machine(card, card.default_dtype), source):
        return 0.0
    columns = Columns([row])
    slower = columns.predict(columns.values(at_lowest_voltage(constants(source))))[0]
    return math.log(float(slower) / seconds)


@record
class _Predicted:
    """The seconds of a row's step, half the width of their interval in log space, and the class of its evidence."""

    seconds: float
    half: float
    evidence: str


def steps(rows: Sequence[StepRow], level: float = 0.9, in_sample: bool = False) -> list[Compared]:
    """Predict each row with constants fitted without its source, unless `in_sample`."""
    from napkin.evidence.fit.columns import Columns

    columns = Columns(rows)
    predicted = _predicted(columns, level, in_sample)
    return [_compared(row, predicted.get(row.id), columns.why.get(row.id, "")) for row in rows]


def _predicted(columns: Columns, level: float, in_sample: bool) -> dict[str, _Predicted]:
    """Return the prediction of each row that can be predicted, by its id."""
    import numpy as np

    from napkin._tables import calibration

    sources = ["" if in_sample else row.source_key for row in columns.kept]
    known = {source: constants(source) for source in {"", *sources}}
    sets = {source: columns.values(known[source]) for source in set(sources)}
    slower, apart = _on_slower_networks(columns, level, known), _by_copies(columns, known)
    hosts = columns.values({name: math.exp(deviations(level) * HOST_SPREAD * (name in BY_HOST)) for name in known[""]})
    of_rows = np.stack([sets[source] for source in sources]) if sources else np.empty((0, len(columns.constants)))
    seconds, exposed, late = columns.predict(of_rows), columns.exposed(of_rows), columns.predict(of_rows * hosts)
    sigmas = {source: spreads(source) for source in set(sources)}
    factors = {source: quantile(level, calibration.SEEN, calibration.BASE, source) for source in set(sources)}
    places = _Places(map(seen_step, calibration.SEEN))
    predicted = {}
    each = zip(columns.kept, sources, map(float, seconds), map(float, exposed), map(float, late), strict=True)
    for row, source, value, share, waited in each:
        at = point_of(row)
        own = own_error_of(at, sigmas[source], share)
        half = factors[source] * scale(calibration.BASE, places.nearest(at, source), own)
        host, kernel = _share_of_host(row, source, value), _of_kernel(row, source, value, at.generation)
        network = math.log(slower.get(row.id, value) / value)
        clock, dispatch = _of_clock(row, source, value), math.log(apart.get(row.id, value) / value)
        host *= deviations(level) * UPDATE_SPREAD
        launches = math.log(waited / value) if 0 < value < math.inf else 0.0
        found = {"host": host, "kernel": kernel, "network": network, "clock": clock, "dispatch": dispatch}
        wide = widened(half, launches=launches, **found)
        predicted[row.id] = _Predicted(value, wide, class_of(at, calibration.SEEN, source))
    return predicted


def _on_slower_networks(
    columns: Columns, level: float, of_source: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return the seconds of steps over several nodes whose network is not stated, on one that is as many σ slower as
    the level is, by the row's id."""
    less = math.exp(-deviations(level) * NETWORK_SPREAD)
    rows = []
    for row in columns.kept:
        at = machine(hardware.find(row.chip), "bf16", None, row.node)
        if row.network is None and at.leaves_node(row.gpus):
            rows.append(replace(row, network=less * float(at.network)))
    return _seconds_of(rows, of_source)


def _by_copies(columns: Columns, of_source: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of steps that do not say how ranks exchange tokens of experts, with an all-to-all of their
    copies, by the row's id."""
    rows = [
        replace(row, dispatcher=stacks.COPIES)
        for row in columns.kept
        if row.shape is not None and row.shape.experts and row.ep > 1
        if stacks.dispatched(row.stack or stacks.UNKNOWN, row.dispatcher).open_dispatcher
    ]
    return _seconds_of(rows, of_source)


def _seconds_of(rows: Sequence[StepRow], of_source: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of rows by their ids. of_source: the constants that hold for a row of each source."""
    import numpy as np

    from napkin.evidence.fit.columns import Columns

    found = Columns(rows)
    if not found.kept:
        return {}
    sets = {source: found.values(known) for source, known in of_source.items()}
    keys = [row.source_key if row.source_key in sets else "" for row in found.kept]
    seconds = found.predict(np.stack([sets[key] for key in keys]))
    return {row.id: float(one) for row, one in zip(found.kept, seconds, strict=True)}


def _compared(row: StepRow, predicted: _Predicted | None, why: str) -> Compared:
    """Return a row's measurement next to its prediction, or the reason why there is none."""
    from napkin.evidence.fit.posterior import in_quantity

    found = row.measured
    quantity, given = (found.quantity, found.value) if found else ("step_seconds", None)
    group = row.source_key or row.source
    if predicted is None or found is None:
        why = row.why or why or "prints no quantity of one GPU"
    elif 0 < predicted.seconds < math.inf:
        ends = sorted(in_quantity(predicted.seconds * math.exp(sign * predicted.half), row) for sign in (-1, 1))
        middle = in_quantity(predicted.seconds, row)
        return Compared(
            row.id,
            quantity,
            middle,
            ends[0],
            ends[1],
            given,
            row.source,
            "",
            "",
            row.suspect,
            group,
            evidence=predicted.evidence,
        )
    else:
        why = "its shape or layout is not one that can run"
    return Compared(row.id, quantity, None, None, None, given, row.source, why, "", row.suspect, group)


class _Places:
    """Cache of distances to the evidence, because many rows of a table have the same point."""

    def __init__(self, evidence: Iterable[SeenStep]) -> None:
        self.by_source: dict[str, set[RunPoint]] = {}
        for one in evidence:
            self.by_source.setdefault(one.source, set()).add(one.at)
        self.known: dict[tuple[RunPoint, str], float] = {}

    def nearest(self, at: RunPoint, without: str) -> float:
        key = (at, without)
        if key not in self.known:
            self.known[key] = min(
                distance(at, other)
                for source, points in self.by_source.items()
                if source != without
                for other in points
            )
        return self.known[key]

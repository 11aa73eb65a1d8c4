"""Predicted against measured steps, for the shipped evidence or a user's file of the same form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from napkin.evidence import software
from napkin.evidence.compared import Compared
from napkin.evidence.constants import constants, deviations, own_error_of, spreads
from napkin.evidence.intervals import (
    Growth,
    RunPoint,
    SeenStep,
    class_of,
    distance,
    point,
    quantile,
    seen_step,
    widened,
)
from napkin.evidence.machines import constants_of
from napkin.evidence.printed import block_weights
from napkin.evidence.step_rows import StepRow
from napkin.formats import COMPUTE_BITS
from napkin.inputs import hardware
from napkin.record import replace
from napkin.training.precision import POLICIES


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
        software.stack(row.stack or software.UNKNOWN).family,
        bool(row.shape and row.shape.experts),
        COMPUTE_BITS.get(compute, 16),
        weights_of(row),
        row.seq,
        row.gpus,
    )


def _share_of_host(row: StepRow, source: str, seconds: float) -> float:
    """Return the share of a step, of so many seconds, in which a host updates the optimizer's states."""
    from napkin.evidence.columns import Columns

    if not row.hosts:
        return 0.0
    on_gpus = Columns([replace(row, hosts=False)])
    return 1 - float(on_gpus.predict(on_gpus.values(constants(source)))[0]) / seconds


def _of_kernel(row: StepRow, source: str, seconds: float, generation: str) -> float:
    """Return ln of the seconds of a step over those with the attention kernel of another release of its software, 0 if
    that is known."""
    from napkin.evidence.columns import Columns, kernel_of

    stack = software.stack(row.stack or software.UNKNOWN)
    kernel = row.newer_attention or stack.newer_kernel(kernel_of(row, stack, generation), generation)
    if not kernel:
        return 0.0
    newer = Columns([replace(row, attention=kernel)])
    return math.log(seconds / float(newer.predict(newer.values(constants(source)))[0]))


def steps(rows: Sequence[StepRow], level: float = 0.9, in_sample: bool = False) -> list[Compared]:
    """Predict each row with constants fitted without its source, unless `in_sample`."""
    import numpy as np

    from napkin._tables import calibration
    from napkin.evidence.columns import Columns
    from napkin.evidence.fit import in_quantity

    columns = Columns(rows)
    sources = ["" if in_sample else row.source_key for row in columns.kept]
    sets = {source: columns.values(constants(source)) for source in set(sources)}
    seconds = columns.predict(np.stack([sets[source] for source in sources])) if sources else np.empty(0)
    growth = Growth(*calibration.GROWTH)
    sigmas = {source: spreads(source) for source in set(sources)}
    factors: dict[tuple[str, str], float] = {}
    rests: dict[str, str] = {}
    places = _Places(map(seen_step, calibration.SEEN))
    predicted = {}
    for row, source, value in zip(columns.kept, sources, seconds, strict=True):
        at = point_of(row)
        kind = rests[row.id] = class_of(at, calibration.SEEN, source)
        if (source, kind) not in factors:
            factors[source, kind] = quantile(level, calibration.SEEN, growth, source, kind)
        half = factors[source, kind] * growth.at(
            places.nearest(at, source), at.experts, own_error_of(at, sigmas[source])
        )
        host = _share_of_host(row, source, float(value))
        kernel = _of_kernel(row, source, float(value), at.generation)
        predicted[row.id] = (float(value), widened(half, deviations(level), host=host, kernel=kernel))
    answers = []
    for row in rows:
        found = row.measured
        quantity = found.quantity if found else "step_seconds"
        given = found.value if found else None
        group = row.source_key or row.source
        if row.id not in predicted or found is None:
            why = row.why or columns.why.get(row.id, "prints no quantity of one GPU")
            answers.append(Compared(row.id, quantity, None, None, None, given, row.source, why, "", row.suspect, group))
            continue
        value, half = predicted[row.id]
        if not 0 < value < math.inf:
            why = "its shape or layout is not one that can run"
            answers.append(Compared(row.id, quantity, None, None, None, given, row.source, why, "", row.suspect, group))
            continue
        ends = sorted(in_quantity(value * math.exp(sign * half), row) for sign in (-1, 1))
        middle = in_quantity(value, row)
        answers.append(
            Compared(
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
                evidence=rests[row.id],
            )
        )
    return answers


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

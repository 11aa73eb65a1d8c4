"""Statistics of docs/accuracy.md: errors of predictions on published steps, under several protocols."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from napkin.evidence.fit.columns import Columns
from napkin.evidence.fit.posterior import seconds_of
from napkin.evidence.intervals.ranking import nearest_rank
from napkin.evidence.intervals.steps import distance
from napkin.evidence.rates.constants import constants
from napkin.evidence.rows import facts
from napkin.evidence.rows.steps import StepRow
from napkin.evidence.validation.step_check import point_of
from napkin.record import record

if TYPE_CHECKING:
    from napkin.evidence.fit.arrays import Floats, Mask


@record
class Errors:
    """The counted rows with ln predicted − ln measured, their source held out (`out`) and with it (`inside`)."""

    rows: list[StepRow]
    sources: list[str]
    out: Floats
    inside: Floats
    seconds: Floats

    @property
    def experts(self) -> Mask:
        return np.array([bool(row.shape and row.shape.experts) for row in self.rows])


def errors(rows: Sequence[StepRow] | None = None) -> Errors:
    """Return the errors of the shipped constants on the evidence, or on the given rows."""
    columns = Columns(rows if rows is not None else facts.steps())
    sources = [row.source_key for row in columns.kept]
    sets = {source: columns.values(constants(source)) for source in set(sources)}
    out = np.log(columns.predict(np.stack([sets[source] for source in sources])))
    inside = np.log(columns.predict(columns.values(constants())))
    truth = np.log([seconds_of(row) for row in columns.kept])
    keep = np.array([not row.suspect for row in columns.kept])
    kept = [row for row in columns.kept if not row.suspect]
    return Errors(
        kept,
        [s for s, k in zip(sources, keep, strict=True) if k],
        (out - truth)[keep],
        (inside - truth)[keep],
        np.exp(truth[keep]),
    )


def summary(log_errors: Floats) -> tuple[int, float, float, float]:
    """Return the number of rows, and median, mean and 90th percentile of |predicted/measured − 1|."""
    size = np.abs(np.expm1(log_errors))
    return len(size), float(np.median(size)), float(np.mean(size)), nearest_rank(size.tolist(), 0.9)


def scaled_by_nearest(found: Errors) -> Floats:
    """Return the errors after scaling each prediction by the most similar measured step of its source."""
    points = [point_of(row) for row in found.rows]
    result = np.full(len(points), np.nan)
    for source in set(found.sources):
        members = [i for i, s in enumerate(found.sources) if s == source]
        for i in members:
            others = [j for j in members if j != i and not same_configuration(found.rows[i], found.rows[j])]
            if others:
                gaps = {j: distance(points[i], points[j]) + _layout_gap(found.rows[i], found.rows[j]) for j in others}
                result[i] = found.out[i] - found.out[min(gaps, key=gaps.__getitem__)]
    return result


def _layout(row: StepRow) -> tuple[object, ...]:
    return (row.tp, row.pp, row.vp or 1, row.cp, row.ep, row.dp, row.micro_batch, row.recompute, row.policy)


def same_configuration(a: StepRow, b: StepRow) -> bool:
    """Return whether two rows ran the same model, accelerators, sequence length and layout."""
    return (a.shape, a.chip, a.gpus, a.seq, _layout(a)) == (b.shape, b.chip, b.gpus, b.seq, _layout(b))


def _layout_gap(a: StepRow, b: StepRow) -> float:
    """Return 0.1 for each layout column that differs, and 0.2 for another chip."""
    return 0.1 * float(sum(x != y for x, y in zip(_layout(a), _layout(b), strict=True))) + 0.2 * (a.chip != b.chip)


@record
class Ranking:
    """Pairs of layouts that differ by more than 3 %, the number ordered correctly, and the loss from taking the
    predicted best of each group of three or more."""

    pairs: int
    right: int
    groups: int
    regret: float
    worst: float


def ranking(found: Errors) -> Ranking:
    """Rank layouts of one page, model, chip, number of GPUs, sequence length and precision by tokens per second."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, row in enumerate(found.rows):
        key = (row.source, row.shape, row.chip, row.gpus, row.seq, row.policy, row.note)
        groups.setdefault(key, []).append(i)
    pairs = right = 0
    losses: list[float] = []
    for members in groups.values():
        rate = {i: (found.rows[i].global_batch or 1) / found.seconds[i] for i in members}
        guess = {i: rate[i] / np.exp(found.out[i]) for i in members}
        for i, j in itertools.combinations(members, 2):
            if same_configuration(found.rows[i], found.rows[j]) or abs(rate[i] / rate[j] - 1) <= 0.03:
                continue
            pairs += 1
            right += (rate[i] > rate[j]) == (guess[i] > guess[j])
        if len(members) >= 3:
            chosen = max(members, key=lambda i: guess[i])
            losses.append(1 - rate[chosen] / max(rate.values()))
    return Ranking(pairs, right, len(losses), float(np.mean(losses or [0])), max(losses, default=0.0))


def with_own_factor(log_errors: Floats, held_out: bool) -> Floats:
    """Return the errors after one factor for the entire group; `held_out`: a row is not used for its own factor."""
    if not held_out:
        return log_errors - np.median(log_errors)
    return np.array([e - np.median(np.delete(log_errors, i)) for i, e in enumerate(log_errors)])

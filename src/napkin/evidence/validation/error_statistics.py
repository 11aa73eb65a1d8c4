"""Statistics of prediction errors and of interval coverage."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from napkin.evidence.intervals.ranking import nearest_rank
from napkin.evidence.validation.compared import Compared
from napkin.record import record


@record
class ErrorStatistics:
    """Errors of several predictions, relative to the measurements.

    median, mean, p90  of the absolute errors         bias      median of the signed errors
    coverage           share of the intervals that hold the measurement, or None if no row has an interval
    """

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    coverage: float | None


@record
class Coverage:
    """How often intervals hold what was measured, every group of sources weighing the same.

    covered  the share; error  its standard error, 0 of a single group      width  ends over the prediction, the median
    """

    rows: int
    groups: int
    covered: float
    error: float
    width: float


def coverage_of(compared: Sequence[Compared]) -> Coverage:
    """Return the coverage of rows that have an interval and a measurement."""
    each = [statistics.fmean(bool(one.covered) for one in group) for group in by_group(compared).values()]
    error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else 0.0
    width = statistics.median(math.sqrt((one.high or 1.0) / (one.low or 1.0)) for one in compared)
    return Coverage(len(compared), len(each), statistics.fmean(each), error, width)


def errors_of(compared: Sequence[Compared]) -> ErrorStatistics:
    """Return the statistics of rows that are predicted and measured."""
    signed = [one.error or 0.0 for one in compared]
    absolute = [abs(error) for error in signed]
    covered = [one.covered for one in compared if one.covered is not None]
    return ErrorStatistics(
        rows=len(compared),
        median=statistics.median(absolute),
        mean=statistics.fmean(absolute),
        p90=nearest_rank(absolute, 0.9),
        bias=statistics.median(signed),
        coverage=sum(covered) / len(covered) if covered else None,
    )


def by_quantity(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Return the rows that statistics count, by quantity: predicted, measured and not suspect."""
    groups: dict[str, list[Compared]] = {}
    for one in compared:
        if one.error is not None and not one.suspect:
            groups.setdefault(one.quantity, []).append(one)
    return groups


def by_group(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Return rows by the group of sources that they belong to."""
    groups: dict[str, list[Compared]] = {}
    for one in compared:
        groups.setdefault(one.group, []).append(one)
    return groups


def time_factor(compared: Sequence[Compared]) -> tuple[float, float]:
    """Return the median of measured over predicted step time, and the median absolute error once it is applied."""
    gaps = [_log_gap(one) for one in compared]
    factor = math.exp(statistics.median(gaps))
    return factor, statistics.median(abs(math.expm1(math.log(factor) - gap)) for gap in gaps)


def _log_gap(one: Compared) -> float:
    """Return ln measured − ln predicted of the step time, whatever quantity the row states."""
    gap = math.log((one.measured or 1.0) / (one.predicted or 1.0))
    return gap if one.quantity == "step_seconds" else -gap

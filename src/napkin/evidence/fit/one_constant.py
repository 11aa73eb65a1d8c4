"""The posterior of one constant that affects only fine-tuning, with every other constant fixed: a prior, and rows whose
steps it lengthens.

    cost(ln c) = ((ln c − ln prior)/σ_prior)²/2 + Σ_sources min over u of (Σ_rows w·ρ((gap(c) − u)/σ) + ρ(u/τ))

with ρ, w, σ, τ and the factor u of a source as in posterior.py. Integrated on a grid: gaps have a kink where host time
exceeds device time, so no quadratic form fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from napkin.evidence.fit.posterior import HEAVIEST, KNEE, ROW_SPREAD, SOURCE_KNEE, SOURCE_SPREAD, huber

REACH, POINTS = 3.0, 61
"""σ of the prior on both sides, and the points of the grid there."""
SHIFTS = tuple(0.01 * step for step in range(-25, 26))
"""Values of u that are tried, as ln t."""

Gaps = Callable[[float], Mapping[str, Sequence[float]]]
"""A constant's value → ln predicted − ln measured of each row, by source."""


def posterior(prior: float, spread: float, gaps: Gaps) -> tuple[float, float]:
    """Return the constant's value and the σ of its logarithm: mean and deviation over the grid."""
    logs = [math.log(prior) + spread * REACH * (2 * i / (POINTS - 1) - 1) for i in range(POINTS)]
    costs = [((log - math.log(prior)) / spread) ** 2 / 2 + _misfit(gaps(math.exp(log))) for log in logs]
    shares = [math.exp(min(costs) - cost) for cost in costs]
    mean = sum(share * log for share, log in zip(shares, logs, strict=True)) / sum(shares)
    variance = sum(share * (log - mean) ** 2 for share, log in zip(shares, logs, strict=True)) / sum(shares)
    return math.exp(mean), math.sqrt(variance)


def _misfit(by_source: Mapping[str, Sequence[float]]) -> float:
    """Return the cost of all rows."""
    return sum(min(_with_factor(gaps, shift) for shift in SHIFTS) for gaps in by_source.values())


def _with_factor(gaps: Sequence[float], shift: float) -> float:
    """Return the cost of a source's rows once its own factor is taken off."""
    weight = min(HEAVIEST, 2 * HEAVIEST / math.sqrt(len(gaps)))
    rows = huber((np.array(gaps) - shift) / ROW_SPREAD, KNEE).sum()
    return float(weight * rows + huber(np.array([shift / SOURCE_SPREAD]), SOURCE_KNEE).sum())

"""Statistics of repeated measurements: pure functions of lists of numbers, without torch and without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from napkin.inputs.profile_cases import RepetitionSpread

# hyperfine's rule: a value is an outlier when its modified z-score |x − median| / (1.4826 · MAD) exceeds 10. The factor
# 1.4826 makes the median absolute deviation of a normal distribution equal to its standard deviation.
MAD_TO_SIGMA = 1.4826
OUTLIER_SIGMAS = 10.0

STEADY_DRIFT = 0.01  # second half against first half of a window
STEADY_SPREAD = 0.10  # (largest − smallest) / median of the sub-windows
NOISY_RATIO = 1.15  # p90/p10 of the blocks of one case: beyond it something else was running
ANCHOR_SPREAD = 0.03  # the same shape timed again and again during a search


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie, interpolated linearly between order statistics."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Sequence[float]) -> float:
    """Return the middle value, interpolated between two if their number is even."""
    return quantile(values, 0.5)


def outliers(values: Sequence[float]) -> int:
    """Return the number of values more than ten robust standard deviations from the median."""
    middle = median(values)
    deviation = median([abs(value - middle) for value in values]) * MAD_TO_SIGMA
    if deviation == 0.0:
        return 0  # more than half of the values are equal: the rule says nothing
    return sum(abs(value - middle) / deviation > OUTLIER_SIGMAS for value in values)


def spread(values: Sequence[float]) -> RepetitionSpread:
    """Return the figure's spread over its repetitions."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return RepetitionSpread(
        median=median(values),
        p10=quantile(values, 0.1),
        p90=quantile(values, 0.9),
        min=min(values),
        max=max(values),
        mean=mean,
        cv=variance**0.5 / mean if mean else 0.0,
        blocks=len(values),
        outliers=outliers(values),
    )


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Whether a clock has settled, over successive sub-windows."""

    drift: float  # rate of the second half / rate of the first half − 1
    spread: float  # (max − min) / median over the sub-windows
    steady: bool


def steadiness(rates: Sequence[float]) -> Steadiness:
    """Say whether the clock has settled; `rates` are of successive equal sub-windows under constant load."""
    half = len(rates) // 2
    if half == 0:
        raise ValueError("steadiness needs two sub-windows")
    first, second = rates[:half], rates[-half:]
    drift = (sum(second) / half) / (sum(first) / half) - 1.0
    width = (max(rates) - min(rates)) / median(rates)
    return Steadiness(drift, width, abs(drift) <= STEADY_DRIFT and width <= STEADY_SPREAD)


def noisy(values: Sequence[float]) -> bool:
    """Say whether blocks of one case differ too much to have been alone on the device."""
    return quantile(values, 0.9) > NOISY_RATIO * quantile(values, 0.1)


def relative_spread(values: Sequence[float]) -> float:
    """Return (largest − smallest) / median; 0 for fewer than two values."""
    return (max(values) - min(values)) / median(values) if len(values) > 1 else 0.0

"""The ratio of published reinforcement learning steps to their counted time, and its spread: the correction and the
interval of a step's prediction.

Only one factor is fitted: the mean over models, with equal weights.
A row is predicted and judged only with the rows of other sources; versions of one page are one source."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin._tables import rollout_errors
from napkin._tables.rollout_errors import STEPS
from napkin.term import SEEN, Term, leaf


def spread_alone(deviations: float, without: str = "") -> float:
    """Return how far the logarithm of a pass without gradients may be from what is counted of it, next to that of an
    update, in a run of one more page: as pages differ from it. deviations: of a normal spread at the confidence level;
    without: a source that is held out."""
    pages = _by_page(without)
    return of_few(deviations, len(pages)) * math.sqrt(_mean([one**2 for one in pages]))


def _by_page(without: str) -> list[float]:
    """Return the logarithm of measured over counted log-probabilities, next to an update's, the mean of each page."""
    by_page: dict[str, list[float]] = {}
    for _, source, error in rollout_errors.PASSES:
        if page(source) != page(without):
            by_page.setdefault(page(source), []).append(-error)
    return [_mean(rows) for rows in by_page.values()]


def slower(without: str = "") -> Term:
    """Return how many times what is counted of it a step takes: responses of uneven lengths, sampling and scheduling,
    rewards and data come on top. without: a source that is held out."""
    factor = math.exp(_mean([_mean(errors) for errors in _by_model(without)]))
    return leaf("rollout/slower", factor, "1", SEEN, "published steps of reinforcement learning, the mean over models")


def spread(deviations: float, without: str = "") -> float:
    """Return how far ln(measured / predicted) of a step of one more model may be from 0: as models differ, and as steps
    of one model do. deviations: of a normal spread at the confidence level; without: a source that is held out."""
    models = _by_model(without)
    means = [_mean(errors) for errors in models]
    middle = _mean(means)
    between = sum((one - middle) ** 2 for one in means) / (len(means) - 1)
    squares = sum((one - mean) ** 2 for errors, mean in zip(models, means, strict=True) for one in errors)
    within = squares / max(sum(len(errors) - 1 for errors in models), 1)
    return of_few(deviations, len(means)) * math.sqrt(between * (1 + 1 / len(means)) + within)


def _by_model(without: str) -> list[list[float]]:
    """Return ln(measured / counted) of the steps of each model."""
    by_model: dict[str, list[float]] = {}
    for _, source, model, error in STEPS:
        if page(source) != page(without):
            by_model.setdefault(model, []).append(-error)
    return list(by_model.values())


def with_others(value: float, ends: tuple[float, float], others: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a value that is off by a factor within `ends`, and that would be one of `others` with the
    least and the most of what is assumed: errors of two origins, whose logarithms add as squares."""
    low, high = (abs(math.log(end)) for end in ends)
    off = [math.log(one / value) for one in others]
    below, above = -min(off, default=0.0), max(off, default=0.0)
    return value * math.exp(-math.hypot(low, max(below, 0.0))), value * math.exp(math.hypot(high, max(above, 0.0)))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def page(source: str) -> str:
    """Return a source's title without its version."""
    title, _, version = source.rpartition(", v")
    return title if version[:1].isdigit() else source


def of_few(deviations: float, count: int) -> float:
    """Return Student's t for as many values whose normal quantile is `deviations` (Abramowitz and Stegun 26.7.5, within
    2 % from three values on)."""
    z, free = deviations, count - 1
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


def said() -> str:
    """Return a note on the basis of such a prediction."""
    sources = sorted({page(source) for _, source, _, _ in STEPS})
    models = len({model for _, _, model, _ in STEPS})
    return (
        f"times include a factor of {float(slower().value):.1f}: {len(STEPS)} published steps of {models} models took "
        f"this many times what is counted of them ({', '.join(sources)}); the interval is assumed from how they differ"
    )

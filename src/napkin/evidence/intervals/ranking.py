"""All quantile rules for errors of the evidence. No numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ROUNDING = 1e-9
"""A sum of weights that falls short of the level by less falls short by rounding alone."""


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the smallest value at or below which `share` of the values lie."""
    return weighted_quantile(((value, 1.0) for value in values), share)


def weighted_quantile(pairs: Iterable[tuple[float, float]], level: float) -> float:
    """Return the smallest value at or below which `level` of the weight lies, of (value, weight)."""
    ranked = sorted(pairs)
    wanted, total = level * sum(weight for _, weight in ranked) * (1 - ROUNDING), 0.0
    for value, weight in ranked:
        total += weight
        if total >= wanted:
            return value
    return ranked[-1][0]


def over_sources(scores: Iterable[tuple[str, float]], level: float) -> float:
    """Return the smallest score at or below which a share `level` lies, with equal weight for each source."""
    groups: dict[str, list[float]] = {}
    for source, score in scores:
        groups.setdefault(source, []).append(score)
    return weighted_quantile(((score, 1 / len(members)) for members in groups.values() for score in members), level)


def conformal(errors: Sequence[tuple[str, float]], level: float) -> float:
    """Return the smallest width that covers `level` of further runs like these, of (source, error), each source
    weighing the same: of one source, the ⌈level·(n + 1)⌉-th error (split conformal prediction)."""
    return over_sources(errors, min(level * (len(errors) + 1) / len(errors), 1.0))

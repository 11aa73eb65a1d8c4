"""All quantile rules for errors of the evidence. No numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Scored = tuple[str, float]
"""A source, and how far off one of its runs was."""
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


def over_sources(scores: Iterable[Scored], level: float, others: Iterable[Scored] = ()) -> float:
    """Return the smallest score at or below which a share `level` lies, with equal weight for each source.

    others: scores of runs that are less alike, whose sources together weigh as one more. Errors within a source are not
    independent: a single one does not tell how far off the next will be."""
    alike, beside = _by_source(scores), _by_source(others)
    weighted = [(one, 1.0) for one in alike] + [(one, 1 / len(beside)) for one in beside]
    return weighted_quantile(((score, each / len(one)) for one, each in weighted for score in one), level)


def _by_source(scores: Iterable[Scored]) -> list[list[float]]:
    """Return the scores of each source."""
    groups: dict[str, list[float]] = {}
    for source, score in scores:
        groups.setdefault(source, []).append(score)
    return list(groups.values())

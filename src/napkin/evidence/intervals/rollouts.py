"""The ratio of published reinforcement learning steps to their counted time, and the interval of such times.

Only one factor is fitted, the median over sources of whole steps, which a run with a fault does not move: phases are as
much longer than counted, on their own.
A source is judged by the steps of others; versions of one page are one source."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cache
from statistics import median

from napkin._tables import rollout_errors
from napkin.evidence.intervals.ranking import over_sources
from napkin.term import SEEN, Term, leaf

STEP = "step"
EVERY = "every source"
"""In place of a source that is held out: all are, and nothing is added to what is counted."""


def slower(without: str = "") -> Term:
    """Return how many times what is counted of it a step takes: responses of uneven lengths, sampling and scheduling,
    rewards and data come on top. without: a source that is held out."""
    factor = 1.0 if without == EVERY else math.exp(_longer({page(without)}))
    return leaf(
        "rollout/slower", factor, "1", SEEN, "published steps of reinforcement learning, the median over sources"
    )


@cache
def half_width(level: float, without: str = "") -> float:
    """Return how far ln(measured / predicted) of a step or a phase of a run of one more source may be from 0: the
    level's quantile of errors of published steps and phases, every source weighing the same and predicted from the
    others' steps. A quantile for each phase rests on too few sources. without: a source that is held out as well."""
    held = page(without)
    seen = [(page(source), error, work) for _, source, _, error, work in rollout_errors.SEEN if page(source) != held]
    factors = {source: _longer({source, held}) for source in {source for source, *_ in seen}}
    return over_sources(((source, abs(error + _added(factors[source], work))) for source, error, work in seen), level)


def _added(factor: float, work: float) -> float:
    """Return ln(predicted / counted) of a step or a phase. work: the share of what is counted that the factor makes
    longer; the rest waits for the host, which launches no slower."""
    return factor if work >= 1 else max(factor + math.log(work), 0.0)


def _longer(without: Collection[str]) -> float:
    """Return the median over pages of ln(measured / counted) of whole steps."""
    by_page: dict[str, list[float]] = {}
    for _, source, quantity, error, _ in rollout_errors.SEEN:
        if quantity == STEP and page(source) not in without:
            by_page.setdefault(page(source), []).append(-error)
    return median(_mean(errors) for errors in by_page.values())


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


def said() -> str:
    """Return a note on the basis of such a prediction."""
    seen = rollout_errors.SEEN
    steps = sum(quantity == STEP for _, _, quantity, *_ in seen)
    sources = len({page(source) for _, source, *_ in seen})
    return (
        f"times include a factor of {float(slower().value):.1f}: {steps} published steps took this many times what is "
        f"counted of them; the interval is that of {len(seen)} published steps and phases of {sources} sources"
    )

"""Errors of serving predictions on published rows whose entire source was held out.

The interval of a quantity is that of errors of its kind: of the time of a token (decode), of a prompt (prefill), of
rates of many requests (throughput), of what the cache holds (cache) and of the weights' size (weights). Every source
has the same weight. The classes of evidence are:

    measured          another source measured this family of engines
    engine unknown    no other source measured it
    chip unknown      no other source measured a chip of this generation
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from napkin.evidence.intervals.ranking import over_sources
from napkin.evidence.serving.generation import UNKNOWN
from napkin.record import record

MEASURED, ENGINE_UNKNOWN, CHIP_UNKNOWN = "measured", "engine unknown", "chip unknown"
KINDS = (
    ("decode", ("decode", "tpot", "itl")),
    ("prefill", ("prefill", "ttft")),
    ("cache", ("kv_cache",)),
    ("weights", ("weights",)),
)
"""Kind of a quantity → prefixes of its keys; all others are throughput."""
SPEEDS = ("decode", "prefill", "throughput")
FROM_AN_ENGINE = (*SPEEDS, "cache")
"""Kinds that depend on what an engine does."""
FEWEST = 5
"""Minimum number of sources for a kind's own quantile."""
FLOOR = 0.02


@record
class SeenServing:
    """A figure of the evidence: ln(predicted / measured) with its source held out."""

    source: str
    kind: str
    engine: str
    generation: str
    error: float


def kind_of_quantity(name: str) -> str:
    """Return the kind of a quantity by its key."""
    return next((kind for kind, begins in KINDS if name.startswith(begins)), "throughput")


@cache
def class_of(engine: str, generation: str, without: str = "") -> str:
    """Return which evidence a prediction rests on; without: a source that is held out."""
    seen = [one for one in rows() if one.source != without]
    if all(one.generation != generation for one in seen):
        return CHIP_UNKNOWN
    known = engine != UNKNOWN and any(one.engine == engine for one in seen)
    return MEASURED if known else ENGINE_UNKNOWN


@cache
def half_width(quantity: str, rests: str, level: float, without: str = "") -> float:
    """Return half the width of a quantity's interval in ln: the level's quantile of the errors of its kind on rows that
    rest on the same class of evidence. Where few sources tell it, as of the cache, no less than that of all kinds of
    speed there."""
    kind = kind_of_quantity(quantity)
    others = [one for one in rows() if one.source != without]
    if kind not in FROM_AN_ENGINE:
        return _quantile([one for one in others if one.kind == kind], level)
    speeds = [one for one in others if one.kind in SPEEDS]
    like = [one for one in speeds if class_of(one.engine, one.generation, one.source) == rests] or speeds
    own = [one for one in (like if kind in SPEEDS else others) if one.kind == kind]
    if len({one.source for one in own}) >= FEWEST:
        return _quantile(own, level)
    return max(_quantile(own, level), _quantile(like, level))


def _quantile(seen: Sequence[SeenServing], level: float) -> float:
    """Return the level's quantile of errors, every source weighing the same."""
    return max(over_sources(((one.source, abs(one.error)) for one in seen), level), FLOOR) if seen else FLOOR


_ROWS: list[SeenServing] = []


def rows() -> list[SeenServing]:
    """Return the figures of the evidence."""
    if not _ROWS:
        from napkin._tables import serving_shares as table

        _ROWS.extend(SeenServing(*one) for one in table.SEEN)
    return _ROWS


def source_key(title: str) -> str:
    """Return the source of the evidence that a page belongs to, "" for another one."""
    from napkin._tables import serving_shares as table

    return next((key for key, begins in table.TITLES.items() if title.startswith(begins)), "")

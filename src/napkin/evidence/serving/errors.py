"""Errors of serving predictions on published rows whose entire source was held out.

The interval of what an engine does (the time of a token or of a prompt, rates of many requests, what the cache holds)
is that of errors on the same class of evidence, every source weighing the same; that of the weights' size has errors of
its own. A quantile for each of these quantities rests on too few sources. The classes of evidence are:

    measured          another source measured this family of engines
    engine unknown    no other source measured it
    chip unknown      no other source measured a chip of this generation
"""

from __future__ import annotations

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
WEIGHTS = "weights"
"""The kind that does not depend on what an engine does."""
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
    """Return half the width of a quantity's interval in ln, by the class of evidence that it rests on: of one that is
    less known, no less than where the engine was measured. without: a source that is held out."""
    sizes = kind_of_quantity(quantity) == WEIGHTS
    classes: dict[str, list[tuple[str, float]]] = {}
    for one in rows():
        if one.source != without and (one.kind == WEIGHTS) == sizes:
            known = MEASURED if sizes else class_of(one.engine, one.generation, one.source)
            classes.setdefault(known, []).append((one.source, abs(one.error)))
    return max(FLOOR, *(over_sources(classes[one], level) for one in {rests, MEASURED} & classes.keys()))


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

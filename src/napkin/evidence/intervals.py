"""How far off a prediction may be: the errors on published steps whose entire source was held out.

Errors of one source are not independent, so every source weighs the same. The error grows with the distance to the
evidence: |ln error| ≈ s(d) = base + slope·d (+ more for experts), and the interval is ×/÷ exp(q·s(d)) with q the
quantile of |ln error|/s(d) over sources. Multiplicative, because errors are as often ×1.2 as ÷1.2.

q is that of the rows that rest on the same class of evidence, each with its own source held out:

    measured   another source measured this software on such chips
    described  the software's code is described (software.py); no other source measured it there
    unknown    the software is not known
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from napkin.evidence.ranking import over_sources
from napkin.record import record


@record
class RunPoint:
    """What makes two runs alike. params, seq and gpus as natural logarithms."""

    generation: str
    stack: str
    experts: bool
    bits: int
    params: float
    seq: float
    gpus: float


MEASURED, DESCRIBED, UNKNOWN = "measured", "described", "unknown"
CLASSES = (MEASURED, DESCRIBED, UNKNOWN)
FEWEST = 5
"""Sources below which a class does not tell its own quantile: it is no smaller than that of all rows."""
LN_8, LN_10, LN_20 = math.log(8), math.log(10), math.log(20)


def distance(a: RunPoint, b: RunPoint) -> float:
    """Return the root of a sum of squares in which differences count as follows.

    Another architecture, model type or tenfold size is 1; another stack or number format is ½; a factor of 8 in
    sequence length and of 20 in the number of GPUs are 1."""
    total = ((a.params - b.params) / LN_10) ** 2 + ((a.seq - b.seq) / LN_8) ** 2 + ((a.gpus - b.gpus) / LN_20) ** 2
    total += (a.generation != b.generation) + (a.experts != b.experts)
    total += 0.25 * (a.stack != b.stack) + 0.25 * (a.bits != b.bits)
    return math.sqrt(total)


def point(generation: str, stack: str, experts: bool, bits: int, params: float, seq: float, gpus: float) -> RunPoint:
    """Return the point of a run: its categories, and logarithms of parameters, sequence length and GPUs."""
    return RunPoint(generation, stack, experts, bits, math.log(params), math.log(seq), math.log(gpus))


@record
class SeenStep:
    """One row of the evidence: where it lies, and the logarithm of predicted over measured with its source held out.

    far: its distance to the nearest row of another source"""

    id: str
    source: str
    at: RunPoint
    error: float
    far: float


@record
class Growth:
    """s(d) = base + slope·d + experts for mixture-of-experts models."""

    base: float
    slope: float
    experts: float

    def at(self, far: float, experts: bool) -> float:
        return self.base + self.slope * far + (self.experts if experts else 0.0)


def nearest(at: RunPoint, seen: Iterable[SeenStep], count: int = 3, without: str = "") -> list[tuple[float, SeenStep]]:
    """Return the rows most like a run, nearest first, at most one for each source and model size."""
    ranked = sorted(((distance(at, one.at), one) for one in seen if one.source != without), key=lambda pair: pair[0])
    chosen: list[tuple[float, SeenStep]] = []
    for far, one in ranked:
        if all((one.source, one.at.params) != (other.source, other.at.params) for _, other in chosen):
            chosen.append((far, one))
        if len(chosen) == count:
            break
    return chosen


def class_of(at: RunPoint, seen: Iterable[SeenStep], without: str = "") -> str:
    """Return which evidence a prediction rests on; without: a source that is held out."""
    if at.stack == UNKNOWN:
        return UNKNOWN
    same = any(one.source != without and (one.at.stack, one.at.generation) == (at.stack, at.generation) for one in seen)
    return MEASURED if same else DESCRIBED


def classes(seen: Sequence[SeenStep]) -> list[str]:
    """Return the class of each row with its own source held out."""
    known: dict[tuple[str, str, str], str] = {}
    for one in seen:
        key = (one.source, one.at.stack, one.at.generation)
        if key not in known:
            known[key] = class_of(one.at, seen, one.source)
    return [known[one.source, one.at.stack, one.at.generation] for one in seen]


def quantile(level: float, seen: Sequence[SeenStep], growth: Growth, without: str = "", kind: str = "") -> float:
    """Return the level's quantile of |error|/s, every source weighing the same; kind: of that class of evidence, where
    enough sources tell it."""
    every, own = [], []
    for one, of in zip(seen, classes(seen) if kind else [""] * len(seen), strict=True):
        if one.source != without:
            score = (one.source, abs(one.error) / growth.at(one.far, one.at.experts))
            every.append(score)
            if of == kind:
                own.append(score)
    if not kind:
        return over_sources(every, level)
    whole, part = over_sources(every, level), over_sources(own, level) if own else 0.0
    return part if len({source for source, _ in own}) >= FEWEST else max(whole, part)

"""Errors of the memory formulas on published rows, each source weighing the same, by what an interval rests on.

measured     rows of the framework measured this figure: the errors on such rows of all measured frameworks
described    its code is described: the errors on held-out frameworks, each framework's rows predicted as if it were
not named (frameworks.py, unnamed)
unknown      the same, with sources on unknown code (PaddlePaddle) and on a compiler's plan (OneFlow)
fine-tuning  how far published runs of fine-tuning lie outside the ends of the formulas"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from napkin._tables import memory_errors as table
from napkin.evidence.intervals.ranking import over_sources
from napkin.formats import COMPUTE_BITS
from napkin.record import record
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.setup import Width

FLOOR = 0.002
"""Minimum interval width, because printed figures have three digits."""
FIGURES = ("memory_allocated", "memory_reserved", "memory_used")
LEVEL = 0.9


@record
class Margin:
    """Ends over the prediction, and of how many published rows of the framework they are; 0: it was never measured."""

    low: float
    high: float
    rows: int


def margin(framework: str, quantity: str, level: float = LEVEL, without: str = "") -> Margin | None:
    """Return the confidence level's quantile of the errors on a framework's rows of a figure, each source weighing the
    same, and those of other measured frameworks together as one more. A compiler's plan is unlike torch: those do not
    count there.

    None where no row measured the framework's figure. The errors of the source `without` are held out."""
    alike = [(source, ran, abs(error)) for _, source, ran, figure, error in table.ERRORS if figure == quantity]
    rows = sum(ran == framework for _, ran, _ in alike)
    kept = [one for one in alike if one[0] != without]
    own = [(source, error) for source, ran, error in kept if ran == framework]
    others = [(source, error) for source, ran, error in kept if _is_torch(ran) and ran != framework]
    others = others if _is_torch(framework) else []
    if not rows or not (own or others):
        return None
    half = max(over_sources(own, level, others), FLOOR)
    return Margin(math.exp(-half), math.exp(half), rows)


NONE = Margin(1.0, 1.0, 0)
"""No margin: the ends of a prediction have it already."""


def nearest(framework: str, level: float = LEVEL, without: str = "") -> Margin | None:
    """Return the same of the figure nearest to live bytes that rows of the framework measured, if any."""
    found = (margin(framework, figure, level, without) for figure in FIGURES)
    return next((one for one in found if one is not None), None)


@cache
def never_seen() -> Margin:
    """Return the same for an unmeasured framework whose flags are all stated: errors on the frameworks' rows that
    say what is recomputed, as if the framework were not named."""
    return _margin(((name, abs(error)) for _, name, says, error, _ in table.UNNAMED if says and _is_torch(name)), LEVEL)


def outside(level: float = LEVEL, without: str = "", known: bool = True) -> Margin:
    """Return how far rows lie outside the ends of what an unnamed framework may do. `without`: a framework, or the
    source of one that is not known, that is held out. known: the code in question is."""
    return _margin(
        (
            (name, beyond)
            for _, name, _, _, beyond in table.UNNAMED
            if name != without and (_is_torch(name) or not known)
        ),
        level,
    )


def _is_torch(name: str) -> bool:
    """Return whether a source of errors is a framework whose code is known and whose memory torch's allocator holds."""
    return name in FRAMEWORKS and not FRAMEWORKS[name].planned


def _margin(errors: Iterable[tuple[str, float]], level: float) -> Margin:
    half = max(over_sources(errors, level), FLOOR)
    return Margin(math.exp(-half), math.exp(half), 0)


@cache
def tuned(name: str = "", level: float = LEVEL, without: tuple[str, str] = ("", "")) -> Margin:
    """Return how far memory of fine-tuning lies outside the ends of the formulas and the allocator, and how many of the
    rows ran on that framework.

    Sources on frameworks that others measured, and on a plain loop around counted code, lie as far outside as all do.
    without: title and thread of a source that is held out."""
    from napkin._tables.tuning_memory_errors import OUTSIDE

    title, thread = without
    rows = [one for one in OUTSIDE if one[1] != title and not (thread and one[2] == thread)]
    found = _margin(((source, beyond) for _, source, _, _, beyond in rows), level)
    return Margin(found.low, found.high, sum(framework == name for *_, framework, _ in rows))


@record
class Asked:
    """What a step trains, as far as its interval depends on it.

    tunes    adapters are trained, or a step is not the framework's own of pretraining: it has another loss or other
             models, or a library runs it
    compute  the format of matmuls, which not every framework's rows have
    without  title and thread of a source that is held out
    """

    tunes: bool = False
    compute: str = "bf16"
    without: tuple[str, str] = ("", "")


_WIDTHS: dict[tuple[str, Asked], tuple[tuple[Width, Width], tuple[Width, Width]]] = {}
"""Cache by framework and what is asked, because a question evaluates many setups of one."""


def widths_of(name: str, asked: Asked = Asked()) -> tuple[tuple[Width, Width], tuple[Width, Width]]:  # noqa: B008
    """Return the widths of a framework's steps on one GPU and on several, counted on the implementation and not."""
    key = name, asked
    if key not in _WIDTHS:
        alone, several = (
            (width_of(name, asked, one, True), width_of(name, asked, one, False)) for one in (True, False)
        )
        _WIDTHS[key] = alone, several
    return _WIDTHS[key]


def width_of(name: str, asked: Asked, alone: bool, counted: bool) -> Width:
    """Return how far the figures of a step of that framework can be from the formulas. `counted`: what is saved for
    backward was counted on the implementation itself."""
    low = COMPUTE_BITS.get(asked.compute, 16) < 16 and name not in table.LOW
    if asked.tunes and not low:
        from napkin._tables.tuning_memory_errors import OUTSIDE

        beyond = tuned(name, without=asked.without)
        sources = len({source for _, source, *_ in OUTSIDE if source != asked.without[0]})
        ran = f"{beyond.rows} of their figures on {name}" if beyond.rows else f"none of them on {name}"
        says = f"how far published fine-tuning runs of {sources} sources lay outside the formulas, {ran}"
        return Width((beyond.low - 1, beyond.high - 1), rows=beyond.rows, says=says)
    figures = () if low else FIGURES
    measured = {figure: found for figure in figures if (found := margin(name, figure)) is not None}
    if measured:
        nearest = next(iter(measured.values()))
        ends = tuple((f"memory/{f.removeprefix('memory_')}", one.low, one.high) for f, one in measured.items())
        rows = sum(one.rows for one in measured.values())
        words = f"checked against {rows} published rows of {name}"
        return Width((nearest.low - 1, nearest.high - 1), ends, rows, words)
    if name == PLAIN.name and alone and counted:
        return Width(says="one GPU, a loop around counted code: the allocator's part, and how far traced steps lay")
    unseen = never_seen()
    lacks = f"{asked.compute} matmuls of {name}" if low else name
    name = "a plain loop around torch" if name == PLAIN.name else lacks
    return Width(
        (unseen.low - 1, unseen.high - 1),
        says=f"no published row measured {name}: the errors on frameworks that were left out",
    )

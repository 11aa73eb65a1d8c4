"""Errors of the memory formulas on published rows: by framework, by one or several GPUs, by figure.

A framework with enough measured rows has the errors on those rows. Every other has the errors on held-out frameworks:
each framework's rows, predicted as if it were not named (frameworks.py, unnamed). A framework with unknown code also
has those of sources on such frameworks (PaddlePaddle), and of a compiler's plan (OneFlow), which is unlike torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from napkin._tables import memory_errors as table
from napkin._tables.tuning_memory_errors import OUTSIDE
from napkin.evidence.intervals.ranking import conformal, over_sources
from napkin.formats import COMPUTE_BITS
from napkin.record import record
from napkin.training.frameworks import FRAMEWORKS, PLAIN
from napkin.training.setup import Width

FEWEST = 5
"""Rows of a framework from which its own spread is used; with fewer, that of held-out frameworks."""
FLOOR = 0.002
"""Minimum interval width, because printed figures have three digits."""
FIGURES = ("memory_allocated", "memory_reserved", "memory_used")
LEVEL = 0.9
SOURCES = len({source for _, source, *_ in OUTSIDE})
"""Of fine-tuning runs."""


@record
class Margin:
    """Ends over the prediction, and of how many published rows of the framework they are; 0: it was never measured."""

    low: float
    high: float
    rows: int


def margin(framework: str, alone: bool, quantity: str, level: float = LEVEL, without: str = "") -> Margin | None:
    """Return the confidence level's quantile of the errors on a framework's rows of a figure, on one GPU or several,
    each source weighing the same.

    The row `without` is held out. None where too few rows measured it."""
    errors = [
        (source, abs(error))
        for name, source, *kind, error in table.ERRORS
        if kind == [framework, alone, quantity] and name != without
    ]
    if len(errors) < FEWEST:
        return None
    half = max(conformal(errors, level), FLOOR)
    return Margin(math.exp(-half), math.exp(half), len(errors))


NONE = Margin(1.0, 1.0, 0)
"""No margin: the ends of a prediction have it already."""


def nearest(framework: str, alone: bool, level: float = LEVEL, without: str = "") -> Margin | None:
    """Return the same of the figure nearest to live bytes that enough of the framework's rows measured, if any."""
    found = (margin(framework, alone, figure, level, without) for figure in FIGURES)
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
def tuned(level: float = LEVEL, without: tuple[str, str] = ("", "")) -> Margin:
    """Return how far memory of fine-tuning lies outside the ends of the formulas and the allocator. without: title and
    thread of a source that is held out."""
    title, thread = without
    return _margin(
        ((source, beyond) for _, source, its, beyond in OUTSIDE if source != title and not (thread and its == thread)),
        level,
    )


@record
class Asked:
    """What a step trains, as far as its interval depends on it.

    adapted  adapters are trained, and compute is the format of matmuls, which not every framework's rows have
    tunes    a model that was trained before is trained further
    without  title and thread of a source that is held out
    """

    adapted: bool = False
    compute: str = "bf16"
    tunes: bool = False
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
    adapters = asked.adapted and name not in table.ADAPTED
    lacks = "adapters on" if adapters else f"{asked.compute} matmuls of" if low else ""
    figures = () if lacks else FIGURES
    measured = {figure: found for figure in figures if (found := margin(name, alone, figure)) is not None}
    if measured:
        nearest = next(iter(measured.values()))
        ends = tuple((f"memory/{f.removeprefix('memory_')}", one.low, one.high) for f, one in measured.items())
        rows = sum(one.rows for one in measured.values())
        words = f"checked against {rows} published rows of {name}"
        return Width((nearest.low - 1, nearest.high - 1), ends, rows, words)
    if name == PLAIN.name and alone and counted:
        return Width(says="one GPU, a loop around counted code: the allocator's part, and how far traced steps lay")
    where = "one GPU" if alone else "several GPUs"
    if (asked.adapted or asked.tunes) and not low:
        found = max(tuned(without=asked.without), never_seen(), key=lambda one: one.high)
        says = (
            f"how far published fine-tuning runs of {SOURCES} sources lay outside the formulas, at least as far as "
            f"frameworks that were left out"
        )
        return Width((found.low - 1, found.high - 1), says=says)
    found = never_seen()
    name = "a plain loop around torch" if name == PLAIN.name else f"{lacks} {name}".strip()
    return Width(
        (found.low - 1, found.high - 1),
        says=f"no published row measured {name} on {where}: the errors on frameworks that were left out",
    )

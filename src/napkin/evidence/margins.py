"""Errors of the memory formulas on published rows: by framework, by one or several GPUs, by figure.

A framework with enough measured rows has the errors on those rows. Every other has the errors on held-out frameworks:
each framework's rows, predicted as if it were not named (frameworks.py, unnamed). A framework with unknown code also
has those of sources on such frameworks (OneFlow, PaddlePaddle)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from napkin._tables import memory_errors as table
from napkin.evidence.ranking import conformal, over_sources
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


@record
class Margin:
    """Ends over the prediction, and of how many published rows of the framework they are; 0: it was never measured."""

    low: float
    high: float
    rows: int


def margin(framework: str, alone: bool, quantity: str, level: float = LEVEL, without: str = "") -> Margin | None:
    """Return the confidence level's quantile of the errors on a framework's rows of a figure, on one GPU or several.

    The row `without` is held out. None where too few rows measured it."""
    errors = [
        abs(error) for name, *kind, error in table.ERRORS if kind == [framework, alone, quantity] and name != without
    ]
    if len(errors) < FEWEST:
        return None
    half = max(conformal(errors, level), FLOOR)
    return Margin(math.exp(-half), math.exp(half), len(errors))


@cache
def never_seen(level: float = LEVEL) -> Margin:
    """Return the same for an unmeasured framework whose flags are all stated: errors on the frameworks' rows that
    say what is recomputed, as if the framework were not named."""
    return _margin(
        ((name, abs(error)) for _, name, says, error, _ in table.UNNAMED if says and name in FRAMEWORKS), level
    )


def outside(level: float = LEVEL, without: str = "", known: bool = True) -> Margin:
    """Return how far rows lie outside the ends of what an unnamed framework may do. `without`: a framework, or the
    source of one that is not known, that is held out. known: the code in question is."""
    return _margin(
        (
            (name, beyond)
            for _, name, _, _, beyond in table.UNNAMED
            if name != without and (name in FRAMEWORKS or not known)
        ),
        level,
    )


def _margin(errors: Iterable[tuple[str, float]], level: float) -> Margin:
    half = max(over_sources(errors, level), FLOOR)
    return Margin(math.exp(-half), math.exp(half), 0)


_WIDTHS: dict[tuple[str, str], tuple[tuple[Width, Width], tuple[Width, Width]]] = {}
"""Cache by framework and what its rows lack, because a question evaluates many setups of one."""


def widths_of(
    name: str, adapted: bool = False, compute: str = "bf16"
) -> tuple[tuple[Width, Width], tuple[Width, Width]]:
    """Return the widths of a framework's steps on one GPU and on several, counted on the implementation and not.
    adapted, compute: adapters are trained, and the format of matmuls, which not every framework's rows have."""
    low = COMPUTE_BITS.get(compute, 16) < 16 and name not in table.LOW
    key = name, "adapters on" if adapted and name not in table.ADAPTED else f"{compute} matmuls of" if low else ""
    if key not in _WIDTHS:
        alone, several = ((width_of(key, one, True), width_of(key, one, False)) for one in (True, False))
        _WIDTHS[key] = alone, several
    return _WIDTHS[key]


def width_of(of: tuple[str, str], alone: bool, counted: bool) -> Width:
    """Return how far the figures of a step of that framework can be from the formulas. of: its name, and what its rows
    lack of this step; `counted`: what is saved for backward was counted on the implementation itself."""
    name, lacks = of
    asked = () if lacks else FIGURES
    measured = {figure: found for figure in asked if (found := margin(name, alone, figure)) is not None}
    if measured:
        nearest = next(iter(measured.values()))
        ends = tuple((f"memory/{f.removeprefix('memory_')}", one.low, one.high) for f, one in measured.items())
        rows = sum(one.rows for one in measured.values())
        words = f"checked against {rows} published rows of {name}"
        return Width((nearest.low - 1, nearest.high - 1), ends, rows, words)
    if name == PLAIN.name and alone and counted:
        return Width(says="one GPU, a loop around counted code: the allocator's part, and how far traced steps lay")
    found = never_seen()
    where = "one GPU" if alone else "several GPUs"
    name = "a plain loop around torch" if name == PLAIN.name else f"{lacks} {name}".strip()
    return Width(
        (found.low - 1, found.high - 1),
        says=f"no published row measured {name} on {where}: the errors on frameworks that were left out",
    )

"""Published memory against the memory model, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.errors import UNDECIDED, NapkinError
from napkin.evidence.intervals import margins
from napkin.evidence.intervals.steps import DESCRIBED, MEASURED, UNKNOWN
from napkin.evidence.rows.fields import accelerator_of, title_of
from napkin.evidence.rows.models import described
from napkin.evidence.rows.row import RowFields, WrongRow
from napkin.evidence.rows.setups import ends_of, framework_of
from napkin.evidence.rows.teams import source_of
from napkin.evidence.validation.compared import Compared
from napkin.evidence.validation.memory_readings import Figures, mean, readings
from napkin.inputs import hardware
from napkin.record import record, replace
from napkin.training.framework import Framework
from napkin.training.frameworks import MOST
from napkin.training.setup import Width

UNSTATED = "memory_unstated"
"""The quantity of a row that does not say which of the three figures it prints."""
ALLOCATORS = ("NVIDIA", "AMD")
"""Vendors whose accelerators use torch's caching allocator, which the figures describe."""


def quantity_of(row: RowFields) -> str:
    """Return the quantity that a row prints: memory_allocated, memory_reserved, memory_used or memory_unstated. Raises
    the row's error for other words."""
    what = row.text("memory.what") or "unstated"
    if what not in ("allocated", "reserved", "used", "unstated"):
        raise row.wrong("memory.what", "is none of allocated, reserved, used")
    return f"memory_{what}"


def printed_by(row: RowFields, named: Sequence[Framework]) -> str:
    """Return the quantity that a row's figure is: where the row does not say which, that which the scripts of its
    framework print, if they print a single one."""
    quantity, figures = quantity_of(row), {one.prints for one in named}
    figure = figures.pop() if quantity == UNSTATED and len(figures) == 1 else ""
    return f"memory_{figure}" if figure else quantity


def room_of(row: RowFields) -> float | None:
    """Return the bytes that the row's accelerator holds; None if it is not stated. A source's own words for it may be
    unknown, unless the question is whether the run fits. Raises NapkinError for accelerators whose allocator is not
    modeled."""
    name = accelerator_of(row)
    if not name:
        return None
    try:
        found = hardware.find(name)
    except NapkinError:
        if row.text("hardware.chip") or row.flag("memory.oom") is not None:
            raise
        return None
    if found.vendor not in ALLOCATORS:
        raise NapkinError(f"runs on {found.vendor}'s accelerators: their allocator is not modeled")
    return found.capacity


EXCEEDS = "takes more than its accelerator holds, and ran: what saves memory is not stated"


def is_judged(row: RowFields) -> bool:
    """Return whether a row says that the run was out of memory, or nothing of its memory but that it was not."""
    out = row.flag("memory.oom")
    return out is not None and (out or row.number("memory.bytes") is None)


@record
class Guess:
    """The readings of a row: the likely bytes, the ends over all readings, the least and the most used bytes, and the
    capacity of the accelerator if the run ran, because near it the allocator frees its cache."""

    value: float
    low: float
    high: float
    least: float
    most: float
    bound: float


def guess(
    row: RowFields, likely: Sequence[Framework], others: Sequence[Framework] = (), width: Width | None = None
) -> Guess:
    """Return the likely bytes under the frameworks `likely`, with ends that `others` widen. Raises NapkinError if a run
    that ran exceeds its accelerator."""
    room, model, quantity = room_of(row), described(row), printed_by(row, likely)
    first = [(one, readings(row, model, one, quantity, room, width)) for one in likely]
    rest = [(one, readings(row, model, one, quantity, room)) for one in others]
    drawn = bool(row.flag("memory.analytic"))
    bound = math.inf if room is None or drawn or is_judged(row) else room

    def possible(framework: Framework, found: Sequence[Figures]) -> list[Figures]:
        """Return the readings that fit, because a run that ran did not exceed its accelerator. Where none of the upper
        bound's does, that bound is the accelerator's capacity."""
        fit = [one for one in found if one.least <= bound]
        return fit or ([Figures(bound, bound, bound, bound, bound, bound)] if framework.name == MOST else [])

    every = [fit for one, found in (*first, *rest) for fit in possible(one, found.all)]
    points = [mean([one.value for one in fit]) for of, found in first if (fit := possible(of, found.likely))]
    if not points or all(one.least >= bound for one in every):
        raise NapkinError(EXCEEDS)
    most = max(one.used for one in every) if quantity == UNSTATED and not drawn else 0.0
    return Guess(
        min(mean(points), bound),
        min(one.low for one in every),
        max(*(one.high for one in every), most),
        min(one.least for one in every),
        max(one.most for one in every),
        bound,
    )


def compared(row: RowFields, level: float = margins.LEVEL) -> Compared:
    """Compare the quantity that the row prints, in bytes, and whether an out-of-memory run was predicted. A row with an
    invalid value is reported as such."""
    try:
        return _by_framework(row, level)
    except WrongRow as problem:
        return Compared(row.text("id"), UNSTATED, None, None, None, None, "", problem.message, wrong=True)


def _by_framework(row: RowFields, level: float) -> Compared:
    """Return the comparison under the row's framework, or under what any framework may do. A framework of which rows
    measured another figure has that figure's error in its live bytes, and the allocator's ranges beyond."""
    named = framework_of(row)
    quantity = printed_by(row, () if named is None else (named,))
    source = row.text("source.key") or source_of(title_of(row))
    margin = None if named is None else margins.margin(named.name, quantity, level, source)
    if named is not None and margin is not None:
        return replace(_compared(row, margin, (named,)), evidence=MEASURED)
    nearest = None if named is None else margins.nearest(named.name, level, source)
    if named is not None and nearest is not None:
        width = Width((nearest.low - 1, nearest.high - 1))
        return replace(_compared(row, margins.NONE, (named,), width=width), evidence=MEASURED)
    if named is not None:
        return replace(_compared(row, margins.outside(level), (named,), ends_of(row)), evidence=DESCRIBED)
    beyond = margins.outside(level, of_whom(row), known=False)
    return replace(_compared(row, beyond, ends_of(row)), evidence=UNKNOWN)


def of_whom(row: RowFields) -> str:
    """Return the group of a row's error: its framework, or its source if the framework is unknown."""
    named = framework_of(row)
    return named.name if named else row.text("source.key") or source_of(title_of(row))


def unnamed(row: RowFields, level: float = margins.LEVEL) -> Compared:
    """Compare the row as if its framework were not named, with the evidence from that framework held out."""
    beyond = margins.outside(level, of_whom(row), known=framework_of(row) is not None)
    return _compared(row, beyond, ends_of(row))


def _compared(
    row: RowFields,
    margin: margins.Margin,
    likely: Sequence[Framework],
    others: Sequence[Framework] = (),
    width: Width | None = None,
) -> Compared:
    quantity, measured = quantity_of(row), row.number("memory.bytes")
    source = title_of(row)
    judged = is_judged(row)
    suspect = row.text("suspect")

    def silent(why: str) -> Compared:
        return Compared(row.text("id"), quantity, None, None, None, measured, source, why, "", suspect, source)

    if measured is None and not judged:
        return silent("prints a relative figure, not bytes")
    try:
        found = guess(row, likely, others, width)
    except NapkinError as problem:
        return silent(problem.message)
    verdict = ""
    room = room_of(row)
    if judged and room is None and measured is None:
        return silent("states whether it fit, but not on which accelerator")
    if judged and room is not None:
        most = max(found.high * margin.high, found.most)
        verdict = "does not fit" if found.least > room else "fits" if most <= room else UNDECIDED
    low, high = (min(end, found.bound) for end in (found.low * margin.low, found.high * margin.high))
    whole = (round(found.value), math.floor(low), math.ceil(high))  # bytes
    return Compared(row.text("id"), quantity, *whole, measured, source, "", verdict, suspect, source)

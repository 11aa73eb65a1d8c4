"""Screen of `sensitivity`: which input changes the answer most, and where a decision flips."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.sensitivity.variation import Moved
from napkin.errors import UNDECIDED
from napkin.render.figures import between, compact
from napkin.render.screen import Bar, Column, Next, Screen, Table

COLUMNS = (
    Column("input"),
    Column("now", right=True, drop=1),
    Column("if lower", right=True),
    Column("if higher", right=True),
    Column(drop=3),
    Column("per 1%", right=True, drop=2),
)
JUDGED = ("fits", "does not fit", UNDECIDED, "holds", "broken", "close")
"""Decisions that are good or bad."""
FLIPS = (Column("flips at", right=True), Column("becomes"))


def screen(
    asked: Sequence[str], path: str, value: float, unit: str, moved: Sequence[Moved], verdict: str | None
) -> Screen:
    """Return the screen; verdict: the current decision, if one is watched."""
    headline = [f"{path} is {compact(value, unit)}"]
    if moved and moved[0].swing:
        first = moved[0]
        ends = sorted(end[1] for end in (first.low, first.high, (0, value)) if end)
        headline.append(f"{first.option.name} matters most: {between(ends[0], ends[-1], unit)}")
    else:
        headline.append("no input moves it")
    if verdict is not None:
        headline.insert(0, verdict.upper() if verdict in JUDGED else f"verdict: {verdict}")
    columns = (*COLUMNS, *(FLIPS if verdict is not None else ()))
    reached = [value, *(end[1] for one in moved for end in (one.low, one.high) if end)]
    rows = [_row(one, unit, (min(reached), max(reached)), value, verdict is not None) for one in moved]
    return Screen(asked, headline, verdict or "", Table(columns, rows), next=_next(moved))


def _row(one: Moved, unit: str, reach: tuple[float, float], value: float, decided: bool) -> tuple[str | Bar, ...]:
    """Return the row of one input; reach: of all inputs; decided: whether a decision is watched."""
    of = one.option.unit
    low, high = (compact(end[1], unit) if end else "–" for end in (one.low, one.high))
    slope = "–" if one.elasticity is None else f"{one.elasticity:+.2f}%"
    ends = [value, *(end[1] for end in (one.low, one.high) if end)]
    wide = reach[1] - reach[0]
    bar = Bar((max(ends) - reach[0]) / wide, (min(ends) - reach[0]) / wide) if wide else ""
    row = (one.option.name, compact(one.value, of), low, high, bar, slope)
    if not decided:
        return row
    flip = one.flip
    return (*row, compact(flip.value, of) if flip else "never", _short(flip.word) if flip else "")


def _short(decision: str | None) -> str:
    return "too close" if decision == UNDECIDED else decision or ""


def _next(moved: Sequence[Moved]) -> Next:
    """Return the next command: the input that moves the answer most, over a range."""
    if not moved:
        return Next({"explain": True})
    gone = dict.fromkeys(("change", "vary", "limit", "against"))
    return Next({**gone, "vary": moved[0].option.name, "change": "50%"})

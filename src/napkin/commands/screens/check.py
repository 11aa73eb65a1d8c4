"""The screen of `check`: the number of limits that hold, and a line for each limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.inputs.limits import BROKEN_WORD, CLOSE_WORD, HOLDS, VERDICT, LimitOutcome
from napkin.record import record
from napkin.render.figures import between, compact
from napkin.render.screen import Column, Next, Screen, Table

SAID = {HOLDS: "holds", BROKEN_WORD: "broken", CLOSE_WORD: "too close"}
"""Status of a limit → its name on the screen."""
COLUMNS = (Column("status"), Column("quantity"), Column("value", right=True), Column("limit"))
LONGEST = 15
"""Maximum rows of the table; of more limits, those that hold are only counted."""
NAMED = 6
"""Maximum number of files that are named."""


@record
class LimitRow:
    """One limit as the table shows it; condition: path and limit, as --limit takes them."""

    status: str
    file: str
    condition: str
    cells: tuple[str, str, str, str]
    remark: str


def shown(outcome: LimitOutcome, file: str) -> LimitRow:
    """Return the row of a limit."""
    cells = (SAID[outcome.status], outcome.path, value_of(outcome), outcome.limit)
    condition = "" if outcome.path == VERDICT else f"{outcome.path} {outcome.limit}"
    return LimitRow(outcome.status, file, condition, cells, beside(outcome))


def value_of(outcome: LimitOutcome) -> str:
    """Return a value in a readable unit; a verdict as its word."""
    return outcome.value if isinstance(outcome.value, str) else compact(outcome.value, outcome.unit)


def beside(outcome: LimitOutcome) -> str:
    """Return the remark on a limit: by how much it is broken, or the interval that makes it too close to call."""
    if outcome.low is not None and outcome.high is not None and outcome.status == CLOSE_WORD:
        value = None if isinstance(outcome.value, str) else outcome.value
        return f"may be {between(outcome.low, outcome.high, outcome.unit, value)}"
    if outcome.status == BROKEN_WORD and not isinstance(outcome.value, str):
        part = f" ({outcome.beyond / abs(outcome.value):.1%})" if outcome.value else ""
        return f"by {compact(outcome.beyond, outcome.unit)}{part}"
    return ""


def words_of(outcome: LimitOutcome) -> str:
    """Return the outcome of a limit in words: `time is 143.9 days: broken, by 43.94 days`."""
    remark = beside(outcome)
    if outcome.path == VERDICT:
        asked = "as asked" if outcome.status == HOLDS else f"asked for: {outcome.limit}"
        return f"the verdict is: {outcome.value}, {asked}"
    return f"{outcome.path} is {value_of(outcome)}: {SAID[outcome.status]}{f', {remark}' if remark else ''}"


def screen(
    named: Sequence[str],
    rows: Sequence[LimitRow],
    skipped: Sequence[str],
    problems: int,
    written: str,
    asked: Mapping[str, str],
) -> Screen:
    """Return the screen. named: files and folders as given; skipped: files of a folder that are not run files;
    problems: number of files or checks that could not be read; written: the file that --init wrote; asked: file →
    its command."""
    counts = {word: n for word in (BROKEN_WORD, CLOSE_WORD, HOLDS) if (n := [r.status for r in rows].count(word))}
    worst = next(iter(counts), "")
    said = [f"{SAID[word]}: {count}" for word, count in counts.items()] if len(counts) > 1 else []
    failed = [f"not checked: {problems}"] if problems else []
    headline = (SAID[worst].upper(), *(said or [f"{len(rows)} of {len(rows)}"]), *failed) if rows else ("NOT CHECKED",)
    what = f"{len(rows)} limit{'s' * (len(rows) != 1)} of {_listed(named)}"
    kept = list(rows) if len(rows) <= LONGEST else [row for row in rows if row.status != HOLDS]
    several = len({row.file for row in rows}) > 1
    table = Table(
        (*COLUMNS, *((Column("file", drop=1),) if several else ()), Column(remark=True)),
        [(*row.cells, *((row.file,) if several else ()), row.remark) for row in kept],
    )
    remarks = [f"{len(rows) - len(kept)} more hold; --json lists them"] if len(kept) < len(rows) else []
    remarks += [f"skipped (not run files): {_listed(skipped)}"] if skipped else []
    remarks += [f"wrote {written}"] if written else []
    return Screen((what,), headline, worst, table, remarks, next=_next(rows, asked, written))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _next(rows: Sequence[LimitRow], asked: Mapping[str, str], written: str) -> Next:
    """Return the next command: what would make a limit hold, the first that is broken, else the first too close."""
    for row in sorted(rows, key=lambda row: row.status != BROKEN_WORD):
        if row.status != HOLDS and row.file in asked:
            limit = {"limit": row.condition} if row.condition else {}
            return Next({"run": row.file, **limit}, f"sensitivity {asked[row.file]}", keep=())
    return Next({"files": (written,)}, keep=()) if written else Next({"markdown": True, "annotations": None})

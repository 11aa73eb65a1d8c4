"""The record that every command returns and every renderer shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.elementwise import Number
from napkin.errors import HELD, OK, NapkinError
from napkin.render.screen import Screen
from napkin.term import Term

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.render.chart import Chart


Cell = str | int | float | bool | None | Sequence["Cell"] | Mapping[str, "Cell"]
"""A value as an answer states it: of an input, a row, or a further JSON key."""
Row = Mapping[str, Cell]
"""One row of a listing: column → value, in base units."""
NO_SCREEN = Screen(())
"""Placeholder for an answer without a screen: its quantities are listed by their paths."""
Quantities = dict[str, tuple[int | float, str]]
"""path → (value, unit)."""


class Shown:
    """An input as resolved: value in base units, the text as typed, and where it came from.

    origin: given, run file, profile, preset, class default, default, evidence or solved.
    where: what it was read from (a file, with line and key if it has them; a preset); "" if it has no place.
    """

    __slots__ = ("origin", "text", "unit", "value", "where")

    def __init__(self, value: Cell, text: str | None, origin: str, unit: str = "1", where: str = "") -> None:
        self.value = value
        self.text = text
        self.origin = origin
        self.unit = unit
        self.where = where


class Answer:
    """The answer of a command.

    command    its name                          terms     the published quantities, by path (Term.name)
    inputs     every resolved input
    intervals  path → (low, high) at 90 % unless said otherwise
    verdict    a word (fits, memory, compute, …) or None      status   exit status
    rows       for listings and sweeps: one mapping a row; `rows_name` is their key in JSON
    extra      further JSON keys, such as `columns`: column of rows → its unit
    plot       charts of --plot, one panel each (render/plot.py)
    screen     the text form (render/screen.py)
    assumed    assumptions, in a few words each
    problems   errors in parts of the question, printed while the rest of the answer is shown
    trailer    lines below the answer, for the program that reads its output (workflow commands)
    notes      remarks for --verbose and the JSON's "notes"
    """

    __slots__ = (
        "assumed",
        "command",
        "extra",
        "inputs",
        "intervals",
        "notes",
        "plot",
        "problems",
        "rows",
        "rows_name",
        "screen",
        "status",
        "terms",
        "trailer",
        "verdict",
    )

    def __init__(
        self,
        command: str,
        terms: Sequence[Term] = (),
        *,
        inputs: Mapping[str, Shown] | None = None,
        verdict: str | None = None,
        status: int = OK,
        rows: Sequence[Row] | None = None,
        notes: Sequence[str] = (),
        extra: Mapping[str, Cell] | None = None,
        problems: Sequence[NapkinError] = (),
        screen: Screen = NO_SCREEN,
    ) -> None:
        self.command = command
        self.terms = tuple(terms)
        self.inputs = dict(inputs or {})
        self.intervals: dict[str, tuple[Number, Number]] = {}
        self.verdict = verdict
        self.status = status
        self.rows = None if rows is None else list(rows)
        self.rows_name = "rows"
        self.notes = list(notes)
        self.extra = dict(extra or {})
        self.plot: Sequence[Chart] = ()
        self.problems = tuple(problems)
        self.trailer: Sequence[str] = ()
        self.screen = screen
        self.assumed: list[str] = []

    @property
    def judgement(self) -> str | None:
        """The word that a table of several answers shows: the verdict on a limit, else the one on memory (`fit`), else
        the answer's own."""
        return self.verdict if self.verdict in HELD.values() else self.fit

    @property
    def fit(self) -> str | None:
        """The verdict on memory where it stands next to the answer's own; else that one."""
        fit = self.extra.get("fit", self.verdict)
        return fit if isinstance(fit, str) else None

    def by_path(self) -> dict[str, Term]:
        """Return the published terms by their paths."""
        return {term.name: term for term in self.terms}

    def finite(self) -> list[Term]:
        """Return the published terms that are finite; the others are named once in the notes."""
        kept = []
        for term in self.terms:
            if not _in_range(term.value):
                note = f"{term.name} is out of range and omitted"
                if note not in self.notes:
                    self.notes.append(note)
            else:
                kept.append(term)
        return kept

    def quantities(self) -> Quantities:
        """Return every number that the answer publishes, interval ends included: path → (value, unit)."""
        found = {term.name: (term.value, term.unit) for term in self.finite()}
        for path, ends in self.intervals.items():
            for name, value in zip(("low", "high"), ends, strict=True):
                if not _in_range(value):
                    continue
                found.setdefault(end_path(path, name), (value, found[path][1] if path in found else "1"))
        return found


def number_in(row: Row, name: str) -> float:
    """Return a number of a row by name; 0 if it has none."""
    value = row.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def suggested(answer: Answer) -> list[Row]:
    """Return the suggestions of an answer that make it fit."""
    rows = answer.extra.get("suggestions")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def reasons_in(answer: Answer) -> str:
    """Return the reasons why an answer is empty; "" if it states none."""
    found = answer.extra.get("reasons")
    return "; ".join(str(one) for one in found) if isinstance(found, (list, tuple)) else ""


def is_end(path: str) -> bool:
    """Return whether a path is that of an interval's end."""
    return path.rpartition("/")[2] in ("low", "high")


def _in_range(value: object) -> bool:
    """Return whether a value is a finite number within a float's range."""
    if isinstance(value, int):
        return value.bit_length() <= 1023
    return not isinstance(value, float) or math.isfinite(value)


def end_path(path: str, end: str) -> str:
    """Return the path of an interval's end: `time` → `time/low`; `memory/total` → `memory/low`, as for `step/time`."""
    bucket, _, last = path.rpartition("/")
    return f"{bucket}/{end}" if bucket and last in ("total", "time") else f"{path}/{end}"

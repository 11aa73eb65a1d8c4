"""The one record that every command gives and every renderer shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from napkin.errors import OK
from napkin.term import Term


class Shown:
    """An input as resolved: value in base units, the text as typed, and where it came from.

    origin: given, run file, profile, preset, class default, default, evidence or solved.
    """

    __slots__ = ("origin", "text", "unit", "value")

    def __init__(self, value: Any, text: str | None, origin: str, unit: str = "1") -> None:
        self.value = value
        self.text = text
        self.origin = origin
        self.unit = unit


class Answer:
    """What a command found out.

    command    its name                          title     one line that restates the question
    inputs     every resolved input              terms     what is published, each by its path (Term.name)
    intervals  path → (low, high) at 90 % unless said otherwise
    verdict    a word (fits, memory, compute, …) or None      status   exit status
    rows       for listings and sweeps: one mapping a row      pictures  text drawings for a person (memory's bar)
    notes      remarks for stderr and the JSON's "notes"
    """

    __slots__ = (
        "command",
        "extra",
        "inputs",
        "intervals",
        "notes",
        "pictures",
        "plot",
        "rows",
        "status",
        "terms",
        "title",
        "verdict",
    )

    def __init__(
        self,
        command: str,
        title: str = "",
        terms: Sequence[Term] = (),
        *,
        inputs: Mapping[str, Shown] | None = None,
        intervals: Mapping[str, tuple[float, float]] | None = None,
        verdict: str | None = None,
        status: int = OK,
        rows: Sequence[Mapping[str, Any]] | None = None,
        pictures: Sequence[str] = (),
        notes: Sequence[str] = (),
        extra: Mapping[str, Any] | None = None,
        plot: Any = None,
    ) -> None:
        self.command = command
        self.title = title
        self.terms = tuple(terms)
        self.inputs = dict(inputs or {})
        self.intervals = dict(intervals or {})
        self.verdict = verdict
        self.status = status
        self.rows = None if rows is None else list(rows)
        self.pictures = tuple(pictures)
        self.notes = list(notes)
        self.extra = dict(extra or {})
        self.plot = plot

    def finite(self) -> list[Term]:
        """The published terms that are numbers; the others are named in the notes, once."""
        kept = []
        for term in self.terms:
            if isinstance(term.value, float) and not math.isfinite(term.value):
                note = f"{term.name} is out of range and left out"
                if note not in self.notes:
                    self.notes.append(note)
            else:
                kept.append(term)
        return kept

    def values(self) -> dict[str, Any]:
        return {term.name: term.value for term in self.finite()}

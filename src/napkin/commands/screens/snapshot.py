"""Screen of `memory --snapshot`: measured and predicted, and whether the measurement is within the interval."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.memory.question import MemoryQuestion
from napkin.commands.memory.snapshot import place
from napkin.commands.screens.setup import of_setup
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import size
from napkin.render.screen import Column, Next, Screen, Table


def screen(question: MemoryQuestion, answer: Answer) -> Screen:
    """Return the screen of a comparison; its rows: name, measured, predicted, unexplained (measured − predicted),
    error."""
    rows = answer.rows or []
    columns = (
        Column(),
        Column("measured", right=True),
        Column("predicted", right=True),
        Column("difference", right=True, drop=1),
        Column("error", right=True),
        Column("interval", drop=2),
    )
    largest = max([1.0, *(number_in(row, name) for row in rows for name in ("seen", "predicted"))])
    shown = [row for row in rows if row["seen"] or row["predicted"]]
    cells = [
        (
            str(row["what"]),
            *(size(number_in(row, name), largest) for name in ("seen", "predicted", "unexplained")),
            _share(row),
            _place(answer, row),
        )
        for row in shown
    ]
    return Screen(
        [
            *of_setup(question.model, question.setup, question.hardware.name if question.hardware else ""),
            f"compared with {question.snapshot_from}",
        ],
        _headline(answer, rows),
        table=Table(columns, cells),
        remarks=_remarks(question, rows),
        next=Next({"snapshot": None, "snapshot-device": None, "tensors": True}),
    )


def _remarks(question: MemoryQuestion, rows: Sequence[Row]) -> list[str]:
    """Return how to say which figure a size is, if it may be any."""
    if not any(str(row["what"]).startswith("if ") for row in rows):
        return []
    typed = question.snapshot_from
    return [f"which figure it is, is not stated: --measured allocated={typed}, reserved={typed} or used={typed}"]


def _place(answer: Answer, row: Row) -> str:
    """Return where a measured figure lies, "" for one without an interval."""
    ends = answer.intervals.get(f"memory/{str(row['what']).partition(' ')[2]}")
    return "" if ends is None else place(number_in(row, "seen"), ends)


def _headline(answer: Answer, rows: Sequence[Row]) -> list[str]:
    """Return the first comparison in words: measured, predicted, and whether it is within the interval; of a size that
    may be any figure, the error against each."""
    if not rows:
        return ["the snapshot holds nothing to compare"]
    row = rows[0]
    word, _, name = str(row["what"]).partition(" ")
    if word == "if":
        errors = (f"{_share(one)} of {str(one['what']).partition(' ')[2]}" for one in rows)
        return [f"{size(number_in(row, 'seen'))} measured", ", ".join(errors)]
    parts = [
        f"{size(number_in(row, 'seen'))} {name}",
        f"{_share(row)} of the predicted {size(number_in(row, 'predicted'))}",
    ]
    where = _place(answer, row)
    return [*parts, f"{where} the interval"] if where else parts


def _share(row: Row) -> str:
    """Return measured over predicted, less one."""
    error = row["error"]
    if not isinstance(error, (int, float)):
        return "–"
    return f"{error:+.1%}" if error < 10 else f"{error + 1:,.0f} ×"

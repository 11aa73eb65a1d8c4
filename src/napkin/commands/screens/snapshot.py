"""Screen of `memory --snapshot`: measured and predicted, and whether the measurement is within the interval."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.memory.question import MemoryQuestion
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
    )
    largest = max([1.0, *(number_in(row, name) for row in rows for name in ("seen", "predicted"))])
    shown = [row for row in rows if row["seen"] or row["predicted"]]
    cells = [
        (
            str(row["what"]),
            *(size(number_in(row, name), largest) for name in ("seen", "predicted", "unexplained")),
            _share(row),
        )
        for row in shown
    ]
    return Screen(
        [*of_setup(question.model, question.setup, ""), f"compared with {question.snapshot_from}"],
        _headline(answer, rows),
        table=Table(columns, cells),
        next=Next({"snapshot": None, "snapshot-device": None, "tensors": True}),
    )


def _headline(answer: Answer, rows: Sequence[Row]) -> list[str]:
    """Return the first comparison in words: measured, predicted, and whether it is within the interval."""
    if not rows:
        return ["the snapshot holds nothing to compare"]
    row = rows[0]
    name = str(row["what"]).removeprefix("largest ")
    parts = [
        f"{size(number_in(row, 'seen'))} {name}",
        f"{_share(row)} of the predicted {size(number_in(row, 'predicted'))}",
    ]
    ends = answer.intervals.get(f"memory/{name}")
    if ends is None:
        return parts
    low, high = ends
    where = "inside" if low <= number_in(row, "seen") <= high else "outside"
    return [*parts, f"{where} the interval"]


def _share(row: Row) -> str:
    """Return measured over predicted, less one."""
    error = row["error"]
    if not isinstance(error, (int, float)):
        return "–"
    return f"{error:+.1%}" if error < 10 else f"{error + 1:,.0f} ×"

"""Published memory against the memory model, row by row."""

from __future__ import annotations

from napkin.evidence.validate import Compared
from napkin.inputs.published import Row


def compared(row: Row) -> Compared:
    quantity = f"memory_{row.text('memory.what') or 'unstated'}"
    measured = row.number("memory.bytes")
    return Compared(row.text("id"), quantity, None, None, None, measured, row.text("source.title"), "later")

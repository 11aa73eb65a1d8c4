"""CSV (base units, for spreadsheets) and Markdown (as people read it)."""

from __future__ import annotations

import csv
import io

from napkin.render.answer import Answer, Cell
from napkin.render.text import columns_of, explained, lines_of


def to_csv(answer: Answer) -> str:
    """Return rows as they are; path,value,unit where there are none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if answer.rows:
        names = list(dict.fromkeys(name for row in answer.rows for name in row))
        writer.writerow(names)
        writer.writerows([row.get(name) for name in names] for row in answer.rows)
    else:
        writer.writerow(["path", "value", "unit"])
        writer.writerows([path, _whole(value), unit] for path, (value, unit) in answer.quantities().items())
    return out.getvalue()


def _whole(value: Cell) -> Cell:
    """Return a float that is a whole number as one, as JSON has it."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def to_markdown(answer: Answer, explain: bool = False) -> str:
    """Return a heading line and a table."""
    lines = [answer.title, ""] if answer.title else []
    if answer.rows:
        names, cells = columns_of(answer)
        lines += _table(names, cells)
    if answer.terms and (answer.listed or not answer.rows):
        lines += _table(["quantity", "value", "how"], [[*line] for line in lines_of(answer, whole=True)])
    if answer.verdict:
        lines += ["", f"Verdict: {answer.verdict}"]
    if explain:
        lines += ["", "```", *explained(answer), "```"]
    return "\n".join(lines) + "\n"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"

    return [line(header), "|" + " --- |" * len(header), *(line(row) for row in rows)]

"""CSV (base units, for spreadsheets) and Markdown (as people read it)."""

from __future__ import annotations

import csv
import io

from napkin.render.answer import Answer, Cell
from napkin.render.screen import Table
from napkin.render.text import explained, lines_of


def to_csv(answer: Answer) -> str:
    """Return the rows of a listing as CSV; path,value,unit if there are none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if answer.rows:
        names = list(dict.fromkeys(name for row in answer.rows for name in row))
        writer.writerow(names)
        writer.writerows([_whole(row.get(name)) for name in names] for row in answer.rows)
    else:
        writer.writerow(["path", "value", "unit"])
        writer.writerows([path, _whole(value), unit] for path, (value, unit) in answer.quantities().items())
    return out.getvalue()


def _whole(value: Cell) -> Cell:
    """Return a float with an integer value as an int, as in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def to_markdown(answer: Answer, explain: bool = False) -> str:
    """Return the screen as text and tables: the question, the answer, its table; then every quantity."""
    screen = answer.screen
    lines = [", ".join(screen.question).replace(":, ", ": "), ""] if screen.question else []
    lines += [f"**{' · '.join(part for part in screen.headline if part)}**", ""] if screen.headline else []
    for table in (screen.table, screen.more):
        lines += [*_cells(table), ""] if table is not None and table.rows else []
    if answer.terms and not (screen.listing and answer.rows):
        lines += _table(["quantity", "value", "how"], [[*line] for line in lines_of(answer)])
    if answer.verdict:
        lines += ["", f"Verdict: {answer.verdict}"]
    if explain:
        lines += ["", "```", *explained(answer), "```"]
    return "\n".join(lines).rstrip() + "\n"


def _cells(table: Table) -> list[str]:
    """Return a table of a screen, all columns of it that are not drawn."""
    shown = [at for at in range(len(table.columns)) if any(isinstance(row[at], str) and row[at] for row in table.rows)]
    rows = [[cell.strip() if isinstance(cell := row[at], str) else "" for at in shown] for row in table.rows]
    return _table([table.columns[at].name for at in shown], rows)


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"

    return [line(header), "|" + " --- |" * len(header), *(line(row) for row in rows)]

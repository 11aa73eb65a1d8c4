"""Read a file of rows, YAML or CSV, into the form of the first: a mapping with `schema` and `rows`."""

from __future__ import annotations

import csv
import io
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.load import STDIN, Document, printable, read_text
from napkin.inputs.yaml_file import Builder, parse_yaml

STEPS, MEMORY, RUNS, TUNING, SERVING = "steps/1", "memory/1", "endtoend/1", "finetune/1", "serving/1"
MEASURED = (("load.", SERVING), ("measured.", STEPS), ("memory.", MEMORY), ("device_hours", RUNS))
"""How the columns begin that tell a CSV file's schema."""
DEEPEST = 4
"""The most parts of a column's name: model.experts.count."""
TRUTH = {"true": True, "false": False}


def read_rows(path: str) -> Document:
    """Return the document of a file of rows. A CSV file has a line of column names first: fields of a row, their parts
    joined by dots (`layout.tp`); an empty cell states nothing."""
    text, name = read_text(path), STDIN if path == "-" else printable(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    columns = [name.strip().strip('"') for name in first.split(",")]
    if ("id" in columns and ":" not in first) or (name.endswith(".csv") and len(columns) > 1):
        return _table(text, name)
    return parse_yaml(text, name, RowsBuilder)


class BadValue(str):
    """A value that YAML cannot hold, of one row: its text, and why."""

    why = ""


class RowsBuilder(Builder):
    """Build rows of YAML's events: a value that cannot be read is one row's problem, not the file's."""

    def scalar(self, event: Any, path: tuple[object, ...]) -> object:
        """Return a string, number, truth value or None; a BadValue where there is none in a row."""
        try:
            return super().scalar(event, path)
        except NapkinError as problem:
            if path[:1] != ("rows",):
                raise
            bad = BadValue(event.value)
            bad.why = f"{problem.message}; {problem.hint}" if problem.hint else problem.message
            return bad


def _table(text: str, name: str) -> Document:
    """Return a CSV table as the document of its rows."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines: dict[tuple[object, ...], int] = {}
    rows: list[dict[str, Any]] = []
    columns: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _columns(cells, f"{name}:{reader.line_num}")
                continue
            if len(cells) != len(columns):
                raise NapkinError(
                    f"{name}:{reader.line_num}: {len(cells):,} cells under {len(columns):,} column names",
                    "one cell for each column; quote text that has commas",
                )
            lines[("rows", len(rows))] = reader.line_num
            rows.append(_row(columns, cells))
    except csv.Error as problem:
        raise NapkinError(f"{name}:{reader.line_num}: not CSV: {problem}", "quote text that has commas") from None
    if columns and "id" not in columns:
        raise NapkinError(
            f"{name}: no column is id, a name for each row", "id,model.preset,hardware.chip,hardware.count,…"
        )
    stated = {str(row.pop("schema")) for row in rows if "schema" in row}
    found = next((schema for begin, schema in MEASURED if any(one.startswith(begin) for one in columns)), "")
    if len(stated) > 1:
        raise NapkinError(f"{name}: rows of several schemas: {', '.join(sorted(stated))[:80]}", "one file for each")
    schema = next(iter(stated), found)
    if not schema:
        raise NapkinError(
            f"{name}: no column says what was measured",
            "for example measured.step_seconds, memory.gib or device_hours",
        )
    return Document(name, {"schema": schema, "rows": rows}, lines)


def _columns(cells: list[str], where: str) -> list[str]:
    """Return the names of the columns; each once, none within another."""
    names = [cell.strip() for cell in cells]
    parts = [name.split(".", DEEPEST) for name in names]
    taken = {"", *(".".join(part[:depth]) for part in parts for depth in range(1, len(part)))}
    for name in names:
        if name in taken:
            raise NapkinError(
                f"{where}: the column {printable(name)!r} is empty, appears twice or has parts", "name each field once"
            )
        if name.count(".") >= DEEPEST:
            raise NapkinError(f"{where}: the column {printable(name, 60)} has too many parts", "for example layout.tp")
        taken.add(name)
    return names


def _row(columns: list[str], cells: list[str]) -> dict[str, Any]:
    """Return a line as nested mappings."""
    row: dict[str, Any] = {}
    for name, cell in zip(columns, cells, strict=True):
        if cell.strip():
            *parents, last = name.split(".")
            block = row
            for parent in parents:
                block = block.setdefault(parent, {})
            block[last] = cell.strip() if name == "id" else _scalar(cell.strip())
    return row


def _scalar(text: str) -> object:
    """Return a cell as a whole number, a number, a truth value or a text."""
    if text.lower() in TRUTH:
        return TRUTH[text.lower()]
    for kind in (int, float) if text.isascii() else ():
        try:
            value = kind(text)
        except ValueError:
            continue
        if "_" not in text and value - value == 0:  # neither infinite nor NaN
            return value
    return text

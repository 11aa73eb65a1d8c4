"""A table as lines of text. In a narrow terminal, columns are dropped and remarks are cut."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.render.paint import BOLD, DIM, DRAWN, TONES, Paint
from napkin.render.screen import Bar, Column, Table

INDENT = "  "
GAP = "  "
BAR, USUAL_BAR, LEAST_BAR = 24, 12, 6
"""Width of a bar column in cells: maximum, usual next to long remarks, and minimum."""


def clauses(parts: Sequence[str], width: int) -> str:
    """Return clauses joined by commas, by a blank after a colon; the last ones that do not fit become an ellipsis.  A
    first clause that is too long on its own loses its last words."""
    for count in range(len(parts), 0, -1):
        text = ", ".join([*parts[:count], *(["…"] if count < len(parts) else [])]).replace(":, ", ": ")
        if len(text) <= width:
            return text
    words = parts[0].rstrip(":").split(" ")
    while len(words) > 1 and len(" ".join(words)) + len(" …") > width:
        words.pop()
    return " ".join([*words, "…"])


def folded(text: str, width: int, indent: str, hang: str | None = None) -> list[str]:
    """Return a sentence as lines that break at spaces; hang: the indent of later lines."""
    lines, line = [], indent
    for word in text.split():
        if line.strip() and len(line) + len(word) > width:
            lines.append(line.rstrip())
            line = indent if hang is None else hang
        line += word + " "
    return [*lines, line.rstrip()] if line.strip() else lines


def table_lines(table: Table, width: int, paint: Paint | None = None) -> list[str]:
    """Return a table's lines; columns are dropped, those with the highest `drop` first, until it fits the width."""
    paint = paint or Paint(False)
    if not table.rows:
        return []
    shown = [i for i in range(len(table.columns)) if _is_used(table, i)]
    while _least(table, shown) > width - len(INDENT):
        goes = max(shown, key=lambda i: (table.columns[i].drop, i))
        if not table.columns[goes].drop:
            break
        shown.remove(goes)
    columns = [table.columns[i] for i in shown]
    rows = [[row[i] for i in shown] for row in table.rows]
    fixed = _least(table, shown)
    widths = [_width(table, i) for i in shown]
    drawn = [at for at, i in enumerate(shown) if _is_drawn(table, i)]
    remarked = max((len(str(row[at])) for at, c in enumerate(columns) if c.remark for row in rows), default=0)
    for at in drawn:
        free = width - len(INDENT) - fixed + LEAST_BAR
        wanted = free - remarked - (len(GAP) if remarked else 0)
        widths[at] = max(LEAST_BAR, min(USUAL_BAR, free), min(BAR, free, wanted))
    lines = []
    if any(column.name for column in columns):
        heads = INDENT + GAP.join(_set(c.name, w, c.right) for c, w in zip(columns, widths, strict=True)).rstrip()
        if len(heads) > width and columns[-1].remark:
            heads = heads[: -len(columns[-1].name)].rstrip()
        lines.append(paint(heads, DIM))
    for row in rows:
        lines += [_row(one, columns, widths, width, paint) for one in _unfolded(row, columns, widths, width)]
    return lines


def _unfolded(
    row: Sequence[str | Bar], columns: Sequence[Column], widths: Sequence[int], width: int
) -> list[Sequence[str | Bar]]:
    """Return a row as rows whose last cell, if its column folds, fits the width that the others leave."""
    if not columns[-1].folds:
        return [row]
    rest = width - len(INDENT) - sum(widths) - len(GAP) * (len(widths) - 1)
    first, *others = folded(str(row[-1]), rest, "") or [""]
    return [[*row[:-1], first], *([*[""] * len(row[:-1]), line] for line in others)]


def _is_used(table: Table, at: int) -> bool:
    return bool(table.columns[at].name) or any(row[at] != "" for row in table.rows)


def _is_drawn(table: Table, at: int) -> bool:
    return any(isinstance(row[at], Bar) for row in table.rows)


def _width(table: Table, at: int) -> int:
    """Return the width that a column needs; 0 for remarks, which take the rest."""
    column = table.columns[at]
    if column.remark:
        return 0
    cells = [LEAST_BAR if isinstance(row[at], Bar) else len(str(row[at])) for row in table.rows]
    return max(len(column.name), *cells)


def _least(table: Table, shown: Sequence[int]) -> int:
    """Return the minimum width of these columns with the gaps between them; remarks may be omitted."""
    kept = [i for i in shown if not table.columns[i].remark]
    return sum(_width(table, i) for i in kept) + len(GAP) * (len(kept) - 1)


def _row(row: Sequence[str | Bar], columns: Sequence[Column], widths: Sequence[int], width: int, paint: Paint) -> str:
    """Return one row: each cell in its column, a remark as far as its clauses fit."""
    text, used = INDENT, len(INDENT)
    last = max((at for at, cell in enumerate(row) if cell != ""), default=0)
    for at, (cell, column, wide) in enumerate(zip(row, columns, widths, strict=True)):
        if at > last:
            break
        if at:
            text, used = text + GAP, used + len(GAP)
        if isinstance(cell, Bar):
            drawn = _drawn(cell, wide)
            text += paint(drawn.ljust(wide), DIM if cell.mark == "·" else DRAWN)
        elif column.remark:
            said = cell if column.folds else _said(cell, width - used)
            text += said if said in TONES and paint.color is False else paint(said, TONES.get(said))
            wide = len(said)
        else:
            text += _set(paint(cell, BOLD if cell in TONES else None, TONES.get(cell)), wide, column.right, len(cell))
        used += wide
    return text.rstrip()


def _set(text: str, width: int, right: bool, length: int | None = None) -> str:
    """Return a cell padded to its width; length: the visible width of a text with color codes."""
    blanks = " " * (width - (len(text) if length is None else length))
    return blanks + text if right else text + blanks


def _said(remark: str, width: int) -> str:
    """Return a remark cut to the width: first a final part in brackets, then its last clauses, then the last names of a
    list."""
    parts = remark.split("; ")
    for count in range(len(parts), 0, -1):
        text = "; ".join(parts[:count])
        for said in (text, text.rpartition(" (")[0] if text.endswith(")") else text):
            if said and len(said) <= width:
                return said
    names = parts[0].split(", ")
    if any(" " in name for name in names):
        return ""
    shorter = (f"{', '.join(names[:count])}, …" for count in range(len(names) - 1, 0, -1))
    return next((said for said in shorter if len(said) <= width), "")


def _drawn(bar: Bar, width: int) -> str:
    """Return a bar in half cells; any positive share is visible, and a share out of range is not drawn."""
    if bar.start != bar.start or bar.end != bar.end:
        return ""
    first = round(width * bar.start)
    halves = round(2 * width * min(bar.end, 1.0)) - 2 * first
    if bar.mark != "█":
        return " " * first + bar.mark * max(halves // 2, 0)
    if bar.end > bar.start:
        halves = max(halves, 1)
    return " " * first + "█" * (halves // 2) + "▌" * (halves % 2)

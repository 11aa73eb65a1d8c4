"""A screen laid out as lines of text, as wide as the terminal: nothing wraps inside a cell, no name is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.options.command_line import Text, pieces_in, pieces_of, typed
from napkin.options.registry import OPTIONS
from napkin.render.answer import Answer, Shown
from napkin.render.assumed import assumed_words
from napkin.render.screen import Bar, Column, Display, Next, Screen, Table

INDENT = "  "
GAP = "  "
SPACE = "   "
"""Between the parts of line 2."""
BAR, USUAL_BAR, LEAST_BAR = 24, 12, 6
"""Cells of a bar column: at most, so many next to long remarks, and the fewest that are worth drawing."""
TONES = {
    "fits": "32",
    "holds": "32",
    "does not fit": "31",
    "broken": "31",
    "impossible": "31",
    "too close to call": "33",
    "too close": "33",
    "close": "33",
    "good": "32",
    "fair": "33",
    "poor": "31",
    "bad": "31",
    "healthy": "32",
    "unhealthy": "31",
    "throttled": "33",
    "contended": "33",
    "incomplete": "33",
}
"""Verdict → its color, as an ANSI code."""
BOLD, DIM, DRAWN = "1", "2", "36"


def page_lines(screen: Screen, answer: Answer, view: Display, listed: Sequence[str] | None = None) -> list[str]:
    """Return the lines of an answer's screen; listed: lines to show in place of its table."""
    paint = _Paint(view.color)
    if screen.verbatim:
        return screen.verbatim.splitlines()
    if view.quiet:
        return _quiet(screen, view, paint)
    lines = [clauses(screen.question, view.width)] if screen.question else []
    if screen.headline:
        lines.append(_headline(screen, spaced(screen.headline, view.width - len(INDENT)), paint, INDENT))
    if listed is not None:
        lines += listed
    elif screen.table is not None:
        lines += table_lines(screen.table, view.width, paint)
    lines += [line for text in screen.remarks for line in folded(text, view.width, INDENT)]
    if screen.more is not None:
        lines += table_lines(screen.more, view.width, paint)
    words = [*answer.assumed, *assumed_words(answer.inputs)]
    if words:
        lines.append(_assumed(words, view.width, paint))
    if screen.next is not None:
        lines += _command(next_pieces(screen.next, answer), view.width, paint)
    return lines


SPELLED = ("given", "run file", "from file")
"""Origins of the inputs that a command line states."""


def next_pieces(following: Next | str, answer: Answer) -> list[str]:
    """Return the command to ask next as pieces that belong together."""
    if isinstance(following, str):
        return pieces_in(following)
    given = {name: _typed(shown) for name, shown in answer.inputs.items() if _is_spelled(name, answer.inputs)}
    return pieces_of(following.command or answer.command, given, following.changes, following.keep)


def _is_spelled(name: str, inputs: Mapping[str, Shown]) -> bool:
    """Return whether a command line states an input: it was given, or it replaces the nodes that were."""
    origin = inputs[name].origin
    if origin == "from file" and "from" in inputs:
        return False
    return name in OPTIONS and name != "nodes" and (origin in SPELLED or (name == "gpus" and origin == "derived"))


def _typed(shown: Shown) -> Text:
    """Return an input as it can be typed again."""
    return typed(shown.value if shown.text is None else shown.text)


class _Paint:
    """Text in ANSI codes, or as it is."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, *codes: str | None) -> str:
        used = ";".join(code for code in codes if code)
        return f"\x1b[{used}m{text}\x1b[0m" if self.color and used and text.strip() else text


def _quiet(screen: Screen, view: Display, paint: _Paint) -> list[str]:
    """Return line 2, or the rows of a listing."""
    if screen.headline and not screen.listing:
        return [_headline(screen, SPACE.join(screen.headline), paint)]
    if screen.table is None:
        return []
    bare = [Column("", c.right, c.drop, c.remark) for c in screen.table.columns]
    return [
        line[len(INDENT) :] for line in table_lines(Table(bare, screen.table.rows), view.width + len(INDENT), paint)
    ]


def _headline(screen: Screen, text: str, paint: _Paint, indent: str = "") -> str:
    """Return line 2 in the color of its verdict; a part that counts another (`holds: 3`) has that one's color."""
    tone = TONES.get(screen.verdict)
    parts = text.split(SPACE)
    tones = [TONES.get(part.partition(":")[0], tone) for part in parts]
    if all(one == tone for one in tones):
        return paint(indent + text, BOLD, tone)
    return indent + SPACE.join(paint(part, BOLD, one) for part, one in zip(parts, tones, strict=True))


def clauses(parts: Sequence[str], width: int) -> str:
    """Return clauses joined by commas, by a blank after a colon; the last ones that do not fit become an ellipsis.

    A first clause that is too long by itself, for a long name in it, loses its last words.
    """
    for count in range(len(parts), 0, -1):
        text = ", ".join([*parts[:count], *(["…"] if count < len(parts) else [])]).replace(":, ", ": ")
        if len(text) <= width:
            return text
    words = parts[0].rstrip(":").split(" ")
    while len(words) > 1 and len(" ".join(words)) + len(" …") > width:
        words.pop()
    return " ".join([*words, "…"])


def spaced(parts: Sequence[str], width: int) -> str:
    """Return parts three blanks apart, without the last ones that do not fit."""
    for count in range(len(parts), 0, -1):
        text = SPACE.join(parts[:count])
        if len(text) <= width or count == 1:
            return text
    return ""


def folded(text: str, width: int, indent: str, hang: str | None = None) -> list[str]:
    """Return a sentence as lines that break at blanks; hang: the indent of the later lines."""
    lines, line = [], indent
    for word in text.split():
        if line.strip() and len(line) + len(word) > width:
            lines.append(line.rstrip())
            line = indent if hang is None else hang
        line += word + " "
    return [*lines, line.rstrip()] if line.strip() else lines


def table_lines(table: Table, width: int, paint: _Paint | None = None) -> list[str]:
    """Return a table's lines; columns go, those with the highest `drop` first, until it fits the width."""
    paint = paint or _Paint(False)
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
        lines.append(_row(row, columns, widths, width, paint))
    return lines


def _is_used(table: Table, at: int) -> bool:
    return bool(table.columns[at].name) or any(row[at] != "" for row in table.rows)


def _is_drawn(table: Table, at: int) -> bool:
    return any(isinstance(row[at], Bar) for row in table.rows)


def _width(table: Table, at: int) -> int:
    """Return the cells that a column needs; none for remarks, which take what is left."""
    column = table.columns[at]
    if column.remark:
        return 0
    cells = [LEAST_BAR if isinstance(row[at], Bar) else len(str(row[at])) for row in table.rows]
    return max(len(column.name), *cells)


def _least(table: Table, shown: Sequence[int]) -> int:
    """Return the fewest cells of these columns with the gaps between them; remarks may be left out."""
    kept = [i for i in shown if not table.columns[i].remark]
    return sum(_width(table, i) for i in kept) + len(GAP) * (len(kept) - 1)


def _row(row: Sequence[str | Bar], columns: Sequence[Column], widths: Sequence[int], width: int, paint: _Paint) -> str:
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
            said = _said(cell, width - used)
            text += said if said in TONES and paint.color is False else paint(said, TONES.get(said))
            wide = len(said)
        else:
            text += _set(paint(cell, BOLD if cell in TONES else None, TONES.get(cell)), wide, column.right, len(cell))
        used += wide
    return text.rstrip()


def _set(text: str, width: int, right: bool, length: int | None = None) -> str:
    """Return a cell padded to its width; length: the cells that the text takes, where it holds color codes."""
    blanks = " " * (width - (len(text) if length is None else length))
    return blanks + text if right else text + blanks


def _said(remark: str, width: int) -> str:
    """Return a remark without what does not fit: what it ends with in brackets, then its last clauses."""
    parts = remark.split("; ")
    for count in range(len(parts), 0, -1):
        text = "; ".join(parts[:count])
        for said in (text, text.rpartition(" (")[0] if text.endswith(")") else text):
            if said and len(said) <= width:
                return said
    return ""


def _drawn(bar: Bar, width: int) -> str:
    """Return a bar of half cells; what is above nothing is seen, and of what is out of range no share is known."""
    if bar.start != bar.start or bar.end != bar.end:
        return ""
    first = round(width * bar.start)
    halves = round(2 * width * min(bar.end, 1.0)) - 2 * first
    if bar.mark != "█":
        return " " * first + bar.mark * max(halves // 2, 0)
    if bar.end > bar.start:
        halves = max(halves, 1)
    return " " * first + "█" * (halves // 2) + "▌" * (halves % 2)


def _assumed(words: Sequence[str], width: int, paint: _Paint) -> str:
    """Return the line of what was assumed; what does not fit is counted."""
    for count in range(len(words), -1, -1):
        left = len(words) - count
        parts = [*words[:count], *([f"{left} more (-v)"] if left else [])]
        text = ", ".join(parts)
        if len("assumed: ") + len(text) <= width or not count:
            return paint("assumed:", DIM) + " " + text
    return ""


def _parted(piece: str, width: int) -> list[str]:
    """Return a piece that ends with a word in quotes, such as a config.json, over several lines: a shell joins quoted
    parts that a backslash continues."""
    head, _, quoted = piece.removesuffix("'").partition(" '")
    lines, line = [], f"{head} '"
    for word in quoted.split(" "):
        if len(line) + len(word) + len(" '\\") > width:
            lines.append(f"{line}'\\")
            line = "'"
        line += f"{word} "
    return [*lines, f"{line[:-1]}'"]


def _command(pieces: Sequence[str], width: int, paint: _Paint) -> list[str]:
    """Return a command to paste, continued with a backslash between its options."""
    lines, line = [], "next:"
    for piece in pieces:
        if len(piece) + len("next:  \\") > width and " '" in piece and piece.endswith("'"):
            *above, piece = _parted(piece, width - len("next: "))
            lines += [f"{line} {above[0]}", *above[1:]]
            line = ""
        if line.strip() and line != "next:" and len(line) + 1 + len(piece) + 2 > width:
            lines.append(f"{line} \\")
            line = " " * 7
        line = f"{line} {piece}" if line else piece
    lines.append(line)
    lines[0] = paint("next:", DIM) + lines[0][len("next:") :]
    return lines

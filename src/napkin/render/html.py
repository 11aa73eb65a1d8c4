"""A screen as HTML for a notebook: the same question, answer, table and bars as in a terminal, in light and dark.

Everything that comes from an answer is escaped. A verdict is a word, not only a color; a bar repeats the number next to
it, and screen readers skip it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from napkin.errors import escaped
from napkin.render.answer import NO_SCREEN, Answer
from napkin.render.columns import clauses
from napkin.render.page import SPACE, assumed_words, next_pieces
from napkin.render.paint import TONES
from napkin.render.screen import Bar, Column, Table
from napkin.render.svg import color, colored, figures
from napkin.render.text import lines_of

GREEN, RED, YELLOW = "32", "31", "33"
CLASSES = {GREEN: "good", RED: "bad", YELLOW: "open"}
"""ANSI color of a verdict → the class of its element."""
WIDE = 640
"""Pixels of a plot."""
MOST_ROWS = 200
"""Maximum rows of a table, because a notebook stores its output."""

STYLE = """<style>
.napkin{--n-good:#116329;--n-bad:#b3261e;--n-open:#7a4f00;--n-bar:#1f6feb;--n-dim:#57606a;--n-line:#d0d7de;
font:14px/1.45 system-ui,sans-serif;max-width:62em;overflow-x:auto}
@media (prefers-color-scheme:dark){.napkin{--n-good:#56d364;--n-bad:#ff9492;--n-open:#e3b341;--n-bar:#58a6ff;
--n-dim:#9198a1;--n-line:#3d444d}}
[data-jp-theme-light=false] .napkin,.vscode-dark .napkin,html[theme=dark] .napkin{--n-good:#56d364;--n-bad:#ff9492;
--n-open:#e3b341;--n-bar:#58a6ff;--n-dim:#9198a1;--n-line:#3d444d}
[data-jp-theme-light=true] .napkin,.vscode-light .napkin,html[theme=light] .napkin{--n-good:#116329;--n-bad:#b3261e;
--n-open:#7a4f00;--n-bar:#1f6feb;--n-dim:#57606a;--n-line:#d0d7de}
.napkin p{margin:0 0 .3em}
.napkin .answer{font-weight:600;font-size:1.15em}
.napkin .answer span{margin-right:1.2em}
.napkin .good{color:var(--n-good)}.napkin .bad{color:var(--n-bad)}.napkin .open{color:var(--n-open)}
.napkin .dim{color:var(--n-dim)}
.napkin table{border-collapse:collapse;font:inherit;color:inherit;margin:.3em 0 .6em;font-variant-numeric:tabular-nums}
.napkin th,.napkin td{padding:.15em .8em .15em 0;text-align:left;font-weight:400;background:none;white-space:nowrap;
border:0;border-bottom:1px solid var(--n-line)}
.napkin .right{text-align:right}
.napkin td.remark{white-space:normal;color:var(--n-dim)}
.napkin td.bar{min-width:9em}
.napkin svg{display:block;width:9em;height:.8em}
.napkin rect{fill:var(--n-bar)}.napkin rect.free{fill:var(--n-dim);opacity:.45}
.napkin .s0{fill:#4583c4}.napkin .s1{fill:#c08a2d}.napkin .s2{fill:#3f9a69}.napkin .s3{fill:#8f6fd8}
.napkin .s4{fill:#cc6a3a}.napkin .s5{fill:#808b9b}.napkin .s6{fill:#b5548b}.napkin .s7{fill:#3a8c8c}
.napkin figure{margin:.4em 0 .8em;max-width:46em}.napkin figcaption,.napkin .legend{color:var(--n-dim);font-size:.9em}
.napkin figure svg{width:100%;height:auto}.napkin figure text{font-size:12px;fill:var(--n-dim)}
.napkin figure .strong{font-weight:600;fill:currentColor}.napkin .capacity{stroke:currentColor;stroke-dasharray:4 3}
.napkin .whisker{stroke:currentColor;stroke-width:1.5;fill:none}
.napkin .legend{display:flex;flex-wrap:wrap;gap:0 1em;list-style:none;margin:.2em 0;padding:0}
.napkin .legend svg{display:inline-block;width:.7em;height:.7em;margin-right:.35em}
.napkin pre{margin:0;white-space:pre-wrap;font-size:.92em;background:none;color:inherit}
</style>"""


def to_html(answer: Answer) -> str:
    """Return the answer as HTML with its own style."""
    screen = answer.screen
    if screen.verbatim:
        return _wrapped(f"<pre>{_safe(screen.verbatim)}</pre>")
    parts = []
    if screen.question:
        parts.append(f"<p>{_safe(clauses(screen.question, 10**6))}</p>")
    if screen.headline:
        parts.append(_headline(SPACE.join(screen.headline), screen.verdict))
    parts += figures(answer.plot, WIDE)
    if screen is NO_SCREEN:
        table: Table | None = Table(
            (Column("quantity"), Column("value", right=True)), [(path, value) for path, value, _ in lines_of(answer)]
        )
    else:
        table = screen.table
    parts += [_table(one, colored(answer.plot)) for one in (table,) if one is not None]
    parts += [f'<p class="dim">{_safe(text)}</p>' for text in screen.remarks]
    parts += [_table(one) for one in (screen.more,) if one is not None]
    words = [*answer.assumed, *assumed_words(answer.inputs)]
    if words:
        parts.append(f'<p><span class="dim">assumed:</span> {_safe(", ".join(words))}</p>')
    if screen.next is not None:
        following = " ".join(next_pieces(screen.next, answer))
        parts.append(f'<p class="dim">next:</p><pre><code>{_safe(following)}</code></pre>')
    return _wrapped("".join(parts))


def _wrapped(body: str) -> str:
    return f'{STYLE}<div class="napkin">{body}</div>'


def _safe(text: str) -> str:
    """Return a text with HTML special characters and control characters escaped."""
    return escape(escaped(text, lambda c: c == "\n" or c.isprintable()))


def _headline(text: str, verdict: str) -> str:
    """Return line 2, each part in the color of its verdict."""
    shown = []
    for part in text.split(SPACE):
        tone = _tone(part.partition(":")[0]) or _tone(verdict)
        shown.append(f'<span class="{tone}">{_safe(part)}</span>' if tone else f"<span>{_safe(part)}</span>")
    return f'<p class="answer">{" ".join(shown)}</p>'


def _tone(word: str) -> str:
    return CLASSES.get(TONES.get(word, ""), "")


def _table(table: Table, named: Sequence[str] = ()) -> str:
    """Return a table; the first cell of a row is its heading. named: entries that have a color in the picture above the
    table."""
    if not table.rows:
        return ""
    used = [i for i, c in enumerate(table.columns) if c.name or any(row[i] != "" for row in table.rows)]
    columns = [table.columns[i] for i in used]
    head = ""
    if any(column.name for column in columns):
        names = "".join(
            f'<th scope="col" class="{"right" if c.right else "dim"}">{_safe(c.name)}</th>' if c.name else "<td></td>"
            for c in columns
        )
        head = f"<thead><tr>{names}</tr></thead>"
    rows = []
    for row in table.rows[:MOST_ROWS]:
        first, *rest = (row[i] for i in used)
        tone = color(named.index(str(first))) if first in named else ""
        cells = "".join(_cell(cell, column, tone) for cell, column in zip(rest, columns[1:], strict=True))
        heading = f'<th scope="row">{_safe(first)}</th>' if isinstance(first, str) else _cell(first, columns[0])
        rows.append(f"<tr>{heading}{cells}</tr>")
    left = len(table.rows) - MOST_ROWS
    more = f'<p class="dim">and {left:,} more rows</p>' if left > 0 else ""
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>{more}"


def _cell(cell: str | Bar, column: Column, tone: str = "") -> str:
    if isinstance(cell, Bar):
        return f'<td class="bar">{_bar(cell, tone)}</td>'
    tone = _tone(cell) or ("remark" if column.remark else "")
    names = " ".join(filter(None, ("right" if column.right else "", tone)))
    return f'<td class="{names}">{_safe(cell)}</td>' if names else f"<td>{_safe(cell)}</td>"


def _bar(bar: Bar, tone: str) -> str:
    """Return a bar as a picture that takes the width of its cell; nothing if its share is not known."""
    if bar.start != bar.start or bar.end != bar.end:
        return ""
    start, end = (100 * min(max(share, 0.0), 1.0) for share in (bar.start, bar.end))
    named = tone if bar.mark == "█" else "free"
    drawn = f' class="{named}"' if named else ""
    wide = max(end - start, 0.5 if bar.end > bar.start else 0.0)
    box = 'viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false"'
    return f'<svg {box}><rect{drawn} x="{start:.2f}" width="{wide:.2f}" height="10"/></svg>'

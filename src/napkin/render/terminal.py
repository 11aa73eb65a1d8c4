"""The answer as rich tables. Loaded only where stdout is a terminal that wants color."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from napkin.render.answer import Answer
from napkin.render.text import columns_of, explained, lines_of


def to_terminal(answer: Answer, explain: bool = False) -> str:
    """Return ANSI text as wide as the terminal."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, highlight=False)
    if answer.title:
        console.print(Text(answer.title, style="bold"))
    quantities = lines_of(answer)
    if quantities:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for style in ("cyan", "bold", "dim"):
            table.add_column(style=style, overflow="fold")
        for path, value, how in quantities:
            table.add_row(Text(path), Text(value), Text(f"= {how}" if how else ""))
        console.print(table)
    for picture in answer.pictures:
        for line in picture.splitlines() or [""]:
            drawn = any(cell in line for cell in "█▒·")  # a bar is cut at the edge, text is wrapped
            console.print(Text(line), no_wrap=drawn, overflow="crop" if drawn else "fold")
    if answer.rows is not None:
        names, cells = columns_of(answer)
        table = Table(box=None, header_style="bold cyan", padding=(0, 2, 0, 0))
        for name in names:
            table.add_column(name, overflow="fold")
        for row in cells:
            table.add_row(*(Text(c) for c in row))
        console.print(table)
    if answer.verdict:
        console.print(Text(f"verdict: {answer.verdict}", style="bold"))
    if explain:
        for line in ["", *explained(answer)]:
            console.print(Text(line, style="dim"))
    return out.getvalue()

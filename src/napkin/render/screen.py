"""Screen of an answer, stated by its command and laid out by render/page.py.

A command states its screen in words that a PyTorch user knows, each number formatted from a term that the answer
publishes, so that text and JSON agree:

    Screen(
        ("70B parameters on 15T tokens", "1,024 × H100 SXM 80GB", "MFU 0.5"),   line 1: the question
        ("143.9 days", "3.54 M GPU-hours"),                                     line 2: the answer
        table=quantities((("compute", "6.300e24 FLOP"), ("energy", "3.54 GWh", "1,363 t CO2e"))),
        next=Next({"mfu": None}),
    )

What does not fit a narrow terminal is dropped in a fixed order: the last parts of lines 1 and 2, the columns of the
table with the highest `drop`, the last clauses of a remark. Defaults among the inputs are added to the line `assumed:`
automatically."""

from __future__ import annotations

from collections.abc import Container, Sequence
from types import MappingProxyType

from napkin.elementwise import Number
from napkin.options.command_line import Texts
from napkin.record import record
from napkin.render.figures import share


@record
class Bar:
    """A cell drawn as a bar from `start` to `end`, as shares of the column's width."""

    end: float
    start: float = 0.0
    mark: str = "█"


@record
class Column:
    """A column of a table: its heading, alignment, and priority in a narrow terminal.

    drop: columns with the highest number are dropped first; 0 is never dropped. A `remark` loses its last clauses
    (after `; `) first. A last remark that `folds` continues on further lines instead: a sentence that is the answer."""

    name: str = ""
    right: bool = False
    drop: int = 0
    remark: bool = False
    folds: bool = False


@record
class Table:
    """Rows of cells, one line each; a heading line if a column has a name."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Bar]]


@record
class Next:
    """A command to paste: the question's own options with some changed, under its own command or another.

    changes  option → its new text, True for a flag, or None to leave it out
    command  "" for the question's own
    keep     options of the question that are kept; None: all. `under` (commands/next_command.py) derives them
    """

    changes: Texts = MappingProxyType({})
    command: str = ""
    keep: Container[str] | None = None


@record
class Screen:
    """The text form of an answer.

    question  line 1 as clauses              headline  line 2: the answer, its range, further figures
    verdict   the word that colors line 2; "" if nothing is judged
    table     the one table                  remarks   lines below it
    more      a table of other columns below them, such as what would fit
    next      the next command: the question with changed options, or a command line
    listing   the rows are the answer: there is no headline, and --quiet prints them without headings
    verbatim  a file that is the answer, printed as it is
    """

    question: Sequence[str]
    headline: Sequence[str] = ()
    verdict: str = ""
    table: Table | None = None
    remarks: Sequence[str] = ()
    more: Table | None = None
    next: Next | str | None = None
    listing: bool = False
    verbatim: str = ""


@record
class Display:
    """Display settings: width, color, and level of detail.

    verbose: include all quantities, inputs and notes   quiet: only line 2   paths: JSON paths in place of the table
    explain: include the tree of every quantity"""

    width: int = 80
    color: bool = False
    explain: bool = False
    verbose: bool = False
    quiet: bool = False
    paths: bool = False


QUANTITIES = (Column(), Column(right=True), Column(drop=1), Column(remark=True))
"""Columns of a table of quantities: name, value, bar, remark."""


def quantities(rows: Sequence[Sequence[str | Bar]], right: bool = True) -> Table:
    """Return a table of (label, value, remark) or (label, value, bar, remark); right: values flush right."""
    bars = any(isinstance(cell, Bar) for row in rows for cell in row)
    full = []
    for row in rows:
        label, value, *rest = row
        drawn: str | Bar = next((cell for cell in rest if isinstance(cell, Bar)), "")
        remark = next((cell for cell in rest if isinstance(cell, str) and cell), "")
        full.append((label, value, drawn, remark) if bars else (label, value, remark))
    columns = [QUANTITIES[0], Column(right=right), *([QUANTITIES[2]] if bars else []), QUANTITIES[3]]
    return Table(columns, full)


SHARES = (Column(), Column(right=True), Column(right=True), Column(drop=1), Column(remark=True))
"""Columns of a table of parts: name, value, share of the total, bar, remark."""


def shares(rows: Sequence[tuple[str, str, Number, str]]) -> Table:
    """Return a table of (label, value, share of the total, remark)."""
    return Table(SHARES, [(label, value, share(part), Bar(float(part)), said) for label, value, part, said in rows])

"""The full text of an answer: every quantity by its path, inputs with their origins, notes, the tree of terms."""

from __future__ import annotations

from napkin.render.answer import Answer
from napkin.render.columns import folded
from napkin.render.page import page_lines
from napkin.render.screen import Display
from napkin.term import ASSUMED, Term, expression
from napkin.units import human

LONGEST = 60
"""Characters of a value in the column of values."""


def lines_of(answer: Answer) -> list[tuple[str, str, str]]:
    """Return (path, value, expression) of every published quantity, an estimate with its interval."""
    found = []
    for term in answer.finite():
        value = human(term.value, term.unit)
        if term.name in answer.intervals:
            low, high = answer.intervals[term.name]
            value += f"  [{human(low, term.unit)} – {human(high, term.unit)}]"
        found.append((term.name, value, expression(term)))
    return found


def grid(rows: list[list[str]]) -> list[str]:
    """Return aligned columns, two spaces apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def to_text(answer: Answer, view: Display) -> str:
    """Return the answer with the requested details: paths, all quantities, notes, the tree of terms."""
    listed = quantity_lines(answer, view.width) if view.paths else None
    out = page_lines(answer.screen, answer, view, listed)
    if view.verbose and not view.quiet:
        quantities = [] if view.paths else quantity_lines(answer, view.width, how=True)
        out += ["", "quantities", *quantities] if quantities else []
        out += ["", "inputs", *_inputs(answer)]
        out += [""] if answer.notes else []
        for note in answer.notes:
            out += folded(f"note: {note}", view.width, "", "      ")
    if view.explain and (answer.terms or answer.rows is None):  # rows have no tree
        out += ["", *explained(answer)]
    return "\n".join(out) + "\n"


def quantity_lines(answer: Answer, width: int, how: bool = False) -> list[str]:
    """Return a line for every published quantity: its path, its value, its interval; how: its formula below it if
    that is too long for the line."""
    lines = []
    rows = [(path, value, f"= {said}" if how and said else "") for path, value, said in lines_of(answer)]
    for line, (_, _, said) in zip(grid([[path, value] for path, value, _ in rows]) if rows else [], rows, strict=True):
        if said and len(line) + len(said) + 4 <= width:
            lines.append(f"  {line}  {said}")
        else:
            lines += [f"  {line}", *(folded(said, width, " " * 6, " " * 8) if said else [])]
    return lines


def explained(answer: Answer) -> list[str]:
    """Return every published quantity down to its leaves; a subtree that was already shown is only named."""
    lines: list[str] = []
    shown: set[str] = set()
    published = {term.name for term in answer.finite() if not term.parts}
    for term in answer.finite():
        if term.name not in shown:
            _explain(term, 0, lines, shown, published)
    return [*lines, "", "inputs", *_inputs(answer), "", rests_on(answer)]


def explained_term(term: Term) -> list[str]:
    """Return one quantity down to its leaves."""
    lines: list[str] = []
    _explain(term, 0, lines, set(), set())
    return lines


def _inputs(answer: Answer) -> list[str]:
    """Return a line for every input: its value and where it came from. A long value, such as a pasted config.json, is
    last and widens no column."""
    rows = []
    for name, i in answer.inputs.items():
        value = str(i.value)
        if isinstance(i.value, (int, float)) and not isinstance(i.value, bool):
            value = human(i.value, i.unit)
        origin = i.origin + (f": {i.text}" if i.text not in (None, str(i.value)) else "")
        origin += f" ({i.where})" if i.where else ""
        rows.append([f"  {name}", value, origin] if len(value) <= LONGEST else [f"  {name}", "", f"{origin}: {value}"])
    return grid(rows) if rows else ["  none"]


def _explain(term: Term, depth: int, lines: list[str], shown: set[str], published: set[str]) -> None:
    """Add the lines of a term; published: leaves with a separate line, which are not repeated below their sum."""
    how = expression(term)
    text = f"{'  ' * depth}{term.name} = {human(term.value, term.unit)}"
    if not term.parts:
        text += f"  ({term.kind})"
    elif term.name in shown:
        lines.append(f"{text}  (above)")
        return
    else:
        text += f" = {how}"
    lines.append(text + (f"  [{term.source}]" if term.source else ""))
    shown.add(term.name)
    for part in term.parts:
        if part.name in published and part.name in shown:
            continue
        if part.parts or part.op != "constant" or part.unit != "1" or not isinstance(part.value, int) or part.source:
            _explain(part, depth + 1, lines, shown, published)


def rests_on(answer: Answer) -> str:
    """Return the number of inputs of each kind that the answer depends on, the assumed ones by name."""
    leaves: dict[tuple[str, str], Term] = {}
    for term in answer.finite():
        for node in term.walk():
            if not node.parts:
                leaves[(node.kind, node.name)] = node
    counts: dict[str, int] = {}
    for kind, _ in leaves:
        counts[kind] = counts.get(kind, 0) + 1
    text = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    assumed = [name for kind, name in leaves if kind == ASSUMED]
    return f"rests on {text or 'no number'}" + (f"; assumed: {', '.join(assumed)}" if assumed else "")

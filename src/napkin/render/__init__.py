"""Renderers of an answer. Each is a pure function Answer → str without arithmetic except the choice of units.

Begin with answer.py, what a command hands over, and screen.py, what of it a person sees; page.py lays out text, json.py
and tables.py write the other forms, and plot.py draws the series of chart.py.
"""

from __future__ import annotations

from napkin.errors import escaped
from napkin.record import replace
from napkin.render.answer import NO_SCREEN, Answer
from napkin.render.screen import Display

AS_PIPED = Display()


def _escaped(text: str, color: bool) -> str:
    """Return a text with its control characters escaped, except for color codes; names and files may contain some."""
    if text.replace("\n", "").isprintable():
        return text
    head, *rest = text.split("\x1b")
    shown = (("\x1b" if color and _is_color(one) else "\\x1b") + escaped(one, _is_shown) for one in rest)
    return escaped(head, _is_shown) + "".join(shown)


def _is_shown(character: str) -> bool:
    return character == "\n" or character.isprintable()


def _is_color(text: str) -> bool:
    """Return whether a text after an escape is a color code: digits and semicolons, then `m`."""
    codes, end, _ = text.partition("m")
    return bool(end) and codes[:1] == "[" and all(c in "0123456789;" for c in codes[1:])


def render(answer: Answer, form: str, view: Display = AS_PIPED) -> str:
    """Return the answer as text, json, csv or markdown."""
    if form == "json":
        from napkin.render.json import to_json

        return to_json(answer, view.explain)
    if form in ("csv", "markdown"):
        from napkin.render import tables

        return tables.to_csv(answer) if form == "csv" else _escaped(tables.to_markdown(answer, view.explain), False)
    if answer.screen is NO_SCREEN:  # its command states none yet: every quantity by its path
        view = replace(view, paths=True, quiet=False)
    if view.verbose or view.explain or view.paths:
        from napkin.render.text import to_text

        return _escaped(to_text(answer, view), view.color)
    from napkin.render.page import page_lines

    return _escaped("\n".join(page_lines(answer.screen, answer, view)) + "\n", view.color)

"""One answer, many exporters. Each renderer is a pure function Answer → str; no arithmetic but the choice of unit."""

from __future__ import annotations

from napkin.render.answer import Answer
from napkin.render.screen import View

AS_PIPED = View()


def render(answer: Answer, form: str, view: View = AS_PIPED) -> str:
    """Return the answer as text, json, csv or markdown."""
    if form == "json":
        from napkin.render.json import to_json

        return to_json(answer, view.explain)
    if form in ("csv", "markdown"):
        from napkin.render import tables

        return tables.to_csv(answer) if form == "csv" else tables.to_markdown(answer, view.explain)
    if view.verbose or view.explain or view.paths:
        from napkin.render.text import to_text

        return to_text(answer, view)
    from napkin.render.page import page_lines

    return "\n".join(page_lines(answer.screen, answer, view)) + "\n"

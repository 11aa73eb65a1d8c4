"""One answer, many exporters. Each renderer is a pure function Answer → str; no arithmetic but the choice of unit."""

from __future__ import annotations

from napkin.render.answer import Answer


def render(answer: Answer, form: str, explain: bool = False, rich: bool = False) -> str:
    """Return the answer as text, json, csv or markdown."""
    if form == "json":
        from napkin.render.json import to_json

        return to_json(answer, explain)
    if form in ("csv", "markdown"):
        from napkin.render import tables

        return tables.to_csv(answer) if form == "csv" else tables.to_markdown(answer, explain)
    if rich:
        from napkin.render.terminal import to_terminal

        return to_terminal(answer, explain)
    from napkin.render.text import to_text

    return to_text(answer, explain)

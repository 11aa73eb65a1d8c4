"""The shipped evidence as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import Document

TYPE_CHECKING = False  # mypy takes it as true; an estimate of a run reads the rows of runs only
if TYPE_CHECKING:
    from typing import Any

    from napkin.evidence.rows.runs import RunRow
    from napkin.evidence.rows.steps import StepRow

SHARED_PARTS = ("layout", "hardware", "convention")
"""Parts of a row that its source may state once for all rows; a row's own fields win."""


def expanded(rows: list[dict[str, Any]], sources: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[RowFields]:
    """Yield the rows of a table, which name their source and model by key, in the form of a published file."""
    document = Document("evidence", None)
    for index, row in enumerate(rows):
        source = sources[row["source"]]
        model = {**models[row["model"]]}
        common = {part: {**source[part], **row.get(part, {})} for part in SHARED_PARTS if part in source}
        for key in ("seq", "params"):
            if key in row:
                model[key] = row[key]
        title = source["pages"][row.get("page", 0)]
        page = {"key": row["source"], "title": title, "where": row["where"]}
        yield RowFields(document, index, {**row, **common, "model": model, "source": page})


def steps() -> list[StepRow]:
    """Return the published training steps."""
    from napkin._tables import published_steps as table
    from napkin.evidence.rows.steps import step_row

    return [step_row(row) for row in expanded(table.ROWS, table.SOURCES, table.MODELS)]


def memory() -> list[RowFields]:
    """Return the rows of published memory."""
    from napkin._tables import published_memory as table

    return list(expanded(table.ROWS, table.SOURCES, table.MODELS))


def runs() -> list[RunRow]:
    """Return the published complete runs."""
    from napkin._tables import published_runs as table
    from napkin.evidence.rows.runs import run_row

    document = Document("evidence", None)
    return [run_row(RowFields(document, index, row)) for index, row in enumerate(table.ROWS)]


def step_sources() -> dict[str, str]:
    """Return each source's name as answers print it, by its key."""
    from napkin._tables import published_steps as table

    return {key: source["name"] for key, source in table.SOURCES.items()}


def memory_sources() -> dict[str, str]:
    """Return the source's name as answers print it, by the title of a page with published memory."""
    from napkin._tables import published_memory as table

    return {page: source["name"] for source in table.SOURCES.values() for page in source["pages"]}

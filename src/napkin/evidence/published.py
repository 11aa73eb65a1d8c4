"""Read measured runs as people publish them: training steps, memory, complete runs.

Rows of a file in one of the forms

    schema: steps/1      id source model hardware layout measured [convention] [suspect] [note]
    schema: memory/1     id source model hardware layout memory [suspect] [note]
    schema: endtoend/1   id model params_active tokens accelerator device_hours [count precision peak_dtype …]

become records of what a planner knows beforehand, and apart from it the one quantity that was measured. A stated MFU,
rate or time of a row never reaches the part that predicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from napkin.errors import NapkinError
from napkin.evidence.recognize import of_memory, of_step, recognized
from napkin.evidence.rows import RowFields
from napkin.evidence.step_rows import StepRow, step_row
from napkin.inputs.load import Document, printable
from napkin.inputs.yaml_file import read_yaml
from napkin.record import record

STEPS, MEMORY, RUNS = "steps/1", "memory/1", "endtoend/1"


@record
class RunRow:
    """One published whole run."""

    id: str
    source: str
    team: str
    model: str
    active: float
    total: float
    tokens: float
    chip: str
    gpus: int | None
    year: float | None
    dtype: str
    seq: int | None
    experts: bool
    basis: str
    hours: float | None
    suspect: str = ""
    why: str = ""


@record
class Published:
    """The rows of a published file, or of the evidence: those of its schema's kind."""

    steps: list[StepRow]
    memory: list[RowFields]
    runs: list[RunRow]


def read(path: str) -> Published:
    """Return the rows of a file, the facts of their prose filled in. The memory model reads its rows field by field."""
    document = read_yaml(path)
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        raise NapkinError(f"{document.name}: has no list of rows", "a mapping with schema: and rows:")
    schema = data.get("schema")
    if schema not in (STEPS, MEMORY, RUNS):
        raise NapkinError(
            f"{document.place('schema')}: unknown schema {printable(repr(schema), 60)}", f"{STEPS}, {MEMORY} or {RUNS}"
        )
    if not data["rows"]:
        raise NapkinError(f"{document.place('rows')}: is empty", "a row a run")
    rows = list(_rows(document, data["rows"]))
    return Published(
        [step_row(recognized(row, of_step)) for row in rows] if schema == STEPS else [],
        [recognized(row, of_memory) for row in rows] if schema == MEMORY else [],
        [run_row(row) for row in rows] if schema == RUNS else [],
    )


def _rows(document: Document, rows: list[Any]) -> Iterator[RowFields]:
    seen: set[str] = set()
    for index, fields in enumerate(rows):
        row = RowFields(document, index, fields if isinstance(fields, dict) else {})
        if not isinstance(fields, dict):
            raise row.wrong("", "is not a mapping")
        name = fields.get("id")
        if not isinstance(name, str) or not name:
            raise row.wrong("id", "is missing")
        if name in seen:
            raise row.wrong("id", f"{printable(name, 60)} appears twice")
        seen.add(name)
        yield row


def run_row(row: RowFields) -> RunRow:
    """Return a row as a complete run; `why` says what keeps its utilization from being predicted."""
    active, tokens = row.number("params_active", least=1), row.number("tokens", least=1)
    hours = row.number("device_hours")
    kind = row.text("kind") or "pretrain"
    check = row.text("check")
    why = ""
    if kind != "pretrain":
        why = f"is a {kind} run, not a pre-training from the start"
    elif active is None or tokens is None:
        why = "active parameters or tokens are not stated"
    elif not row.text("accelerator"):
        why = "the accelerator is not stated"
    elif check in ("none", "flop", "flop_vs_6nd"):
        why = "its FLOPs are not 6·N·D (see its note)" if check != "flop" else "its tokens are not what it computed on"
    total = row.number("params_total", least=1) or active or 0.0
    year = row.number("year")
    return RunRow(
        row.text("id"),
        row.text("source"),
        row.text("organisation"),
        row.text("model"),
        active or 0.0,
        total,
        tokens or 0.0,
        row.text("accelerator"),
        row.count("count"),
        year,
        row.text("peak_dtype") or "bf16",
        row.count("seq_len"),
        bool(active and total > 1.2 * active),
        row.text("hours_basis"),
        hours,
        row.text("suspect"),
        why,
    )

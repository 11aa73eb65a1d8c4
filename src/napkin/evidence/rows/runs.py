"""Read the rows of complete runs, schema `endtoend/1`."""

from __future__ import annotations

from napkin.evidence.rows.row import RowFields
from napkin.inputs.load import printable
from napkin.record import record

RUN_KINDS = ("production", "benchmark", "speedrun")
SAID_BY = {"benchmark": ("mlperf", "mlcommons"), "speedrun": ("speedrun", "records/track")}
"""Kind of run → words of an id, a source or a model that say it: where submissions and records are published."""


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
    run_kind: str = "production"
    precision: str = ""


def run_row(row: RowFields) -> RunRow:
    """Return a row as a complete run; `why` says what keeps its utilization from being predicted."""
    active, tokens = row.number("params_active", least=1), row.number("tokens", least=1)
    hours = row.number("device_hours")
    kind = row.text("kind") or "pretrain"
    run_kind = run_kind_of(row)
    check = row.text("check")
    why = ""
    if kind not in ("pretrain", *RUN_KINDS):
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
        row.text("organisation") or submitter(row.text("source")),
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
        run_kind,
        row.text("precision"),
    )


def run_kind_of(row: RowFields) -> str:
    """Return what kind of run a row is: as it states, else by the submission or the speedrun that it comes from."""
    stated = row.text("run_kind")
    if stated and stated not in RUN_KINDS:
        raise row.wrong("run_kind", f"{printable(stated, 60)} is not one of {', '.join(RUN_KINDS)}")
    if stated or row.text("kind") in RUN_KINDS:
        return stated or row.text("kind")
    said = " ".join(_words(row.fields.get(name)) for name in ("id", "source", "model")).lower()
    return next((kind for kind, words in SAID_BY.items() if any(word in said for word in words)), "production")


def _words(said: object) -> str:
    """Return the words of a field: itself, or its title, place and name."""
    if isinstance(said, dict):
        return " ".join(str(said.get(name, "")) for name in ("title", "where", "name"))
    return str(said or "")


def submitter(source: str) -> str:
    """Return who submitted a benchmark's result, from the path in MLCommons' repositories, "" if it is none; joint
    submissions are the last one's, whose software it is."""
    _, found, path = source.partition("training_results_v")
    parts = path.split()[1].split("/") if found and len(path.split()) > 1 else path.split("/")[1:]
    return parts[0].split("+")[-1] if parts else ""

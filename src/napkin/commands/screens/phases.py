"""Screen of a run with phases: the entire run, and each phase."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.errors import HELD
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import amount, interval
from napkin.render.page import next_pieces
from napkin.render.screen import Bar, Column, Screen, Table
from napkin.units import human

MOST = 12
"""Number of phases that fit on a screen."""


def screen(whole: Answer, answers: Sequence[Answer]) -> Screen:
    """Return the screen of a run with phases."""
    terms = whole.by_path()
    time = terms["time"].value
    rows = list(whole.rows or ())
    head = [human(time, "second")]
    if whole.verdict is not None:
        head.append(whole.verdict.upper() if whole.verdict not in HELD.values() else f"{whole.verdict.upper()}: limits")
    if "time" in whole.intervals:
        asked = whole.inputs.get("confidence")
        level = 0.9 if asked is None else float(str(asked.value).rstrip("%")) / 100
        head.append(interval(whole.intervals["time"], time, "second", level))
    head += [human(terms[path].value, terms[path].unit) for path in ("cost", "gpu_hours") if path in terms]
    longest = max(range(len(answers)), key=lambda at: number_in(rows[at], "time"))
    following = answers[longest].screen.next
    return Screen(
        _question(whole, rows),
        head,
        whole.verdict or "",
        _parts(rows, float(time)),
        [f"{len(rows) - MOST} more phases are in --json"] if len(rows) > MOST else [],
        next=None if following is None else " ".join(next_pieces(following, answers[longest])),
    )


def _question(whole: Answer, rows: Sequence[Row]) -> list[str]:
    """Return the question as clauses: the model, its tokens, the machine, and the number of phases."""
    inputs, terms = whole.inputs, whole.by_path()
    if "model" in inputs:
        named = str(inputs["model"].value)
    else:
        named = f"{amount(terms['params'].value)} parameters" if "params" in terms else "a model"
    tokens = sum(number_in(row, "tokens") for row in rows)
    gpus = human(terms["gpus"].value, "1")
    parts = f"{len(rows)} phase{'s' * (len(rows) > 1)}"
    return [f"{named} on {amount(tokens)} tokens", f"{gpus} × {inputs['hardware'].value}", parts]


def _parts(rows: Sequence[Row], time: float) -> Table:
    """Return the phases, each with its share of the time."""
    lengths, batches = any("seq" in row for row in rows), any(row.get("global-batch") for row in rows)
    columns = [
        Column("phase"),
        Column("GPUs", True, 2),
        *([Column("seq", True, 3)] if lengths else []),
        *([Column("batch", True, 4)] if batches else []),
        Column("tokens", True, 1),
        Column("time", True),
        Column("MFU", True, 5),
        Column("", False, 6),
    ]
    cells: list[list[str | Bar]] = []
    for row in rows[:MOST]:
        cells.append(
            [
                str(row["phase"]),
                f"{number_in(row, 'gpus'):,.0f}",
                *([f"{number_in(row, 'seq'):,.0f}" if "seq" in row else ""] if lengths else []),
                *([f"{number_in(row, 'global-batch'):,.0f}" if row.get("global-batch") else ""] if batches else []),
                amount(number_in(row, "tokens")) if "tokens" in row else "",
                human(number_in(row, "time"), "second", 3),
                f"{number_in(row, 'mfu'):.2f}" if "mfu" in row else "",
                Bar(number_in(row, "time") / time),
            ]
        )
    return Table(columns, cells)

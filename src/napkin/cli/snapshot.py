"""`napkin memory MODEL --snapshot FILE`: what a torch memory snapshot shows beside what napkin predicts."""

from __future__ import annotations

from typing import Any

from napkin.cli.command import Inputs
from napkin.formulas import buckets
from napkin.formulas.fit import Fit
from napkin.formulas.memory import Moment
from napkin.inputs.snapshot import read_snapshot
from napkin.render.answer import Answer
from napkin.term import MEASURED, Term, leaf

OURS = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "activations": ("activations", "weight_casts", "inputs", "temporaries"),
}
"""Buckets of a snapshot, and those of a moment that they hold."""


def compare(inputs: Inputs, found: Fit, terms: dict[str, Term], title: str) -> Answer:
    """Seen and predicted by bucket, at the predicted moment that is nearest to what was allocated."""
    path = inputs.get("snapshot")
    seen = read_snapshot(path, inputs.get("snapshot-device"))
    answer = Answer("memory", f"{title}, beside {path}", tuple(terms.values()))
    answer.intervals = {**found.reported.ends, "memory/total": found.reported.ends["memory/used"]}
    rows: list[dict[str, Any]] = []
    for name in ("allocated", "reserved"):
        value = getattr(seen, name)
        if value is not None:
            predicted = terms[f"memory/{name}"].value
            rows.append(_row(f"largest {name}", value, predicted))
            answer.terms = (*answer.terms, leaf(f"seen/{name}", value, "byte", MEASURED, path))
    if seen.buckets is not None and seen.at_dump is not None:
        moment = _nearest(found.rank.moments, seen.at_dump)
        for bucket, parts in OURS.items():
            predicted = sum(getattr(moment, part) for part in parts)
            rows.append(_row(f"{bucket} when it was taken", seen.buckets.get(bucket, 0), predicted))
        rows.append(_row("unexplained when it was taken", seen.buckets.get("unexplained", 0), 0))
        rows.append(_row("all when it was taken", seen.at_dump, moment.live))
        answer.terms = (*answer.terms, leaf("seen/at_dump", seen.at_dump, "byte", MEASURED, path))
        answer.notes.append(f"what was allocated when the snapshot was taken is nearest to the {moment.name}")
    answer.rows, answer.rows_name = [*rows], "seen"
    answer.extra["units"] = {"seen": "byte", "predicted": "byte", "unexplained": "byte"}
    answer.listed = False
    answer.notes.append(f"predicted peak in the {buckets.peak_of(found.rank).name}")
    return answer


def _row(what: str, seen: int, predicted: float) -> dict[str, Any]:
    return {"what": what, "seen": seen, "predicted": predicted, "unexplained": seen - predicted}


def _nearest(moments: tuple[Moment, ...], allocated: int) -> Moment:
    return min(moments, key=lambda moment: abs(float(moment.live) - allocated))

"""Predicted against published complete runs, each with its own team held out."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.errors import NapkinError
from napkin.evidence.predictions import runs
from napkin.evidence.rows.runs import RunRow
from napkin.evidence.rows.teams import team_of
from napkin.evidence.validation.compared import Compared
from napkin.inputs import hardware
from napkin.record import replace


def validated(
    rows: Sequence[RunRow], level: float = 0.9, in_sample: bool = False
) -> list[tuple[RunRow, runs.Estimate | None, float]]:
    """Return each row with its team, the utilization by a rule fitted without that team, and the peak in FLOP/s that
    the utilization is taken against; None where `why` says what is missing."""
    published = runs.evidence()
    known = {run.row.id: run for run in published}
    cache: dict[tuple[str, bool], runs.FittedRule] = {}
    answers: list[tuple[RunRow, runs.Estimate | None, float]] = []
    for row in rows:
        twin = known.get(row.id)
        team = row.team or (twin.row.team if twin else "") or team_of(row.model)
        row = replace(row, team=team)
        try:
            card = hardware.find(row.chip) if not row.why else None
        except NapkinError as problem:
            row, card = replace(row, why=problem.message), None
        if card is None:
            answers.append((row, None, 0.0))
            continue
        year = row.year or (twin.row.year if twin else usual_year(row))
        key = (team, row.run_kind == runs.BENCHMARK)
        if key not in cache:
            judges = runs.judging(published, row.run_kind)
            cache[key] = runs.FittedRule(judges if in_sample else runs.without(judges, team), level)
        asked = runs.PlannedRun(row.active, row.total, card, row.gpus, year, row.seq, row.run_kind, row.precision)
        answers.append((row, runs.estimate(asked, cache[key]), runs.peak_of(card, row.dtype)))
    return answers


def compared(rows: Sequence[RunRow], level: float, inside: bool) -> list[Compared]:
    """Return published whole runs in device-hours, each with its own organization held out unless `inside`."""
    answers = []
    for row, found, peak in validated(rows, level, inside):
        group = row.team or row.model
        if found is None:
            answers.append(
                Compared(row.id, "device_hours", None, None, None, row.hours, group, row.why, "", row.suspect, group)
            )
            continue
        done, held = runs.flops_of(row), runs.share_held(row)
        middle, low, high = (runs.hours(done, peak, u) * held for u in (found.mfu, found.high, found.low))
        why = "" if row.hours else "its hours are not published"
        answers.append(
            Compared(row.id, "device_hours", middle, low, high, row.hours, group, why, "", row.suspect, group)
        )
    return answers


def usual_year(row: RunRow) -> float:
    """Return the year if neither row nor evidence states it: the model's publication, else when such chips ran."""
    from napkin.inputs.presets import fields_of, named, spelling

    known = named(spelling(row.model))
    if known is not None:
        published: float = fields_of(known)["published"]
        return published
    card = hardware.find(row.chip)
    return card.run_year or (2022 if row.dtype == "fp16" else runs.MODERN)

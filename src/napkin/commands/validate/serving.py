"""Rows of measured serving (schema serving/1): each measured quantity with its prediction."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from napkin.commands.validate.served import Predicted
from napkin.errors import NapkinError
from napkin.evidence.published import MAIN
from napkin.evidence.rates.machines import gpus_per_node
from napkin.evidence.rows.files import SERVING
from napkin.evidence.rows.keys import SERVED_RATES, SERVED_SIZES, SERVED_TIMES
from napkin.evidence.rows.row import RowFields, WrongRow
from napkin.evidence.serving.errors import class_of, half_width, source_key
from napkin.evidence.serving.generation import effects, rates_on
from napkin.evidence.serving.rows import ServedRow, served_row
from napkin.evidence.validation.compared import Compared
from napkin.inputs.load import printable
from napkin.record import record, replace
from napkin.units import plain

QUANTITIES = tuple(f"{SERVED_RATES} {SERVED_TIMES} {SERVED_SIZES}".split())
"""Keys of `measured` that are predicted, in display order."""
FITTED_LINE, LINE, AT_CONTEXT = "itl_fit_ms", ("intercept", "slope_per_context_token"), 1000
"""A line that a source fits to the time per token over the context: it is read at this many tokens."""
PRINTED = re.compile(r"~?\s*([0-9][0-9,]*(?:\.[0-9]+)?)\s*([kKM]?)")
THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}


@record
class MeasuredServing:
    """A measured quantity of a row. over: tokens that the rate is about, 0: from the load; value: None if it is not
    printed as a number."""

    name: str
    value: float | None
    over: int = 0


def measured(row: RowFields) -> Iterator[MeasuredServing]:
    """Yield each quantity that a row measured directly; those that follow from others are omitted. A mapping of
    lengths to rates (llama-bench) is one quantity for each length."""
    stated = row.part("measured")
    derived = stated.get("derived") or ()
    if not isinstance(derived, list | tuple):
        raise row.wrong("measured.derived", "is not a list of keys")
    fit = stated.get(FITTED_LINE)
    if isinstance(fit, dict) and all(isinstance(fit.get(part), int | float) for part in LINE):
        yield MeasuredServing("itl_ms", _number(row, FITTED_LINE, fit[LINE[0]] + AT_CONTEXT * fit[LINE[1]]), AT_CONTEXT)
    for name in QUANTITIES:
        if name not in stated or name in derived:
            continue
        found = stated[name]
        for over, value in found.items() if isinstance(found, dict) else [(0, found)]:
            tokens = plain(str(over))
            if tokens is None or tokens < 0:
                raise row.wrong(f"measured.{name}", f"{printable(repr(over), 40)} is not a number of tokens")
            yield MeasuredServing(name, _number(row, name, value), tokens)


def _number(row: RowFields, name: str, value: object) -> float | None:
    """Return a printed figure (30k, ~23) as a number, None if it is words."""
    if isinstance(value, str):
        found = PRINTED.fullmatch(value.strip())
        return float(found[1].replace(",", "")) * THOUSANDS[found[2]] if found else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise row.wrong(f"measured.{name}", f"{printable(repr(value), 40)} is not a positive number")
    return float(value)


def compared(row: RowFields, level: float, inside: bool) -> list[Compared]:
    """Return the measured quantities of a row with their predictions, or the reason for a missing one; at least one
    entry."""
    try:
        return _compared(row, level, inside) or [_silent(row, _unmeasured(row))]
    except WrongRow as problem:
        return [_silent(row, problem.message)]


def _silent(row: RowFields, why: str) -> Compared:
    """Return the entry of a row that cannot be used."""
    title = _title(row)
    return Compared(row.text("id"), MAIN[SERVING], None, None, None, None, title, why, group=title)


def _title(row: RowFields) -> str:
    """Return the title of a row's source: its title field, or the entire source."""
    said = row.fields.get("source")
    title = said.get("title") if isinstance(said, dict) else said
    return printable(title, 400) if isinstance(title, str) else ""


def _unmeasured(row: RowFields) -> str:
    """Return why a row has nothing to compare with a prediction."""
    stated = [name for name, value in row.part("measured").items() if value is not None and name != "derived"]
    names = ", ".join(printable(f"measured.{name}", 60) for name in stated[:3])
    said = f"{names}: not read" if names else "nothing is measured"
    return f"{said}; measured takes {', '.join(QUANTITIES[:8])} and others (docs/accuracy.md)"


def _compared(row: RowFields, level: float, inside: bool) -> list[Compared]:
    """Return an entry for each measured quantity of a row."""
    title = _title(row)
    without = "" if inside else source_key(title)
    asked: Predicted | None = None
    why, rests = "", ""
    try:
        found = served_row(row)
        asked = prediction(found, without)
        rests = class_of(found.family, found.hardware.generation, without)
    except WrongRow:
        raise
    except NapkinError as problem:
        why = problem.message
    answers = []
    for one in measured(row):
        value, reason = None, why
        if asked is not None and one.value is None:
            reason = f"measured.{one.name} is printed in words: {row.text(f'measured.{one.name}')[:40]}"
        elif asked is not None:
            try:
                value = asked.value(one.name, one.over)
            except NapkinError as problem:
                reason = problem.message
        low = high = None
        if value is not None:
            half = half_width(one.name, rests, level, without)
            low, high = value * math.exp(-half), value * math.exp(half)
        answers.append(
            Compared(
                row.text("id"),
                one.name,
                value,
                low,
                high,
                one.value,
                title,
                reason,
                "",
                row.text("suspect"),
                title,
                evidence=rests if value is not None else "",
            )
        )
    return answers


def prediction(asked: ServedRow, without: str) -> Predicted:
    """Return the predictions for a row, with effects fitted without one source."""
    rates = rates_on(asked.hardware, asked.computed, asked.family, without)
    rates = replace(rates, node=gpus_per_node(asked.hardware, asked.per_node))
    return Predicted(asked, rates, effects(without).get("limited", 0.0), {})

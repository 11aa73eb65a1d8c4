"""What a person sees of `plan` over several accelerators: the machine to take, and the others with their prices."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.plan.market_question import MarketQuestion
from napkin.render.answer import Answer, Cell, Row, number_in
from napkin.render.figures import amount, between, briefly
from napkin.render.screen import Column, Screen, Table
from napkin.units import human

MOST = 12
"""Machines that a screen has room for."""


def screen(question: MarketQuestion, answer: Answer, chosen: Mapping[str, Cell]) -> Screen:
    """Return the screen of several machines."""
    rows = [row for row in answer.rows or () if "cost" in row]
    shown = [row for row in rows if row["pareto"] or row["recommended"]]
    shown += [row for row in rows if row not in shown][: max(MOST - len(shown), 0)]
    hidden = len(rows) - len(shown)
    said = [f"{row['name']}: {row['why']}" for row in answer.rows or () if "why" in row][:3]
    if hidden:
        said.append(f"{hidden} more machines are in --json; * no other is both faster and cheaper")
    else:
        said.append("* no other is both faster and cheaper")
    if not question.offers[0].own:
        said.append("USD/h is the median of what sellers ask, with its date; --price takes yours")
    return Screen(
        _question(question, answer),
        _headline(answer, chosen),
        answer.verdict or "",
        Table(
            (
                Column("machine"),
                Column("GPUs", True),
                Column("run", True),
                Column("USD/h", True, 2),
                Column("as of", False, 3),
                Column("cost", True),
                Column("MFU", True, 4),
                Column("", False, 1),
            ),
            [_cells(row) for row in sorted(shown, key=lambda row: number_in(row, "cost"))],
        ),
        said,
        next=f"napkin {chosen['command']}"
        if not str(chosen["command"]).startswith("napkin")
        else str(chosen["command"]),
    )


def _question(question: MarketQuestion, answer: Answer) -> list[str]:
    """Return what was asked, as clauses."""
    length = {name: shown.value for name, shown in answer.inputs.items()}
    said = next(f"{amount(number_in(length, name))} {name}" for name in ("tokens", "steps") if name in length)
    asked = [f"{question.model} on {said}", f"{len(question.offers)} accelerators"]
    if question.deadline is not None:
        asked.append(f"within {briefly(question.deadline, 'second')}")
    if question.budget is not None:
        asked.append(f"for {human(question.budget, 'USD')}")
    return asked


def _headline(answer: Answer, chosen: Mapping[str, Cell]) -> list[str]:
    """Return the machine to take, its cost and time."""
    terms = answer.by_path()
    cost, time = terms["cost"].value, terms["time"].value
    machine = f"{human(terms['gpus'].value, '1')} × {chosen['name']}"
    ends = answer.intervals["cost"]
    head = [human(cost, "USD"), machine, human(time, "second"), f"90%: {between(ends[0], ends[1], 'USD', cost)}"]
    return [f"IMPOSSIBLE: {chosen['misses']}", *head] if answer.verdict else head


def _cells(row: Row) -> list[str]:
    """Return a machine as cells."""
    mark = " ".join(part for part in ("*" * bool(row["pareto"]), "<- use" if row["recommended"] else "") if part)
    late = "late" if row.get("misses") and "--within" in str(row["misses"]) else ""
    return [
        str(row["name"]),
        f"{number_in(row, 'gpus'):,.0f}",
        human(number_in(row, "time"), "second", 3),
        f"{number_in(row, 'price'):.2f}",
        str(row["price/date"]),
        human(number_in(row, "cost"), "USD"),
        f"{number_in(row, 'mfu'):.2f}" if "mfu" in row else "",
        mark or late,
    ]

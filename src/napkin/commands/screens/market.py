"""Screen of `plan` over several accelerators: the recommended machine, and the others with their prices.

`serve` over several accelerators lists its machines in the same way (serve_market.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.plan.market_question import MarketQuestion
from napkin.commands.question.offers import Offer
from napkin.render.answer import Answer, Cell, Row, number_in
from napkin.render.figures import amount, between, limits
from napkin.render.screen import Column, Screen, Table
from napkin.units import human

MOST = 12
"""Machines that fit on a screen."""


def screen(question: MarketQuestion, answer: Answer, chosen: Mapping[str, Cell]) -> Screen:
    """Return the screen of several machines."""
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
            [_cells(row) for row in sorted(shown(answer), key=lambda row: number_in(row, "cost"))],
        ),
        remarks(answer, question.offers, "* no other is both faster and cheaper"),
        next=f"napkin {chosen['command']}"
        if not str(chosen["command"]).startswith("napkin")
        else str(chosen["command"]),
    )


def shown(answer: Answer) -> list[Row]:
    """Return the listed machines: the Pareto front, the recommended one, and the first of the others."""
    rows = [row for row in answer.rows or () if "cost" in row]
    listed = [row for row in rows if row["pareto"] or row["recommended"]]
    others = [row for row in rows if row not in listed]
    return listed + others[: max(MOST - len(listed), 0)]


def remarks(answer: Answer, offers: Sequence[Offer], star: str) -> list[str]:
    """Return remarks: why some machines are excluded, what is not listed, and the source of the prices; star: the
    meaning of the mark on the Pareto front."""
    said = [f"{row['name']}: {row['why']}" for row in answer.rows or () if "why" in row][:3]
    hidden = len(answer.rows or ()) - len(shown(answer)) - len(said)
    more = f"{hidden} more {'is' if hidden == 1 else 'are'} in --json; "
    said.append(more * bool(hidden) + star)
    if not offers[0].own:
        said.append("USD/h is the median of what sellers ask, with its date; --price takes yours")
    return said


def mark(row: Row) -> str:
    """Return the marks of a machine: on the Pareto front, recommended."""
    return " ".join(part for part in ("*" * bool(row["pareto"]), "<- use" if row["recommended"] else "") if part)


def _question(question: MarketQuestion, answer: Answer) -> list[str]:
    """Return the question as clauses."""
    length = {name: shown.value for name, shown in answer.inputs.items()}
    said = next(f"{amount(number_in(length, name))} {name}" for name in ("tokens", "steps") if name in length)
    asked = [f"{question.model} on {said}", f"{len(question.offers)} accelerators"]
    return [*asked, *limits(question.deadline, question.budget)]


def _headline(answer: Answer, chosen: Mapping[str, Cell]) -> list[str]:
    """Return the recommended machine, its cost and time."""
    terms = answer.by_path()
    cost, time = terms["cost"].value, terms["time"].value
    machine = f"{human(terms['gpus'].value, '1')} × {chosen['name']}"
    ends = answer.intervals["cost"]
    head = [human(cost, "USD"), machine, human(time, "second"), f"90%: {between(ends[0], ends[1], 'USD', cost)}"]
    return [f"IMPOSSIBLE: {chosen['misses']}", *head] if answer.verdict else head


def _cells(row: Row) -> list[str]:
    """Return a machine as cells."""
    late = "late" if row.get("misses") and "--within" in str(row["misses"]) else ""
    return [
        str(row["name"]),
        f"{number_in(row, 'gpus'):,.0f}",
        human(number_in(row, "time"), "second", 3),
        f"{number_in(row, 'price'):.2f}",
        str(row["price/date"]),
        human(number_in(row, "cost"), "USD"),
        f"{number_in(row, 'mfu'):.2f}" if "mfu" in row else "",
        mark(row) or late,
    ]

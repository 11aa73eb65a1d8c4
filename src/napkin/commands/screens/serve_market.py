"""Screen of `serve` over several accelerators: the cheapest, and the others with their prices."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.question.offers import Offer
from napkin.commands.screens.market import mark, remarks, shown
from napkin.commands.serve.served import ServedModel
from napkin.render.answer import Answer, Row, number_in
from napkin.render.figures import between, briefly
from napkin.render.screen import Column, Next, Screen, Table
from napkin.timing.generation import CLOSED
from napkin.units import human

DEGREES = ("tp", "pp", "ep", "dp")
COST = "serve/cost_per_million_output_tokens"


def screen(found: ServedModel, answer: Answer, offers: Sequence[Offer]) -> Screen:
    """Return the screen of several machines; found: on the cheapest."""
    return Screen(
        _question(found, offers),
        _headline(found, answer),
        answer.verdict or "",
        Table(
            (
                Column("machine"),
                Column("GPUs", True),
                Column("layout", False, 3),
                Column("token/s", True, 2),
                Column("a token", True),
                Column("USD/h", True, 4),
                Column("as of", False, 5),
                Column("$ per million", True),
                Column("", False, 1),
            ),
            [_cells(row) for row in sorted(shown(answer), key=lambda row: number_in(row, "cost"))],
        ),
        remarks(answer, offers, "* no other is both faster for a user and cheaper"),
        next=Next({"hardware": found.question.hardware.slug, "gpus": str(found.setup.gpus), "min": None}),
    )


def _question(found: ServedModel, offers: Sequence[Offer]) -> list[str]:
    """Return the question as clauses."""
    question, traffic = found.question, found.traffic
    asked = [f"serving {found.setup.model.name}", f"{len(offers)} accelerators"]
    if question.ranks.gpus is not None:
        asked.append(f"{question.ranks.gpus:,} GPUs")
    if traffic.mode == CLOSED and not question.maximize:
        asked.append(f"{traffic.at_once:,} in flight")
    else:
        most = "the most in flight" if traffic.mode == CLOSED else "the largest batch"
        asked.append(most if question.maximize else f"batch {found.service.at_once:,}")
    for limit, name in ((question.limits.ttft, "first token"), (question.limits.tpot, "token")):
        if limit is not None:
            asked.append(f"a {name} within {briefly(limit, 'second')}")
    return [*asked, f"{traffic.prompt:,} in, {traffic.response:,} out", f"{found.setup.weights.name} weights"]


def _headline(found: ServedModel, answer: Answer) -> list[str]:
    """Return the cheapest machine, its price and its speed."""
    service = found.service
    cost = float(answer.by_path()[COST].value)
    low, high = answer.intervals[COST]
    pace = service.ttft if service.tpot is None else service.tpot
    return [
        f"{human(cost, 'USD', 3)} per million",
        f"{found.setup.gpus:,} × {found.question.hardware.name}",
        f"{human(service.output_rate.value, 'token/s', 3)}",
        f"{human(pace.value, 'second', 3)} a token",
        f"90%: {between(low, high, 'USD', cost)}",
    ]


def _cells(row: Row) -> list[str]:
    """Return a machine as cells."""
    layout = " ".join(f"{name}{number_in(row, name):.0f}" for name in DEGREES if number_in(row, name) > 1)
    return [
        str(row["name"]),
        f"{number_in(row, 'gpus'):,.0f}",
        layout,
        human(number_in(row, "output_tokens_per_second"), "1", 3),
        human(number_in(row, "ttft" if row["tpot"] is None else "tpot"), "second", 3),
        f"{number_in(row, 'price'):.2f}",
        str(row["price/date"]),
        human(number_in(row, "cost"), "USD", 3).removeprefix("$"),
        mark(row),
    ]

"""`napkin plan MODEL --hardware h100,a100 --tokens N`: which of several machines is the cheapest for a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.commands.command import ask, find
from napkin.commands.plan.market_question import MarketQuestion
from napkin.commands.plan.rows import COLUMNS
from napkin.commands.question.offers import Offer, mark_front, raise_what_all_share
from napkin.commands.signature import OptionText
from napkin.errors import BROKEN, IMPOSSIBLE, OK, NapkinError, Problems
from napkin.record import record
from napkin.render.answer import Answer, Cell, Shown, number_in, reasons_in
from napkin.render.chart import Chart, Series, axis, titled
from napkin.term import GIVEN, SEEN, Term, divide, leaf, multiply

COLORS = 6
"""Number of machines that colors can distinguish; with more, each point is labeled."""


def chart(question: MarketQuestion, rows: Sequence[Mapping[str, Cell]]) -> Chart:
    """Return the machines as points, with the Pareto front joined and the recommended one first."""
    long, times = axis((number_in(row, "time") for row in rows), "second")
    dear, sums = axis((number_in(row, "cost") for row in rows), "USD")

    def points(name: str, taken: Sequence[Mapping[str, Cell]], style: str = "", labels: bool = False) -> Series:
        rising = sorted(taken, key=lambda row: number_in(row, "time"))
        said = [str(row["name"]) for row in rising] if labels else []
        run = [number_in(row, "time") / long for row in rising]
        return Series(name, run, [number_in(row, "cost") / dear for row in rising], style=style, labels=said)

    series = [points(one.name, [row for row in rows if row["hardware"] == one.slug]) for one in question.offers]
    series = [one for one in series if one.x]
    many = len(series) > COLORS
    if many:
        series = [points("the other machines", [row for row in rows if not row["pareto"]], labels=True)]
    chosen = [row for row in rows if row["recommended"]]
    series.append(points("no other is faster and cheaper", [row for row in rows if row["pareto"]], "front", many))
    series.append(points(f"use: {number_in(chosen[0], 'gpus'):,.0f} × {chosen[0]['name']}", chosen, "star"))
    limits = [] if question.deadline is None else [(question.deadline / long, "deadline")]
    return Chart(
        "points",
        f"{question.model}: cost against time",
        times,
        titled("cost", sums),
        series,
        limits=limits,
    )


PLANNED = "napkin plan of this machine"
UNITS = {**COLUMNS, "gpus": "GPU", "price": "USD/GPU-hour", "cost/low": "USD", "cost/high": "USD"}
"""Units of the columns that have one."""


@record
class PlannedOffer:
    """What the plan of an accelerator found.

    rows    its layouts, or one row with the reason why there is none     problem  the error, if there was one
    unused  errors for options that had no effect, by name; None if nothing was planned
    inputs  those of that plan
    """

    rows: Sequence[dict[str, Cell]]
    unused: Mapping[str, NapkinError] | None = None
    problem: NapkinError | None = None
    inputs: Mapping[str, Shown] = {}


def answer(question: MarketQuestion) -> Answer:
    """Answer with every machine as a row; the cheapest within the limits is recommended."""
    tried = [_plan(question, offer) for offer in question.offers]
    raise_what_all_share([one.problem for one in tried if one.problem is not None], len(tried))
    idle = [one.unused for one in tried if one.unused is not None]
    unused = [problem for name, problem in idle[0].items() if all(name in one for one in idle)] if idle else []
    if unused:
        raise unused[0] if len(unused) == 1 else Problems(unused)
    rows = [row for one in tried for row in one.rows]
    asked = {name: shown for one in tried for name, shown in one.inputs.items()}
    done = [row for row in rows if "cost" in row]
    if not done:
        why = "; ".join(f"{row['hardware']}: {row['why']}" for row in rows[:3])
        raise NapkinError(f"no machine trains this: {why}", "other --hardware, or more --gpus", status=BROKEN)
    mark_front(done, lambda row: number_in(row, "time"))
    kept = [row for row in done if row["misses"] is None]
    goals = (question.objective, "cost")
    chosen = min(kept or done, key=lambda row: [number_in(row, goal) for goal in goals])
    for row in done:
        row["recommended"] = row is chosen
    length = {name: shown for name, shown in asked.items() if name in ("tokens", "steps")}
    found = Answer(
        "plan",
        _terms(question, chosen, {name: shown.value for name, shown in length.items()}),
        rows=sorted(rows, key=lambda row: number_in(row, "cost") or math.inf),
        inputs=length,
    )
    found.intervals = {
        "time": (number_in(chosen, "low"), number_in(chosen, "high")),
        "cost": (number_in(chosen, "cost/low"), number_in(chosen, "cost/high")),
    }
    found.status, found.verdict = (OK, None) if kept else (BROKEN, IMPOSSIBLE)
    found.extra["columns"] = dict(UNITS)
    found.notes += [one.note for one in question.offers if not one.own]
    from napkin.commands.screens.market import screen

    found.plot = (chart(question, done),)
    found.screen = screen(question, found, chosen)
    return found


def _plan(question: MarketQuestion, offer: Offer) -> PlannedOffer:
    """Return the best layout for each count of an accelerator, or the reason why there is none."""
    spare: dict[str, NapkinError] = {}
    fewest = {} if "nodes" in question.asked else {"min": OptionText("gpus")}
    gpus = {"gpus": OptionText(question.gpus)} if question.gpus else fewest
    one = {"hardware": OptionText(offer.slug), "price": OptionText(repr(offer.price.middle))}
    named = offer.row
    try:
        if not question.gpus and _is_too_small(question, offer, one):
            return PlannedOffer([{**named, "why": offer.single}])
        found = ask(find("plan"), {**question.asked, **gpus, **one}, spare=spare)
    except NapkinError as problem:
        why = problem.message.removeprefix(f"{offer.name} ")
        return PlannedOffer([{**named, "why": why}], problem=problem)
    if "reasons" in found.extra:
        return PlannedOffer([{**named, "why": reasons_in(found)}], spare, inputs=found.inputs)
    several = any("efficiency" in row for row in found.rows or ())
    taken = [row for row in found.rows or () if several or row.get("recommended")]
    rows = []
    for row in taken:
        count = int(number_in(row, "gpus") if row.get("gpus") else _gpus_of(found))
        if offer.price.most is not None and count > offer.price.most:
            rows.append({**named, "gpus": count, "why": offer.single})
            continue
        done = {**named, "gpus": count, **{name: cell for name, cell in row.items() if name != "rank"}}
        if "cost" in row:
            scale = number_in(row, "cost") / number_in(row, "time") / offer.price.middle
            done["cost/low"] = number_in(row, "low") * scale * offer.price.low
            done["cost/high"] = number_in(row, "high") * scale * offer.price.high
        rows.append(done)
    return PlannedOffer(rows, spare, inputs=found.inputs)


def _gpus_of(found: Answer) -> float:
    """Return the GPUs of a plan, solved or given."""
    solved = found.by_path().get("gpus")
    value = solved.value if solved is not None else found.inputs["gpus"].value
    assert isinstance(value, int | float)
    return value


def _is_too_small(question: MarketQuestion, offer: Offer, one: Mapping[str, OptionText]) -> bool:
    """Return whether even the largest machine for rent misses the deadline, so that the fewest GPUs need not be
    searched."""
    if offer.price.most is None or question.deadline is None:
        return False
    largest = {"gpus": OptionText(str(offer.price.most)), **one}
    try:
        found = ask(find("plan"), {**question.asked, **largest}, only=("time",), spare={})
    except NapkinError:  # fewer GPUs may divide the batch, or the question itself is wrong
        return False
    return float(found.by_path()["time"].value) > question.deadline


def _terms(question: MarketQuestion, chosen: Mapping[str, Cell], length: Mapping[str, Cell]) -> list[Term]:
    """Return the recommended machine's quantities. length: tokens or steps of the whole run."""
    offer = next(one for one in question.offers if one.slug == chosen["hardware"])
    names = ("gpus", "time", "time/uninterrupted", "goodput", "gpu_hours", "step/time", "mfu", "memory/total")
    found = {
        name: leaf(name, number_in(chosen, name), UNITS[name], SEEN, "napkin plan") for name in names if name in chosen
    }
    if isinstance(chosen["gpus"], int):
        found["gpus"] = leaf("gpus", chosen["gpus"], "GPU", SEEN, "napkin plan")
    cost = multiply("cost", found["gpu_hours"], offer.term)
    if "tokens" not in length:
        return [*found.values(), offer.term, cost]
    tokens = leaf("tokens", number_in(length, "tokens"), "token", GIVEN)
    return [*found.values(), offer.term, cost, divide("cost/per_token", cost, tokens)]

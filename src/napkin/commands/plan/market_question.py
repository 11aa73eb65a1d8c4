"""Read which machines a plan compares: accelerators with their prices, counts, a deadline and a budget."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.commands.inputs import Inputs
from napkin.commands.plan.question import check_machine_or_deadline, read_least
from napkin.commands.question.amount import read_whether_stated
from napkin.commands.question.offers import Offer, read_offers
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError
from napkin.record import record


@record
class MarketQuestion:
    """The question which machine to rent.

    asked     options of the plan of one machine: all except accelerator, GPUs and price
    gpus      as typed, "" for the fewest that keep the limits          objective  time, cost or gpus
    """

    offers: tuple[Offer, ...]
    asked: Mapping[str, OptionText]
    gpus: str
    objective: str
    deadline: float | None
    budget: float | None
    model: str


def read(inputs: Inputs) -> MarketQuestion:
    """Read the question. Raises NapkinError (2) if required options are missing."""
    stated = read_whether_stated(inputs)
    inputs.need_all({"model": "which model?"} | ({} if stated else {"tokens": "how long a run? its cost is compared"}))
    offers = read_offers(inputs)
    if inputs.has("emit"):
        raise NapkinError("--emit writes the layout of one machine", "name one --hardware")
    check_machine_or_deadline(inputs)
    objective = read_least(inputs) or (inputs.text("objective") if "objective" in inputs else "cost")
    if objective == "gpus" and inputs.has("gpus"):
        raise NapkinError("a contradiction: the fewest GPUs are asked for, and --gpus gives them", "leave out --gpus")
    left_out = ("hardware", "gpus", "price", "min", "objective", "plot", "theme")
    asked = {name: one for name, one in inputs.given.items() if name not in left_out}
    inputs.depends(asked, True)
    gpus = inputs.given["gpus"].text if "gpus" in inputs.given else ""
    inputs.value("gpus")
    return MarketQuestion(
        offers,
        asked,
        str(gpus),
        objective,
        None if not inputs.has("within") else float(inputs.number("within")),
        None if not inputs.has("budget") else float(inputs.number("budget")),
        inputs.text("model"),
    )

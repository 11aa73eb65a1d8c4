"""A served model: its layout, rates and times, memory per GPU, and price."""

from __future__ import annotations

from napkin.commands.serve.question import ServeQuestion
from napkin.errors import UNDECIDED
from napkin.evidence.figures.prices import Price
from napkin.planning.engines import EngineRoom
from napkin.planning.generation import ServingSetup
from napkin.planning.service import Service, serve
from napkin.planning.serving_search import sharing
from napkin.planning.verdicts import FITS, NOT
from napkin.record import record
from napkin.term import TRUE, Term, constant, divide, leaf, multiply
from napkin.timing.generation import GenerationRates, Traffic

MILLION = 1_000_000


@record
class ServedModel:
    """A served model: its layout, service and memory."""

    question: ServeQuestion
    setup: ServingSetup
    traffic: Traffic
    service: Service
    room: EngineRoom

    @property
    def price(self) -> Price | None:
        """The price of a GPU-hour; None if machines with enough connected GPUs are not rented at it."""
        price, groups = self.question.price, self.setup.groups
        return price if price is not None and price.is_of(groups.tp * groups.pp * sharing(groups)) else None

    @property
    def cost(self) -> Term | None:
        """USD of a million output tokens; None if no price is known."""
        if self.price is None:
            return None
        spent = multiply("serve/cost_per_hour", self.price.term, leaf("gpus", self.setup.gpus, "GPU", TRUE))
        made = multiply("serve/tokens_per_hour", self.service.output_rate, constant("hour", 3600, "second/hour"))
        each = divide("serve/cost_per_token", spent, made)
        return multiply("serve/cost_per_million_output_tokens", each, constant("a_million_tokens", MILLION, "token"))

    @property
    def cache(self) -> float:
        """Bytes of keys and values on a GPU."""
        return self.service.at_once * float(self.service.held.each.value)

    @property
    def fitting(self) -> tuple[int, int]:
        """The sequences per replica that surely fit, and those that may fit."""
        each = float(self.service.held.each.value)
        return int(max(self.room.low, 0) / each), int(max(self.room.high, 0) / each)

    @property
    def verdict(self) -> str:
        """Whether the sequences fit: surely, surely not, or too close to call."""
        return FITS if self.cache <= self.room.low else NOT if self.cache > self.room.high else UNDECIDED


def served_of(question: ServeQuestion, setup: ServingSetup, traffic: Traffic, rates: GenerationRates) -> ServedModel:
    """Return the service of some requests on a setup."""
    room = question.room(setup)
    return ServedModel(question, setup, traffic, serve(setup, traffic, rates, room.cache), room)

"""Accelerators to choose from, with their prices per hour, from --hardware and --price."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from napkin.commands.inputs import Inputs
from napkin.errors import USAGE, NapkinError, Problems
from napkin.evidence.figures.prices import PRICES, Price, given
from napkin.inputs.hardware import find
from napkin.record import record
from napkin.render.answer import Cell, number_in
from napkin.term import Term

ANY = "any"
"""Value of --hardware for all accelerators with a known price."""


@record
class Offer:
    """An accelerator and its price per hour; own: the user gave the price."""

    slug: str
    name: str
    price: Price
    own: bool

    @property
    def term(self) -> Term:
        """The price as a leaf."""
        return self.price.term

    @property
    def single(self) -> str:
        """Why no machine at this price is large enough."""
        size = "one GPU" if self.price.most == 1 else f"up to {self.price.most} GPUs"
        return f"rented at this price as single machines of {size} only"

    @property
    def row(self) -> dict[str, Cell]:
        """The first columns of a row: which accelerator, and its price."""
        price = self.price
        row: dict[str, Cell] = {"hardware": self.slug, "name": self.name, "price": price.middle}
        return row | {"price/date": price.date, "price/source": price.source}

    @property
    def note(self) -> str:
        """The price in a sentence."""
        return f"{self.name}: about {self.price.middle:g} USD an hour ({self.price.date}; {self.price.source})"


def read_offers(inputs: Inputs) -> tuple[Offer, ...]:
    """Return the named accelerators, or all with a known price. Raises NapkinError (2) if the price of one is
    unknown."""
    words = inputs.value("hardware")
    assert isinstance(words, (list, tuple))
    price = inputs.number_or_none("price")
    offers, unknown = [], []
    for word in dict.fromkeys(PRICES if list(words) == [ANY] else (str(one) for one in words)):
        hardware = find(word)
        known = PRICES.get(hardware.slug)
        if price is not None:
            known = given(float(price))
        if known is None:
            unknown.append(
                NapkinError(f"--hardware {word}: no price of it is known", "--price says what an hour costs")
            )
        else:
            offers.append(Offer(hardware.slug, hardware.name, known, price is not None))
    if unknown:
        raise unknown[0] if len(unknown) == 1 else Problems(unknown)
    return tuple(offers)


def raise_what_all_share(problems: Sequence[NapkinError], offers: int) -> None:
    """Raise the error that occurred for every accelerator: it concerns the question, not a machine."""
    if len(problems) == offers and all((one.message, one.status) == (problems[0].message, USAGE) for one in problems):
        raise problems[0]


def mark_front(rows: Sequence[dict[str, Cell]], slowness: Callable[[Mapping[str, Cell]], float]) -> None:
    """Mark the rows on the Pareto front of speed and price."""
    found = [(slowness(row), number_in(row, "cost")) for row in rows]
    for row, (slow, dear) in zip(rows, found, strict=True):
        row["pareto"] = not any(other[0] <= slow and other[1] <= dear and other != (slow, dear) for other in found)

"""Accelerators to choose among, and what an hour of each costs, from --hardware and --price."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError, Problems
from napkin.evidence.prices import PRICES, Price, given
from napkin.inputs.hardware import find
from napkin.record import record
from napkin.term import Term

ANY = "any"
"""In the place of accelerators: all whose price is known."""


@record
class Offer:
    """An accelerator, and what an hour of it costs; own: the user said so."""

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
    def note(self) -> str:
        """The price in a sentence."""
        return f"{self.name}: about {self.price.middle:g} USD an hour ({self.price.date}; {self.price.source})"


def read_offers(inputs: Inputs) -> tuple[Offer, ...]:
    """Return the accelerators that are named, or all whose price is known. NapkinError (2): no price of one is."""
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

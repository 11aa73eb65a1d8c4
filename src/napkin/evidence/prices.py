"""What a GPU-hour was sold for: snapshots with a date. Where one stands in for a price that is not given, the answer
shows it with its date, its ends and where it was read."""

from __future__ import annotations

from napkin.record import record
from napkin.term import GIVEN, SEEN, Term, leaf

GUIDE = "mercatus-ai.com, cloud GPU pricing guide"


@record
class Price:
    """USD per accelerator-hour on demand: the middle of the market, its ends, when, and where it was read; without a
    source: as given."""

    middle: float
    low: float
    high: float
    date: str
    source: str

    @property
    def term(self) -> Term:
        """The price as a leaf."""
        kind, said = (SEEN, f"{self.date}; {self.source}") if self.source else (GIVEN, "")
        return leaf("price", self.middle, "USD/GPU-hour", kind, said)


def given(price: float) -> Price:
    """Return a price that was given."""
    return Price(price, price, price, "", "")


PRICES = {
    "a100-sxm-40gb": Price(1.99, 1.1, 2.0, "2023", "MosaicML, MPT-7B: 200,000 USD for 440 GPUs in 9.5 days"),
    "a100-sxm-80gb": Price(1.3, 0.8, 3.0, "2026-05", GUIDE),
    "h100-sxm-80gb": Price(3.0, 2.0, 5.0, "2026-05", GUIDE),
    "h200-sxm-141gb": Price(4.0, 2.5, 7.0, "2026-05", GUIDE),
    "h800-sxm-80gb": Price(2.0, 2.0, 2.0, "2024-12", "DeepSeek-V3 report, table 1: the authors' assumption"),
    "mi300x": Price(1.8, 1.7, 1.9, "2026", "gpu.blog, MI300X page: two sellers"),
}


def remark(slug: str, name: str) -> str:
    """Return a line about the price of an accelerator, "" where none is known."""
    known = PRICES.get(slug)
    if known is None:
        return ""
    ends = f", {known.low:g} to {known.high:g}" if known.high > known.low else ""
    said = f"{known.date}{ends}; {known.source}"
    return f"an hour of {name} was sold for about {known.middle:g} USD ({said}); --price takes yours"

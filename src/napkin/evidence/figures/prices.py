"""Prices of a GPU-hour: list prices of several sellers with their date. An answer that uses one in place of a given
price shows it with its date, its range and its sellers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.elementwise import Number
from napkin.record import record
from napkin.term import GIVEN, SEEN, Term, leaf

AUTUMN = "2026-09"
"""When the sellers' pages were read: RunPod, Lambda, Nebius and Akash on 20 and 25 September 2026, as transcribed by
github.com/tgarg01/silybench-data and github.com/api-evangelist; Amazon's by github.com/datareceipts/data-receipts on
9 November 2026."""

MACHINE = 8
"""Accelerators of the largest machine that RunPod, Akash and Lambda rent out without a network between machines."""


@record
class Price:
    """USD per accelerator-hour on demand: the median over sellers, the range, the date, and the sellers; without a
    source: as given.

    most: accelerators of the largest machine that is rented at this price; None: several machines on a fast network too
    """

    middle: float
    low: float
    high: float
    date: str
    source: str
    most: int | None = None

    @property
    def term(self) -> Term:
        """The price as a leaf."""
        kind, said = (SEEN, f"{self.date}; {self.source}") if self.source else (GIVEN, "")
        return leaf("price", self.middle, "USD/GPU-hour", kind, said)

    @property
    def sellers(self) -> int:
        """How many sellers ask it."""
        return self.source.count(",") + 1

    @property
    def words(self) -> str:
        """The unit, the date, the sellers and the range."""
        sellers = f"{self.sellers:,} sellers" if self.sellers > 1 else self.source.rpartition(" ")[0]
        return f"a GPU-hour, {self.date}, {sellers}; {self.low:g} to {self.high:g} USD"

    def spread(self, cost: Number, ends: Sequence[Number] | None) -> tuple[Number, Number]:
        """Return the interval of a cost at the middle price: its own `ends`, at the lowest and the highest price."""
        low, high = (cost, cost) if ends is None else ends
        return low * self.low / self.middle, high * self.high / self.middle

    def is_of(self, gpus: int) -> bool:
        """Return whether a machine of this many accelerators is rented at this price."""
        return self.most is None or gpus <= self.most


def given(price: float) -> Price:
    """Return a price that was given."""
    return Price(price, price, price, "", "")


def _asked(prices: Mapping[str, float], date: str = AUTUMN, most: int | None = None) -> Price:
    """Return the median price. prices: seller → USD per accelerator-hour."""
    rising = sorted(prices.values())
    half = len(rising) // 2
    middle = rising[half] if len(rising) % 2 else round((rising[half - 1] + rising[half]) / 2, 4)
    said = ", ".join(f"{seller} {price:g}" for seller, price in sorted(prices.items(), key=lambda one: one[1]))
    return Price(middle, rising[0], rising[-1], date, said, most)


PRICES = {
    "v100-sxm2-16gb": _asked({"Akash": 0.36, "Lambda": 0.79}, most=MACHINE),
    "t4": _asked({"Akash": 0.15}, most=MACHINE),
    "a10": _asked({"Lambda": 1.29}, most=1),
    "a40": _asked({"RunPod": 0.44}, "2026-08", most=MACHINE),
    "rtx-a6000": _asked({"Verda": 0.82, "Lambda": 1.09}, "2026-10", most=MACHINE),
    "rtx-3090": _asked({"Akash": 0.16}, most=MACHINE),
    "rtx-4090": _asked({"RunPod community": 0.34, "Akash": 0.39, "RunPod": 0.74}, most=MACHINE),
    "rtx-5090": _asked({"Akash": 0.67}, most=MACHINE),
    "l40s": _asked({"RunPod community": 0.79, "RunPod": 1.09, "Nebius": 1.55}, most=MACHINE),
    "a100-sxm-40gb": _asked({"Lambda": 1.99, "Amazon": 2.74}),
    "a100-pcie-80gb": _asked({"RunPod community": 1.19, "RunPod": 1.59}, most=MACHINE),
    "a100-sxm-80gb": _asked({"RunPod community": 1.39, "RunPod": 1.59, "Akash": 1.71, "Lambda": 2.79, "Amazon": 3.43}),
    "h100-pcie-80gb": _asked({"RunPod community": 1.99, "RunPod": 2.89, "Lambda": 3.29}, most=MACHINE),
    "h100-nvl-94gb": _asked({"RunPod community": 2.59, "RunPod": 3.19}, most=MACHINE),
    "h100-sxm-80gb": _asked(
        {"RunPod community": 2.69, "Akash": 2.71, "RunPod": 3.49, "Nebius": 3.85, "Lambda": 3.99, "Amazon": 6.88}
    ),
    "h200-sxm-141gb": _asked({"RunPod community": 3.59, "Akash": 4.45, "Nebius": 4.5, "RunPod": 4.59}),
    "gh200-96gb": _asked({"Lambda": 2.29}, most=1),
    "b200-sxm-180gb": _asked({"Akash": 5.0, "RunPod community": 5.98, "Lambda": 6.69, "RunPod": 6.79, "Nebius": 7.15}),
    "b300-sxm-288gb": _asked({"Akash": 6.0, "RunPod": 7.89}),
    "mi300x": _asked({"TensorWave": 1.71, "Vultr": 1.85}, "2026"),
}


def remark(slug: str, name: str) -> str:
    """Return a line about the price of an accelerator, "" if none is known."""
    known = PRICES.get(slug)
    if known is None:
        return ""
    said = f"{known.date}; {known.source}"
    return f"an hour of {name} is sold for about {known.middle:g} USD ({said}); --price takes yours"

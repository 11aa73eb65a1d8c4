"""The price of a GPU-hour if a budget is given without one: the market price, with its date."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.inputs.hardware import Hardware


def read_market_price(inputs: Inputs, hardware: Hardware) -> None:
    """Take the published price of the accelerator for --price, if a budget needs one and none is given."""
    if not inputs.has("budget") or inputs.has("price"):
        return
    from napkin.evidence.figures.prices import PRICES, remark

    known = PRICES.get(hardware.slug)
    if known is None:
        return
    inputs.default("price", f"{known.middle:g}")
    inputs.record("price", known.middle, "evidence", "USD/GPU-hour", f"{known.date}; {known.source}")
    inputs.assume(f"${known.middle:g} a GPU-hour ({known.date})")
    inputs.note(remark(hardware.slug, hardware.name))

"""The price of a GPU-hour if none is given, and a budget or the bill of fine-tuning needs one: the market price, with
its date."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.inputs.hardware import Hardware
from napkin.options.question import SAMPLES
from napkin.options.training import FROZEN, TASKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from napkin.evidence.figures.prices import Price

FINE_TUNING = (*TASKED, *FROZEN, *SAMPLES)
"""Options of a run that is fine-tuning, on a machine that is rented."""


def no_price() -> NapkinError:
    """Return the error about a budget on an accelerator whose price is neither given nor known."""
    return NapkinError("--budget needs --price", "add --price, USD per GPU-hour")


def read_market_price(inputs: Inputs, hardware: Hardware, gpus: int = 0) -> Price | None:
    """Take the published price of the accelerator for --price, if none is given, and a budget needs one or the run is
    fine-tuning on a machine that is rented at this price; return it. gpus: those of the machine, 0 if they are to be
    found."""
    if inputs.has("price"):
        return None
    billed = gpus > 0 and any(inputs.has(name) for name in FINE_TUNING if name in inputs.command.names)
    if not inputs.has("budget") and not billed:
        return None
    from napkin.evidence.figures.prices import PRICES, remark

    known = PRICES.get(hardware.slug)
    if known is None or not (inputs.has("budget") or known.is_of(gpus)):
        return None
    inputs.default("price", f"{known.middle:g}")
    inputs.record("price", known.middle, "evidence", "USD/GPU-hour", f"{known.date}; {known.source}")
    inputs.note(remark(hardware.slug, hardware.name))
    return known

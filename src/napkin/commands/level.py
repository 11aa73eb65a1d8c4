"""The level of an interval, from --interval."""

from __future__ import annotations

from napkin.commands.command import Inputs
from napkin.errors import NapkinError


def level_of(inputs: Inputs) -> float:
    """`80`, `80%` or `0.8` as a share, 90 % where none is given; refused (2) outside 50 to 98 %."""
    if inputs.get("interval") is None:
        inputs.default("interval", "90")
    text = str(inputs.get("interval")).strip()
    try:
        share = float(text.rstrip("%"))
    except ValueError:
        raise NapkinError(f"--interval: {text[:40]!r} is not a level", "for example --interval 80") from None
    share = share / 100 if share > 1 else share
    if not 0.5 <= share <= 0.98:
        raise NapkinError(f"--interval: {text[:40]!r} is not between 50 and 98 %", "the evidence supports 50 to 98 %")
    return share

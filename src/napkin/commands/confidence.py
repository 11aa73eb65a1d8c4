"""The confidence level of the intervals, from --interval."""

from __future__ import annotations

from napkin.commands.command import Inputs
from napkin.options.option import parsed
from napkin.options.parsers import confidence


def read_confidence(inputs: Inputs) -> float:
    """Return the level as a share, 0.9 where none is given; refused (2) outside 50 to 98 %."""
    if inputs.get("interval") is None:
        inputs.default("interval", "90")
    return parsed(confidence, str(inputs.get("interval")), "--interval")

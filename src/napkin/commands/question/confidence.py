"""The confidence level of the intervals, from --confidence."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.options.option import parsed
from napkin.options.parsers import confidence


def read_confidence(inputs: Inputs) -> float:
    """Return the level as a share, 0.9 where none is given; refused (2) outside 50 to 98 %."""
    if not inputs.has("confidence"):
        inputs.default("confidence", "90")
    return parsed(confidence, inputs.text("confidence"), "--confidence")

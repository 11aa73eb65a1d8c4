"""The confidence level of the intervals, from --confidence."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.options.option import parsed
from napkin.options.parsers import confidence


def read_confidence(inputs: Inputs) -> float:
    """Return the level as a share, 0.9 if none is given; refused (2) outside 50 to 98 %."""
    if not inputs.has("confidence"):
        inputs.default("confidence", "90")
    return parsed(confidence, inputs.text("confidence"), "--confidence")


def widening(level: float) -> float:
    """Return the half-width of the interval at a level relative to that at 90 %."""
    if level == 0.9:
        return 1.0
    from napkin.evidence.intervals.steps import NORMAL_90  # only where another level is asked for
    from napkin.evidence.rates.constants import deviations

    return deviations(level) / NORMAL_90

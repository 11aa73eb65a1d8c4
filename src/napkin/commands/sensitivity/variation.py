"""One input of a question varied both ways, and the effect on the answer."""

from __future__ import annotations

from napkin.options.option import Option
from napkin.planning import attribution
from napkin.record import record
from napkin.render.answer import Row


@record
class Moved:
    """One input varied both ways.

    value       of the input, as given             low, high   (input, answer) for a lower and a higher input, or None
    swing       between the least and the largest answer
    elasticity  d log(answer) / d log(input)       jump        the input could only be halved or doubled
    estimated   the input is an estimate, varied over its interval
    flip        the nearest value at which the decision changes, and the decision there
    """

    option: Option
    value: float
    low: tuple[float, float] | None
    high: tuple[float, float] | None
    swing: float
    elasticity: float | None
    jump: bool
    estimated: bool = False
    flip: attribution.Flip | None = None

    def row(self, decided: bool) -> Row:
        """Return the row of the answer; decided: whether a decision is watched."""
        low, high = self.low or (None, None), self.high or (None, None)
        flip = {"flip": self.flip.value if self.flip else None, "becomes": self.flip.word if self.flip else None}
        return {
            "input": self.option.name,
            "value": self.value,
            "low": low[0],
            "high": high[0],
            "at_low": low[1],
            "at_high": high[1],
            "swing": self.swing,
            "elasticity": self.elasticity,
            "unit": self.option.unit,
            "jump": self.jump,
            "estimated": self.estimated,
            **(flip if decided else {}),
        }

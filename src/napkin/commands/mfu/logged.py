"""The speed and the MFU that a log states next to the rate, and what its program's count of that rate gives."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.counting.measured_rate import TERA, is_of_flops
from napkin.inputs.log import FLOPS, Logged
from napkin.record import record
from napkin.term import Term
from napkin.units import human

NEAR = 0.03
"""Relative difference up to which a convention explains a claim, because logs and papers print two or three digits."""


@record
class LoggedFigure:
    """A figure of a log: its unit, its value, and the value by the count of the program that wrote it. claims: the MFU
    that it states, 0 if it states none."""

    program: str
    unit: str
    stated: float
    counted: float
    claims: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the log and the count agree."""
        return abs(self.counted / self.stated - 1) <= NEAR

    @property
    def says(self) -> str:
        """The comparison, as a sentence."""
        stated = f"the log's {self.stated:.4g} ({self.unit})"
        if self.is_met:
            return f"{stated} is {self.program}'s count of this rate"
        return (
            f"{stated} is not {self.program}'s count of this rate, {self.counted:.4g}: another model, sequence length, "
            "batch or number of GPUs ran"
        )


def counted_again(logged: Logged, rate: Term, done: Mapping[str, Term]) -> list[LoggedFigure]:
    """Return the figures of a log whose program is recognized. done: FLOP/s of one GPU by convention.

    An MFU is compared if its program divides by a peak of its own; others are explained by the accelerator's."""
    program = logged.program
    if program is None or program.convention not in done:
        return []
    counted, found = float(done[program.convention].value), []
    speed, claimed = logged.quantities.get(FLOPS), logged.quantities.get("mfu")
    if speed is not None and not is_of_flops(rate):
        found.append(LoggedFigure(program.name, "TFLOP/s per GPU", speed / TERA, counted / TERA))
    if claimed is not None and program.peak:
        unit = f"MFU, of {human(program.peak, 'FLOP/s')}"
        found.append(LoggedFigure(program.name, unit, claimed, counted / program.peak, claimed))
    return found

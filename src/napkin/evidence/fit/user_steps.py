"""Refit of the shipped constants to a user's own measured steps."""

from __future__ import annotations

import numpy as np

from napkin.evidence.fit.columns import Columns
from napkin.evidence.fit.posterior import Problem
from napkin.evidence.rates.constants import constants, spreads
from napkin.evidence.rows.steps import StepRow
from napkin.record import record

SHOWN = 0.25
"""Change of a constant, in σ, from which it is listed."""


@record
class MovedConstant:
    """A constant as shipped and as fitted to the user's rows, and how many of its σ it moved by."""

    constant: str
    shipped: float
    yours: float
    sigmas: float


def refitted(rows: list[StepRow]) -> tuple[list[MovedConstant], float]:
    """Fit the constants to these rows, with the shipped ones and their spread as prior; return the median error too."""
    columns = Columns(rows)
    shipped, spread = constants(), spreads()
    counted = np.array([not row.suspect for row in columns.kept])
    problem = Problem(columns, ["yours"] * len(columns.kept), {n: (shipped[n], spread[n]) for n in shipped}, counted)
    found = problem.fit(rounds=8)
    changes = [
        MovedConstant(name, shipped[name], float(np.exp(new)), float((new - old) / s))
        for name, new, old, s in zip(found.names, found.log, problem.prior, problem.prior_spread, strict=True)
        if abs(new - old) > SHOWN * s
    ]
    changes.sort(key=lambda one: -abs(one.sigmas))
    shifts = np.array([found.sources.get(group, 0.0) for group in problem.groups])
    gap = problem.log_predicted(found.log) - problem.log_truth - shifts
    return changes, float(np.median(np.abs(np.expm1(gap[counted]))))

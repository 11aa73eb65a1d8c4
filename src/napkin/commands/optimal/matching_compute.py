"""The compute for which a given size, or number of tokens, is optimal, by the chosen law and by others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from napkin.commands.optimal.question import OptimalQuestion
from napkin.commands.optimal.rows import row_of_law
from napkin.elementwise import Number
from napkin.planning.laws.allocate import suited
from napkin.planning.laws.known import current_laws
from napkin.planning.laws.law import ScalingLaw
from napkin.render.answer import Cell
from napkin.term import TRUE, Term, leaf


def suiting(question: OptimalQuestion) -> Term:
    """Return the compute whose optimal model has the given size or number of tokens."""
    source = f"the compute budget whose optimum it is, by {question.law.name}"
    return leaf("flops/total", _compute(question, question.law, 1.0), "FLOP", TRUE, source)


def suited_rows(question: OptimalQuestion) -> Iterator[dict[str, Cell]]:
    """Yield the results of the current laws for dense models, and of the chosen law, for the size or the tokens."""
    for law in _laws(question):
        yield row_of_law(law, leaf("flops/total", _compute(question, law, 1.0), "FLOP"), question.aims)


def suited_ends(question: OptimalQuestion, compute: float, wide: float) -> dict[str, tuple[Number, Number]]:
    """Return the spread of the compute, and of the quantity that is not given, over every current law and the law's own
    fit."""
    surface = question.law.surface
    own = 0.0 if surface is None else wide * surface.deviation_of_params(compute)
    found = [_compute(question, law, 1.0) for law in _laws(question)]
    found += [_compute(question, question.law, math.exp(way)) for way in (-own, own)]
    ends, price = (min(found), max(found)), question.law.price
    if question.params is not None:
        size = float(question.params.value)
        return {"flops/total": ends, "tokens": (price.tokens(ends[0], size), price.tokens(ends[1], size))}
    assert question.tokens is not None
    sizes = [price.sized(leaf("flops/total", end, "FLOP"), question.tokens).value for end in ends]
    return {"flops/total": ends, "params": (sizes[0], sizes[1])}


def _laws(question: OptimalQuestion) -> tuple[ScalingLaw, ...]:
    law, aimed = question.law, question.aims.served is not None or question.aims.repeated is not None
    others = (one for one in current_laws() if one.name != law.name and (one.surface is not None or not aimed))
    return (law, *(others if law.current else ()))


def _compute(question: OptimalQuestion, law: ScalingLaw, factor: float) -> float:
    """Return the compute for which the given size or tokens, times a factor, are optimal."""
    params, tokens = (None if one is None else float(one.value) * factor for one in (question.params, question.tokens))
    return suited(law, question.aims, params, tokens)

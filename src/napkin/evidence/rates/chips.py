"""Accelerators of the published steps whose matmuls have a factor of their own over their generation's share."""

from __future__ import annotations

from collections import Counter
from functools import cache

from napkin.errors import NapkinError
from napkin.evidence.rates.machines import machine
from napkin.evidence.rates.priors import CHIP
from napkin.evidence.rows import facts
from napkin.inputs import hardware


@cache
def factors() -> frozenset[str]:
    """Return the constants of accelerators that the published steps ran on and whose figures (dense FLOP/s of 16 bits,
    watts) are not those that most rows of their generation ran on, which its share is of."""
    figures: dict[str, tuple[str, float, float | None]] = {}
    rows: dict[str, Counter[tuple[str, float, float | None]]] = {}
    for row in facts.steps():
        if row.why or row.shape is None or row.judges:
            continue
        try:
            card = hardware.find(row.chip)
            at = machine(card, card.default_dtype)
        except NapkinError:
            continue
        if at.held:  # their matmuls reach what the maker lets them (machines.py)
            continue
        figures[card.name] = one = (at.generation, float(at.peak_wide), card.tdp_w)
        rows.setdefault(at.generation, Counter())[one] += 1
    usual = {generation: counted.most_common(1)[0][0] for generation, counted in rows.items()}
    return frozenset(f"{CHIP}{name}" for name, one in figures.items() if one != usual[one[0]])

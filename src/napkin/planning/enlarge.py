"""Find the largest value that fits, and build the model with another number of layers."""

from __future__ import annotations

from collections.abc import Callable

from napkin.errors import Refused
from napkin.operations.model import Model, Pattern
from napkin.record import replace

MOST = 10**9
"""Upper limit of every search."""


def largest_that_fits(fits: Callable[[int], bool], unit: int = 1, most: int = MOST) -> int:
    """Return the largest multiple of `unit` that fits, 0 if none does. Memory must not decrease with the value."""
    if not fits(unit):
        return 0
    low, high = 1, 2
    while high * unit <= most and fits(high * unit):
        low, high = high, 2 * high
    high = min(high, most // unit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * unit) else (low, middle)
    return low * unit


def with_layers(model: Model, layers: int) -> Model:
    """Return the model with another number of layers: cut off, or with its last pattern repeated further. Refused where
    layers use tensors that others compute."""
    if model.shares_tensors:
        raise Refused(
            f"{model.name}: the number of its layers cannot be changed, because some use tensors that others compute"
        )
    last = model.stacks[-1]
    patterns = list(last.patterns)
    if layers > last.depth:
        patterns = _without_tail(patterns)
        times, runs = patterns.pop()
        period = sum(count for count, _ in runs)
        if len(runs) > 1 and times == 1:  # nothing repeats: the last run goes on
            patterns.append((1, runs[:-1]))
            runs = runs[-1:]
        ahead = sum(n * sum(count for count, _ in some) for n, some in patterns)
        if len(runs) == 1:
            patterns.append((1, ((layers - ahead, runs[0][1]),)))
        else:
            patterns.append((-(-(layers - ahead) // period), runs))
    kept: list[Pattern] = []
    for times, runs in patterns:
        period = sum(count for count, _ in runs)
        whole = min(times, layers // period)
        if whole:
            kept.append((whole, runs))
        layers -= whole * period
        if whole < times:
            cut = []
            for count, layer in runs:
                if layers > 0:
                    cut.append((min(count, layers), layer))
                    layers -= count
            kept += [(1, tuple(cut))] if cut else []
            break
    return replace(model, stacks=(*model.stacks[:-1], replace(last, patterns=tuple(kept))))


def _without_tail(patterns: list[Pattern]) -> list[Pattern]:
    """Return the patterns without the last one if it is a prefix of the one before."""
    if len(patterns) < 2 or patterns[-1][0] > 1:
        return patterns
    begins, tail = patterns[-2][1], patterns[-1][1]
    *whole, (count, layer) = tail
    same = len(tail) <= len(begins) and tuple(whole) == begins[: len(whole)]
    if same and begins[len(whole)][1] is layer and count <= begins[len(whole)][0]:
        return patterns[:-1]
    return patterns

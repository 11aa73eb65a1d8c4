"""Pipeline stages with layers assigned by the user."""

from __future__ import annotations

Stages = tuple[tuple[int, int], ...]
"""Pipeline stages in order, as (number of stages, layers of each)."""


def joined(stages: Stages) -> Stages:
    """Return the same stages in as few runs as possible, without empty runs."""
    found: list[tuple[int, int]] = []
    for count, layers in stages:
        if found and found[-1][1] == layers:
            found[-1] = (found[-1][0] + count, layers)
        elif count:
            found.append((count, layers))
    return tuple(found)


def held_by(stages: Stages, index: int) -> tuple[int, int]:
    """Return the first layer of stage `index` and the one after its last."""
    low = 0
    for count, layers in stages:
        if index < count:
            return low + index * layers, low + (index + 1) * layers
        low, index = low + count * layers, index - count
    return low, low

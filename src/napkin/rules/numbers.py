"""Whole numbers near one that does not divide."""

from __future__ import annotations

from collections.abc import Iterable

NEAR = 4
"""Values next to one that does not divide that are offered, the nearest first."""
LARGEST = 10**6
"""Whole numbers above it are divided by 1 only: no one assigns as many ranks, layers or tokens."""


def halves(degree: int) -> list[int]:
    """Return a degree halved again and again."""
    found = []
    while degree % 2 == 0:
        degree //= 2
        found.append(degree)
    return found


def divisors(whole: int) -> list[int]:
    """Return every divisor of a number, ascending."""
    return [n for n in range(1, whole + 1) if whole % n == 0] if whole <= LARGEST else [1]


def nearest(wanted: int, values: Iterable[int]) -> list[int]:
    """Return the values nearest to one that is asked for, the smaller first if two are as far away."""
    return sorted(values, key=lambda value: (abs(value - wanted), value))[:NEAR]

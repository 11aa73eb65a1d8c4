"""Integers near one that does not divide."""

from __future__ import annotations

from collections.abc import Iterable

NEAR = 4
"""Number of nearby values that are suggested for one that does not divide."""
LARGEST = 10**6
"""For larger integers only the divisor 1 is returned: no one uses as many ranks, layers or tokens."""


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
    """Return the values nearest to a requested one; ties go to the smaller."""
    return sorted(values, key=lambda value: (abs(value - wanted), value))[:NEAR]

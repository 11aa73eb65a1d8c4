"""Integers near one that does not divide."""

from __future__ import annotations

from collections.abc import Iterable

from napkin import elementwise

NEAR = 4
"""Number of nearby values that are suggested for one that does not divide."""
LARGEST = 10**6
"""Largest divisor that is suggested: no one uses as many ranks, layers or tokens."""


def halves(degree: int) -> list[int]:
    """Return a degree halved again and again."""
    found = []
    while degree % 2 == 0:
        degree //= 2
        found.append(degree)
    return found


def divisors(whole: int) -> list[int]:
    """Return the divisors of a number that may be suggested, ascending."""
    return elementwise.divisors(whole, LARGEST)


def nearest(wanted: int, values: Iterable[int]) -> list[int]:
    """Return the values nearest to a requested one; ties go to the smaller."""
    return sorted(values, key=lambda value: (abs(value - wanted), value))[:NEAR]

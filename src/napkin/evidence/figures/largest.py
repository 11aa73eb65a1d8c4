"""The largest of several numbers that vary by chance."""

from __future__ import annotations


def largest_of(count: float) -> float:
    """Return the mean of the largest of n standard normal numbers (Blom 1958: the quantile (n − 3/8) / (n + 1/4))."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0

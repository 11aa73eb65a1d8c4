"""The arithmetic that everything else is a list of: FLOPs of a matmul, attention's pairs.

One multiply-add is 2 FLOP. Every function takes integers (and answers exactly) or numpy arrays (entry by entry).
"""

from __future__ import annotations

from napkin.elementwise import Number, ceil_div, is_array, maximum, minimum, ratio, where

__all__ = [
    "Number",
    "causal_pairs",
    "ceil_div",
    "chunk_pairs",
    "chunk_squares",
    "is_array",
    "matmul_flops",
    "maximum",
    "minimum",
    "ratio",
    "run_pairs",
    "two_sided_pairs",
    "where",
]


def matmul_flops(m: Number, k: Number, n: Number, batch: Number = 1) -> Number:
    """Return the FLOP of `batch` products (m×k)(k×n): 2·m·k·n each (technically m·n·(2k−1))."""
    return 2 * batch * m * k * n


def causal_pairs(s: Number, window: Number | None = None) -> Number:
    """Return the allowed (query, key) pairs of a causal sequence of s tokens: s(s+1)/2; with a window of w tokens,
    itself included, w(w+1)/2 + (s−w)·w."""
    if window is None:
        return s * (s + 1) // 2
    w = minimum(window, s)
    return w * (w + 1) // 2 + (s - w) * w


def run_pairs(s: Number, rate: int, chosen: int | None = None) -> Number:
    """Return the allowed pairs of a query and a run of `rate` tokens in a causal sequence of s tokens, token t (from 1)
    seeing the ⌊t/rate⌋ runs that are past, of which at most `chosen`: Σ min(⌊t/rate⌋, k) = rate·c(c−1)/2 + c·(s −
    rate·c + 1) with c = min(⌊s/rate⌋, k)."""
    c = s // rate if chosen is None else minimum(s // rate, chosen)
    return rate * (c * (c - 1) // 2) + c * (s - rate * c + 1)


def chunk_pairs(s: Number, chunk: int, window: int | None = None) -> Number:
    """Return the allowed pairs of a causal sequence of s tokens, each seeing its own run of `chunk` tokens only."""
    return (s // chunk) * causal_pairs(chunk, window) + causal_pairs(s % chunk, window)


def chunk_squares(s: Number, chunk: int) -> Number:
    """Return the pairs of s tokens that see all of their own run of `chunk` tokens, and nothing else."""
    return (s // chunk) * (chunk * chunk) + (s % chunk) * (s % chunk)


def two_sided_pairs(s: Number, window: int, ahead: int) -> Number:
    """Return the pairs of s tokens that see `window` tokens back and `ahead` forward, themselves included in both."""
    return causal_pairs(s, window) + causal_pairs(s, ahead) - s

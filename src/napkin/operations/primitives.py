"""Basic counts: FLOPs of a matmul, and attention's (query, key) pairs.

One multiply-add is 2 FLOP. Every function takes integers (with exact results) or numpy arrays (elementwise).
"""

from __future__ import annotations

from napkin.elementwise import Number, ceil_div, is_array, maximum, minimum, ratio, where

__all__ = [
    "PAIRS",
    "Number",
    "all_run_pairs",
    "block_pairs",
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
    "square_pairs",
    "two_sided_pairs",
    "where",
]


def matmul_flops(m: Number, k: Number, n: Number, batch: Number = 1) -> Number:
    """Return the FLOP of `batch` matmuls (m×k)(k×n): 2·m·k·n each (technically m·n·(2k−1))."""
    return 2 * batch * m * k * n


def square_pairs(s: Number) -> Number:
    """Return the pairs of s tokens that all see each other."""
    return s * s


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


def all_run_pairs(s: Number, rate: int) -> Number:
    """Return the pairs of s tokens with each of their complete runs of `rate` tokens."""
    return s * (s // rate)


def chunk_pairs(s: Number, chunk: int, window: int | None = None) -> Number:
    """Return the allowed pairs of a causal sequence of s tokens, each seeing its own run of `chunk` tokens only."""
    return (s // chunk) * causal_pairs(chunk, window) + causal_pairs(s % chunk, window)


def chunk_squares(s: Number, chunk: int) -> Number:
    """Return the pairs of s tokens that see all of their own run of `chunk` tokens, and nothing else."""
    return (s // chunk) * (chunk * chunk) + (s % chunk) * (s % chunk)


def two_sided_pairs(s: Number, window: int, ahead: int) -> Number:
    """Return the pairs of s tokens that see `window` tokens back and `ahead` forward, themselves included in both."""
    return causal_pairs(s, window) + causal_pairs(s, ahead) - s


def block_pairs(s: Number, block: int, random: int) -> Number:
    """Return the pairs that block-sparse attention of s tokens computes (BigBird, arXiv:2007.14062): the first and the
    last of n blocks see all n; every other sees both of these, its neighbors, itself and `random` more, but the second
    and the last but one have a neighbor that all see anyway. Up to 5 + 2·random blocks all see all; a longer sequence
    is padded to whole blocks."""
    n = ceil_div(s, block)
    sparse = block**2 * (2 * n + 2 * (4 + random) + (n - 4) * (5 + random))
    return where(s > (5 + 2 * random) * block, sparse, s * s)


PAIRS = {
    rule.__name__: rule
    for rule in (
        square_pairs,
        causal_pairs,
        run_pairs,
        all_run_pairs,
        chunk_pairs,
        chunk_squares,
        two_sided_pairs,
        block_pairs,
    )
}
"""The rules by which attention pairs queries and keys of one sequence: functions of its length and of sizes."""

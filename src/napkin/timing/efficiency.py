"""What share of a peak one operation reaches: tiles, waves, depth and alignment of a matrix product.

A matrix unit works on tiles. A product (m×k)(k×n) is cut into tiles of its output; a tile that hangs over the edge is
computed whole (padding), the last wave of tiles leaves units idle (wave quantisation), each tile pays for filling the
pipeline before its k loop runs at speed, and rows that do not start on a 128-byte boundary load slowly.

Every function takes numbers or arrays.
"""

from __future__ import annotations

from napkin.elementwise import Number, ceil_div, maximum, where

TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.93), (64, 128, 0.75))
"""Output tiles (rows, columns) that matrix libraries choose from, and the share of the rate that each reaches when
full: a smaller tile re-reads its operands more often. NVIDIA, Matrix Multiplication Background User's Guide (tile
sizes 256×128 … 64×64 and their relative throughput)."""

ALIGNED = 64
"""Elements of 16 bits in the 128 bytes of one memory transaction; dimensions that are multiples of it load at full
speed. Same guide, section on dimensions and tensor cores."""


def tile_share(m: Number, n: Number, batch: Number, units: Number, waves: Number) -> Number:
    """The best share over the tile shapes of `batch` outputs m×n on `units` matrix units.

    padding loss × (wave loss)^waves, wave loss = tiles / (units·⌈tiles/units⌉); `waves` below 1 because split and
    streamed schedules soften the last wave.
    """
    best: Number = 0.0
    for rows, columns, full in TILES:
        down, across = ceil_div(m, rows), ceil_div(n, columns)
        tiles = batch * down * across
        share = full * (m / (down * rows)) * (n / (across * columns))
        share = share * (tiles / (units * ceil_div(tiles, units))) ** waves
        best = maximum(best, share)
    return best


def depth_share(k: Number, half: Number) -> Number:
    """k/(k + half): the prologue and epilogue of a tile cost as much as `half` steps of its inner loop."""
    return k / (k + half)


def halvings(size: Number) -> Number:
    """How often 64 must be halved to divide `size`: 0 for its multiples, 3 for those of 8, 6 for odd sizes."""
    count: Number = 6
    for halved in (5, 4, 3, 2, 1, 0):
        count = where(size % (ALIGNED >> halved) == 0, halved, count)
    return count


def alignment_share(k: Number, n: Number, loss: Number) -> Number:
    """`loss` (below 1) to the power of the halvings of the worse aligned of k and n."""
    return loss ** maximum(halvings(k), halvings(n))

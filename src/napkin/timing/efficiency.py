"""The share of the peak that a GEMM reaches, from tiles, waves, depth and alignment.

A GEMM (m×k)(k×n) is cut into tiles of its output. A tile over the edge is computed in full (padding), the last wave of
tiles leaves units idle (wave quantization), each tile has a prologue before its k loop runs at full speed, and rows
that do not start on a 128-byte boundary load slowly.

`tile_share`, `depth_share` and `halvings` take numbers or arrays; `tiles`, `depth` and `alignment` build terms.
"""

from __future__ import annotations

from napkin import term
from napkin.elementwise import Number, ceil_div, maximum, where
from napkin.term import Term

TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.93), (64, 128, 0.75))
"""Output tiles (rows, columns) that matrix libraries choose from, and the share of the rate that each reaches when
full: smaller tiles read operands more often. NVIDIA, Matrix Multiplication Background User's Guide (tile sizes 256×128
… 64×64 and their relative throughput)."""
TILE_SOURCE = "NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization (efficiency.py)"

ALIGNED = 64
"""Elements of 16 bits in the 128 bytes of one memory transaction; dimensions that are multiples of it load at full
speed. Same guide, section on dimensions and tensor cores."""


def tile_share(m: Number, n: Number, batch: Number, units: Number, waves: Number) -> Number:
    """Return the best share over the tile shapes of `batch` outputs m×n on `units` matrix units.

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


def halvings(size: Number) -> Number:
    """Return how often 64 must be halved to divide `size`: 0 for its multiples, 3 for those of 8, 6 for odd sizes."""
    count: Number = 6
    for halved in (5, 4, 3, 2, 1, 0):
        count = where(size % (ALIGNED >> halved) == 0, halved, count)
    return count


term.define("tile_share", tile_share)
term.define("halvings", halvings)


def tiles(name: str, m: Term, n: Term, batch: Term, units: Term, waves: Term) -> Term:
    """Return the share of the rate that tiles and waves leave to a GEMM (`tile_share`)."""
    return term.make("tile_share", name, (m, n, batch, units, waves), TILE_SOURCE)


def depth_share(k: Number, half: Number) -> Number:
    """Return k/(k + half): the prologue and epilogue of a tile cost as much as `half` steps of its inner loop."""
    return k / (k + half)


def depth(name: str, k: Term, half: Term) -> Term:
    """Return `depth_share` as a term."""
    return term.divide(name, k, term.add(f"{name}/filled", k, half))


def alignment(name: str, loss: Term, *sizes: Term) -> Term:
    """Return the share of the rate: `loss` (below 1) to the power of the halvings of the worst aligned size."""
    counts = [term.make("halvings", f"{name}/halvings/{size.name}", (size,)) for size in sizes]
    worst = term.largest(f"{name}/halvings", *counts) if len(counts) > 1 else counts[0]
    return term.power(name, loss, worst)

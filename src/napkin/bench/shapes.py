"""Which matmul shapes are worth timing, and how the race among them is run. No torch here.

A GEMM kernel cuts C into tiles (128×256 on current tensor cores) and gives one tile to one SM: with ⌈m/128⌉·⌈n/256⌉
tiles on S SMs the last wave is partly idle unless the tiles fill whole waves. k does not enter, but sets how much
arithmetic there is per byte, and the power.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

TILES = ((128, 256), (256, 128))
WAVES = range(1, 17)
SIDE_MIN, SIDE_MAX = 1024, 20480
DEPTHS = (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 20480)
CUBES = (4096, 8192, 16384)
ANCHOR = (8192, 8192, 8192)  # re-timed during a search, and comparable between machines and tools
DEPTH_MAX = 65536
WALK_STEPS = 10
WALK_STOP = 0.01  # the walk along k ends when it has lost this much
SMALL_CUBES = (128, 256, 512, 1024)  # without tensor cores a cube of this size is as good as any

Shape = tuple[int, int, int]  # m, k, n
T = TypeVar("T")


def layouts(sms: int) -> list[tuple[int, int]]:
    """Return (m, n) whose tiles fill 1 to 16 full waves: the most square both ways round, the widest, the tallest."""
    found: set[tuple[int, int]] = set()
    for waves in WAVES:
        for tile_m, tile_n in TILES:
            tiles = waves * sms
            sides = [(rows * tile_m, tiles // rows * tile_n) for rows in range(1, tiles + 1) if tiles % rows == 0]
            fitting = [s for s in sides if min(s) >= SIDE_MIN and max(s) <= SIDE_MAX]
            if fitting:
                square = most_square(fitting)
                found |= {square, square[::-1], max(fitting, key=lambda s: s[1]), max(fitting, key=lambda s: s[0])}
    return sorted(found)


def most_square(sides: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the pair whose sides differ by the smallest factor."""
    return min(sides, key=lambda s: max(s) / min(s))


def candidates(sms: int | None) -> list[Shape]:
    """Return the search grid: wave layouts × depths and three cubes; a few small cubes if there are no SMs."""
    if sms is None:
        return [(side, side, side) for side in SMALL_CUBES]
    grid = [(m, k, n) for m, n in layouts(sms) for k in DEPTHS]
    return grid + [(side, side, side) for side in CUBES]


def one_wave(sms: int) -> tuple[int, int] | None:
    """Return the most square (m, n) of a single wave: the largest shape whose tiles all start and end together."""
    sides = [(rows * TILES[0][0], sms // rows * TILES[0][1]) for rows in range(1, sms + 1) if sms % rows == 0]
    fitting = [s for s in sides if min(s) >= SIDE_MIN and max(s) <= SIDE_MAX]
    return most_square(fitting) if fitting else None


FINALISTS = 6


def race(
    entrants: Sequence[T],
    measure: Callable[[Sequence[T], float], Sequence[float]],
    seed: int = 0,
    first: float = 4e-3,
    keep: int = FINALISTS,
) -> list[tuple[T, float]]:
    """Reduce the field by successive thirds.

    All are measured for `first` seconds each, then the best third for three times as long, and so on.
    `measure(entrants, seconds)` returns one rate each. The result is the last `keep` with their last rates, best first.
    Each round costs about the same, so a race among hundreds costs a handful of rounds.
    """
    order = random.Random(seed)
    running = list(entrants)
    seconds = first
    while True:
        order.shuffle(running)
        ranked = sorted(zip(running, measure(running, seconds), strict=True), key=lambda pair: -pair[1])
        if len(ranked) <= keep:
            return ranked
        ranked = ranked[: max(keep, len(ranked) // 3)]
        if len(ranked) == keep:
            return ranked
        running = [entrant for entrant, _ in ranked]
        seconds *= 3


def walk_depths(k: int) -> tuple[list[int], list[int]]:
    """Return the depths to try above and below k, nearest first: steps of k/8 rounded down to a power of two."""
    step = 1 << max(6, (k // 8).bit_length() - 1)
    up = [k + i * step for i in range(1, WALK_STEPS + 1) if k + i * step <= DEPTH_MAX]
    down = [k - i * step for i in range(1, WALK_STEPS + 1) if k - i * step >= SIDE_MIN]
    return up, down


def walk(shape: Shape, rate: float, measure: Callable[[Shape], float]) -> tuple[Shape, float]:
    """Climb along k from `shape`, up and down, until it has lost more than one per cent of the best seen."""
    best, best_rate = shape, rate
    m, k, n = shape
    for direction in walk_depths(k):
        for depth in direction:
            seen = measure((m, depth, n))
            if seen > best_rate:
                best, best_rate = (m, depth, n), seen
            elif seen < best_rate * (1.0 - WALK_STOP):
                break
    return best, best_rate

"""Every layout of a machine, evaluated as arrays by the same formulas as `step` and `memory`.

Layouts whose states by themselves are larger than a GPU are dropped; the others are evaluated block by block (grid.py).
Where only the fastest layouts are asked for, all are timed, and memory is evaluated from the fastest on until one fits.
"""

from __future__ import annotations

import math

import numpy as np

from napkin.planning.found import Found, joined, layout_at, score
from napkin.planning.grid import Request
from napkin.planning.known_memory import Memory, memory_of
from napkin.planning.layout_time import Timed, timed_blocks
from napkin.record import replace


def search(request: Request, timed: Timed, capacity: float, prune: bool = True) -> Found:
    """Evaluate every layout; keep those that use at most `capacity` bytes of each GPU. Layouts whose states by
    themselves are larger are not evaluated further; without `prune` they are, so that the one of least memory is
    known."""
    memory = memory_of(request, capacity) if prune else Memory(request, math.inf)
    every = [np.broadcast_to(block.valid, sizes.shape) for block, sizes in zip(memory.blocks, memory.used, strict=True)]
    memory.evaluate(every)
    fitting = [memory.fitting(number, wanted, capacity) for number, wanted in enumerate(every)]
    found = joined(memory, fitting, timed_blocks(request, [one.block for one in fitting], timed), capacity)
    return found if prune else _with_least(found, memory)


def _with_least(found: Found, memory: Memory) -> Found:
    """Return the layouts found with the one of least memory among all."""
    least, least_used = None, math.inf
    for block, used in zip(memory.blocks, memory.used, strict=True):
        sizes = np.where(block.valid, used, math.inf)
        if sizes.min() < least_used:
            least, least_used = layout_at(memory.request, block, int(sizes.argmin())), float(sizes.min())
    return replace(found, least=least, least_used=least_used)


class Fastest:
    """The fastest layouts of a request that fit, as many as are asked for.

    layouts  how many there are, fitting or not
    least    the least GPU-seconds of a token of all of which it is not known that they do not fit
    """

    def __init__(self, request: Request, timed: Timed, capacity: float) -> None:
        self.memory = memory_of(request, capacity).alone(capacity)
        blocks = self.memory.blocks
        self._capacity = capacity
        self._times = [
            np.broadcast_to(times, used.shape)
            for times, used in zip(timed_blocks(request, blocks, timed), self.memory.used, strict=True)
        ]
        self._scores = [
            np.where(block.valid, score(request, times, block.sequences), math.inf)
            for block, times in zip(blocks, self._times, strict=True)
        ]
        self._all = np.concatenate([one[np.isfinite(one)] for one in self._scores] or [np.zeros(0)])
        self.reached = -math.inf
        """GPU-seconds of a token up to which memory has been evaluated."""

    @property
    def layouts(self) -> int:
        return self.memory.layouts

    @property
    def least(self) -> float:
        return float(self._all.min()) if len(self._all) else math.inf

    @property
    def complete(self) -> bool:
        """Return whether nothing is left to evaluate."""
        return not len(self._all) or self.reached >= self._all.max()

    def found(self, count: int) -> Found:
        """Return those of the `count` fastest layouts, and of all as fast as the last of them, that fit."""
        last = min(count, len(self._all)) - 1
        self.reached = float(np.partition(self._all, last)[last]) if len(self._all) else -math.inf
        wanted = [scores <= self.reached for scores in self._scores]
        self.memory.evaluate(wanted)
        fitting = [self.memory.fitting(number, some, self._capacity) for number, some in enumerate(wanted)]
        times = [all_times[..., one.cells] for all_times, one in zip(self._times, fitting, strict=True)]
        return joined(self.memory, fitting, times, self._capacity)

"""Every layout of a machine, evaluated as arrays by the same formulas as `step` and `memory`.

Layouts whose states alone exceed a GPU are dropped; the others are evaluated block by block (grid.py). If only the
fastest layouts are needed, all are timed, and memory is evaluated from the fastest on until one fits."""

from __future__ import annotations

import math

import numpy as np

from napkin.planning.fitting_layouts import FittingLayouts, joined, layout_at, together
from napkin.planning.grid import Array, Request
from napkin.planning.layout_time import Timed, Times, timed_blocks
from napkin.planning.memory_cache import Memory, memory_of
from napkin.record import replace

FIRST = 1 << 10
"""Number of cells timed first; each further round doubles it."""
AHEAD = 1 << 12
"""Minimum number of layouts whose memory is evaluated at a time, so that the next question, whose rates order them
slightly differently, needs few others."""


def search(request: Request, timed: Timed, capacity: float, prune: bool = True) -> FittingLayouts:
    """Evaluate every layout; keep those that use at most `capacity` bytes of each GPU. Layouts whose states alone are
    larger are dropped; without `prune` they are evaluated, so that the one of least memory is known."""
    return together(request, [_search(part, timed, capacity, prune) for part in request.parts()])


def _search(request: Request, timed: Timed, capacity: float, prune: bool) -> FittingLayouts:
    """Evaluate the layouts of one setup."""
    memory = memory_of(request, capacity) if prune else Memory(request, math.inf)
    every = [np.broadcast_to(block.valid, sizes.shape) for block, sizes in zip(memory.blocks, memory.used, strict=True)]
    memory.evaluate(every)
    fitting = [memory.fitting(number, wanted, capacity) for number, wanted in enumerate(every)]
    found = joined(memory, fitting, timed_blocks(request, [one.block for one in fitting], timed), capacity)
    return found if prune else _with_least(found, memory)


def _with_least(found: FittingLayouts, memory: Memory) -> FittingLayouts:
    """Return the layouts found with the one of least memory among all."""
    least, least_used = None, math.inf
    for block, used in zip(memory.blocks, memory.used, strict=True):
        sizes = np.where(block.valid, used, math.inf)
        if sizes.min() < least_used:
            least, least_used = layout_at(memory.request, block, int(sizes.argmin())), float(sizes.min())
    return replace(found, least=least, least_used=least_used)


class Fastest:
    """The fastest layouts of a request that fit, in any number.

    layouts  number of layouts, fitting or not
    """

    def __init__(self, request: Request, timed: Timed, capacity: float) -> None:
        self.request = request
        self.parts = [_Fastest(part, timed, capacity) for part in request.parts()]
        self.layouts = sum(part.layouts for part in self.parts)

    @property
    def least(self) -> float:
        """Return the least GPU-seconds per token of the layouts that may fit."""
        return min((part.least for part in self.parts), default=math.inf)

    @property
    def complete(self) -> bool:
        """Return whether everything has been evaluated."""
        return all(part.complete for part in self.parts)

    @property
    def reached(self) -> float:
        """Return the GPU-seconds per token up to which memory has been evaluated."""
        return min((part.reached for part in self.parts if not part.complete), default=math.inf)

    def found(self, count: int) -> FittingLayouts:
        """Return layouts that fit: at least those among the `count` fastest ones, and all up to what was reached."""
        found = together(self.request, [part.found(count) for part in self.parts])
        return found if len(self.parts) == 1 else found.up_to(self.reached)


class _Fastest:
    """The same for one setup. Cells are timed in the order of their lower bounds, until no other cell can have a layout
    among the fastest.

    layouts  number of layouts, fitting or not
    reached  GPU-seconds per token up to which memory has been evaluated
    """

    def __init__(self, request: Request, timed: Timed, capacity: float) -> None:
        self.memory = memory_of(request, capacity).alone(capacity)
        self.layouts = self.memory.layouts
        self.reached = -math.inf
        self._capacity = capacity
        self._begun = 0
        self._order, self._least = np.zeros(0, dtype=int), np.zeros(0)
        self._scores: Array = np.zeros((1, 1, 0))
        if self.memory.blocks:
            self._times = Times(request, self.memory.blocks, timed)
            least = self._times.least()
            self._order = np.argsort(least, kind="stable")
            self._least = least[self._order]
            self._scores = np.full(self._times.seconds.shape, math.inf)

    def _timed(self, count: int) -> Array:
        """Return the GPU-seconds per token of layouts: at least the `count` fastest are timed, others are infinite."""
        while not self._all_timed and np.count_nonzero(self._scores < self._least[self._begun]) < count:
            cells = self._order[self._begun : self._begun + max(self._begun, FIRST)]
            self._begun += len(cells)
            self._times.evaluate(cells)
            self._scores[..., cells] = self._times.scores(cells)
        return self._scores

    @property
    def _all_timed(self) -> bool:
        return self._begun == len(self._order)

    @property
    def least(self) -> float:
        """Return the least GPU-seconds per token of the layouts that may fit."""
        return float(self._timed(1).min()) if len(self._order) else math.inf

    @property
    def complete(self) -> bool:
        """Return whether everything has been evaluated."""
        return self._all_timed and self.reached >= _last_of(self._scores, self._scores.size)

    def found(self, count: int) -> FittingLayouts:
        """Return the layouts that fit among the `count` fastest ones and those tied with the last of them."""
        if not self.memory.blocks:
            return joined(self.memory, [], [], self._capacity)
        scores = self._timed(count)
        self.reached = _last_of(scores, count)
        wanted = self._times.by_block(scores <= self.reached)
        if not self.memory.knows(wanted):
            ahead = max(count, AHEAD)
            scores = self._timed(ahead)
            self.memory.evaluate(self._times.by_block(scores <= _last_of(scores, ahead)))
        fitting = [self.memory.fitting(number, some, self._capacity) for number, some in enumerate(wanted)]
        seconds = self._times.by_block(self._times.seconds)
        times = [all_times[..., one.cells] for all_times, one in zip(seconds, fitting, strict=True)]
        return joined(self.memory, fitting, times, self._capacity)


def _last_of(scores: Array, count: int) -> float:
    """Return the score of the last of the `count` best layouts, of all if there are fewer."""
    finite = scores[np.isfinite(scores)]
    last = min(count, len(finite)) - 1
    return float(np.partition(finite, last)[last]) if len(finite) else -math.inf

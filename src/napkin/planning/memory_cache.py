"""Memory of the layouts of a request, evaluated on demand and kept for later questions.

Questions that differ only in rates (a faster network, a deadline) share the memory of all their layouts; those about a
subset of the layouts, or smaller GPUs, share what is known of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from napkin.elementwise import where
from napkin.footprint.loading import GPU, overloads
from napkin.footprint.memory import least_states
from napkin.options.layout import FIELDS
from napkin.planning.blocks import Block, blocks, spread
from napkin.planning.grid import Array, Grid, Request, grid
from napkin.planning.layout_memory import ROUNDING, used
from napkin.record import fields, record, replace


@record
class Fitting:
    """Cells of a block with layouts that fit. cells: their indices in the block; the other arrays are
    [recomputation, zero, cell]."""

    block: Block
    cells: Array
    used: Array
    upper: Array
    fits: Array


class Memory:
    """Memory of the layouts whose states alone fit in a capacity.

    layouts  number of layouts, fitting or not
    used, upper, known  by block, as [recomputation, zero, cell]: used bytes (a lower bound for layouts that do not
    fit), their upper ends, and whether both have been evaluated"""

    def __init__(self, request: Request, capacity: float) -> None:
        self.request, self.capacity = request, capacity
        whole = grid(request)
        self.layouts = count_of(request, whole)
        self.blocks = list(_candidates(request, whole, capacity))
        shapes = [(len(request.recomputes), *block.valid.shape) for block in self.blocks]
        self.used, self.upper = ([np.zeros(shape) for shape in shapes] for _ in range(2))
        self.known = [np.zeros(shape, dtype=bool) for shape in shapes]

    def knows(self, wanted: Sequence[Array]) -> bool:
        """Return whether all wanted entries have been evaluated; wanted: masks by block."""
        return not any((some & ~known).any() for some, known in zip(wanted, self.known, strict=True))

    def evaluate(self, wanted: Sequence[Array]) -> None:
        """Evaluate the wanted entries that are not known; wanted: masks by block."""
        for number, (block, known) in enumerate(zip(self.blocks, self.known, strict=True)):
            missing = wanted[number] & ~known
            cells = np.flatnonzero(missing.any(axis=(0, 1)))
            if len(cells):
                missing = missing[..., cells]
                for whole, part in zip(
                    (self.used, self.upper), used(self.request, block.kept(cells), self.capacity, missing), strict=True
                ):
                    whole[number][..., cells] = np.where(missing, part, whole[number][..., cells])
                known[..., cells] |= missing

    def fitting(self, number: int, wanted: Array, capacity: float) -> Fitting:
        """Return those of the wanted layouts of a block that fit."""
        request, block = self.request, self.blocks[number]
        loads = overloads(request.model, replace(request.setup, layout=block.layout), capacity)
        fits = wanted & (self.used[number] <= capacity) & np.logical_not(loads & (request.setup.loading == GPU))
        upper = spread(where(loads, math.inf, self.upper[number]), fits.shape)
        cells = np.flatnonzero(fits.any(axis=(0, 1)))
        arrays = (array[..., cells] for array in (self.used[number], upper, fits))
        return Fitting(self.blocks[number].kept(cells), cells, *arrays)

    def alone(self, capacity: float) -> Memory:
        """Return the cells with a layout that fits; all cells while some are unknown."""
        if not all(known[:, block.valid].all() for known, block in zip(self.known, self.blocks, strict=True)):
            return self
        pairs = zip(self.blocks, self.used, strict=True)
        parts = [np.flatnonzero((block.valid & (sizes <= capacity)).any(axis=(0, 1))) for block, sizes in pairs]
        return self._of(self.request, parts)

    def _of(self, request: Request, parts: Sequence[Array]) -> Memory:
        """Return the memory of some cells of each block."""
        found = Memory.__new__(Memory)
        found.request, found.capacity, found.layouts = request, self.capacity, self.layouts
        some = [number for number, cells in enumerate(parts) if len(cells)]
        found.blocks = [self.blocks[number].kept(parts[number]) for number in some]
        found.used, found.upper, found.known = (
            [arrays[number].take(parts[number], axis=-1) for number in some]
            for arrays in (self.used, self.upper, self.known)
        )
        return found

    def among(self, request: Request, capacity: float) -> Memory:
        """Return the memory of the layouts that a narrower request allows."""
        found = Memory.__new__(Memory)
        found.request, found.capacity = request, capacity
        found.layouts = count_of(request, grid(request))
        found.blocks, found.used, found.upper, found.known = [], [], [], []
        for number, block in enumerate(self.blocks):
            valid = block.valid
            for degree, most in request.below.items():
                values = block.layout.zero if degree == "zero" else block.column(FIELDS[degree])
                valid = valid & (values <= most)
            cells = np.flatnonzero(valid.any(axis=0))
            if len(cells):
                found.blocks.append(replace(block, valid=valid).kept(cells))
                for mine, theirs in ((found.used, self.used), (found.upper, self.upper), (found.known, self.known)):
                    mine.append(theirs[number][..., cells])
        return found


_FIRST: dict[tuple[int, tuple[int, ...]], Memory] = {}
"""Memory of the first question, by number of GPUs and ZeRO stages."""
_LAST: dict[tuple[int, ...], Memory] = {}
"""Memory of the last question, by ZeRO stages."""
MOST_KEPT = 8
"""Number of GPU counts to cache of each: a search for the fewest tries about as many."""


def memory_of(request: Request, capacity: float) -> Memory:
    """Return the memory of a request's layouts, reusing evaluations of earlier questions."""
    for kept in (*_FIRST.values(), *_LAST.values()):
        if kept.capacity == capacity and _has_same_layouts(request, kept.request):
            return kept
        if kept.capacity >= capacity and _is_narrower(request, kept.request):
            return kept.among(request, capacity)
    found = Memory(request, capacity)
    alike = [one for (_, stages), one in _FIRST.items() if stages == request.stages]
    first = alike[0] if alike else found
    if len(alike) < MOST_KEPT and first.capacity == capacity and replace(first.request, gpus=request.gpus) == request:
        _FIRST[request.gpus, request.stages] = found
    else:
        _LAST[request.stages] = found
    return found


def _has_same_layouts(request: Request, other: Request) -> bool:
    """Return whether two requests are equal, or differ only in bounds and have the same layouts."""
    if request == other:
        return True
    if replace(other, below=request.below) != request:
        return False
    mine, theirs = grid(request), grid(other)
    if mine is None or theirs is None:
        return mine is theirs
    return all(np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in fields(Grid))


def _is_narrower(request: Request, than: Request) -> bool:
    """Return whether a request covers a subset of the layouts of another."""
    bounds = (request.below.get(degree, math.inf) <= most for degree, most in than.below.items())
    return replace(than, below=request.below) == request and all(bounds)


def count_of(request: Request, whole: Grid | None) -> int:
    """Return the number of layouts of a request."""
    return 0 if whole is None else whole.count * len(request.recomputes)


def _candidates(request: Request, whole: Grid | None, capacity: float) -> Iterator[Block]:
    """Yield the layouts whose states alone fit a GPU."""
    for block in () if whole is None else blocks(request, whole):
        states = least_states(request.model, replace(request.setup, layout=block.layout))
        fits = block.valid & (states * ROUNDING <= capacity)
        cells = np.flatnonzero(fits.any(axis=0))
        if len(cells):
            yield replace(block, valid=fits).kept(cells)

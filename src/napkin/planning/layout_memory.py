"""Memory of many layouts as arrays, on the worst stage of each.

Cells that differ only in the model chunks per stage share a base: a stage holds the same for them, except for the
activations of micro-batches in flight, which are constant during a pass. Each base is evaluated once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from napkin.autograd.control_flow import BranchesDifferError, same_branches
from napkin.elementwise import Number, is_array, maximum
from napkin.footprint import memory
from napkin.footprint.rank import waiting_bytes
from napkin.footprint.rows import Rows
from napkin.footprint.stages import in_flight, places_of
from napkin.planning.blocks import Block, as_array, cells_of, entries_of, spread
from napkin.planning.grid import Array, Request
from napkin.planning.verdicts import figures_of, narrow_copies, width_of
from napkin.record import record, replace
from napkin.training.setup import Setup, Width

AT_ONCE = 1 << 13
"""Number of stages evaluated at a time, so that the arrays stay in the processor's caches."""
FEW = 2
"""If at least one stage in N can fit, all are evaluated, including those that cannot."""
ROUNDING = 1 - 1e-9
"""Tolerance of a bound for rounding."""
MANY = 1 << 10
"""Number of cells from which it pays to first drop those whose first stage is too large."""

Used = tuple[Array, Array]
"""memory/used and the upper end of its interval."""


def used(request: Request, block: Block, capacity: float, wanted: Array) -> Used:
    """Return memory/used and the upper end of its interval as [recomputation, zero, cell]; wanted: mask of the entries
    to evaluate, of the same shape. Micro-batches of one sequence are evaluated with those of more if both run the
    same."""
    one = block.column("micro") == 1
    parts = [np.flatnonzero(one), np.flatnonzero(~one)]
    widths = [_width(request, block, micro) for micro in (1, 2)]
    if all(map(len, parts)) and widths[0] == widths[1]:
        rows = one[Bases(block).row_cells]
        try:
            with same_branches(rows, ~rows):
                return _used(request, block, capacity, wanted, widths[0])
        except BranchesDifferError:
            pass  # they are evaluated one after the other
    whole: Used = np.zeros(wanted.shape), np.zeros(wanted.shape)
    for cells, width in zip(parts, widths, strict=True):
        if len(cells):
            found = _used(request, block.kept(cells), capacity, wanted[..., cells], width)
            for every, some in zip(whole, found, strict=True):
                every[..., cells] = some
    return whole


def _width(request: Request, block: Block, micro: int) -> Width:
    """Return the interval widths of the figures of a block, with micro-batches of this many sequences."""
    alike = block.layout.replaced(micro=micro, dp=request.gpus, **dict.fromkeys(("tp", "pp", "cp", "ep", "vp"), 1))
    return width_of(request.model, replace(request.setup, layout=alike))


def _used(request: Request, block: Block, capacity: float, wanted: Array, width: Width) -> Used:
    """Return the result of `used` for cells that run the same operations.

    For many cells, first evaluate the first stage of all, then the other stages of those where it fits; the rest cannot
    fit, because the worst stage needs at least as much."""
    tapes: dict[tuple[str, ...], Rows] = {}  # the tape is the same where the same parts of layers are recomputed
    found = []
    bases = Bases(block)
    for recompute, asked in zip(request.recomputes, wanted, strict=True):
        if not asked.any():
            found.append((np.zeros(asked.shape), np.zeros(asked.shape)))
            continue
        setup = replace(request.setup, layout=block.layout.replaced(recompute=recompute))
        if recompute.parts not in tapes:
            rows = cells_of(setup.layout, bases.row_cells).replaced(zero=0)
            tapes[recompute.parts] = Rows(request.model, replace(setup, layout=rows))
        found.append(_Stages(tapes[recompute.parts], setup, bases, width).worst(asked, capacity))
    both = zip(*found, strict=True)
    of_all, ends = (np.stack(one) for one in both)
    return of_all, ends


class Bases:
    """The bases of a block: its cells without their model chunks. Cells of one base are adjacent.

    cells  the first cell of each base      of_cell    the base of each cell
    rows   the row of each base, counted from 0 among the rows that the block has
    row_cells  a cell of each row
    """

    def __init__(self, block: Block) -> None:
        pp = block.column("pp")
        begins = np.diff(block.row, prepend=-1).astype(bool) | np.diff(pp, prepend=0).astype(bool)
        self.cells = np.flatnonzero(begins)
        self.of_cell = np.cumsum(begins) - 1
        _, first, index = np.unique(block.row[self.cells], return_index=True, return_inverse=True)
        self.row_cells, self.rows = self.cells[first], index.reshape(-1)


@record
class _Some:
    """Stages of some bases; those of one base are adjacent.

    bases   the base of each stage      place  the index of each stage, or of all
    depth   the number of stages of all pipelines, if that is one number
    """

    bases: Array
    place: Number
    depth: int | None

    def those(self, which: Array) -> _Some:
        return _Some(self.bases[which], self.place[which] if is_array(self.place) else self.place, self.depth)


class _Stages:
    """The stages of the cells of a block under one recomputation."""

    def __init__(self, tape: Rows, setup: Setup, bases: Bases, width: Width) -> None:
        self.tape, self.setup, self.bases, self.width = tape, setup, bases, width
        self.layout = cells_of(setup.layout, bases.cells).replaced(vp=1)
        """Of the bases."""
        depths = as_array(self.layout.pp)
        order = tape.order(setup)
        self.of_depth: dict[int, Array] = {}
        self.storages: dict[int, tuple[Number, ...]] = {}
        for depth in np.unique(depths):
            single = replace(setup, layout=setup.layout.replaced(pp=int(depth)))
            self.storages[int(depth)] = places_of(tape.model, order, single)
            self.of_depth[int(depth)] = np.flatnonzero(depths == depth)
        alike = len(order.segments) == 1 and order.segments[0].period == 1
        self.apart = setup.layout.recompute.kind == "group" and not alike
        """Whether checkpoint groups restart on every stage, so that stages are evaluated index by index."""

    def worst(self, valid: Array, capacity: float) -> Used:
        """Return memory/used of the worst stage of each cell, and its upper end."""
        used, upper = np.zeros(valid.shape), np.zeros(valid.shape)
        every = np.flatnonzero(valid.any(axis=0))
        split = len(every) >= MANY and capacity < math.inf
        for part in (slice(1), slice(1, None)) if split else (slice(None),):
            for some in self._some(part, every):
                cells, stages = self._each(some.bases, every)
                if not len(cells):
                    continue
                starts = np.flatnonzero(np.diff(cells, prepend=-1))
                mine = cells[starts]
                zero = np.flatnonzero(valid[:, mine].any(axis=1))
                both = self._evaluated(some, cells, stages, zero, capacity)
                for whole, one in zip((used, upper), both, strict=True):
                    for stage, largest in zip(zero, np.maximum.reduceat(one, starts, axis=1), strict=True):
                        whole[stage, mine] = np.maximum(whole[stage, mine], largest)
            every = np.flatnonzero((valid & (used <= capacity)).any(axis=0))
        return used, upper

    def _some(self, part: slice, among: Array) -> Iterator[_Some]:
        """Yield the stages of some cells' bases, as many at a time as fit in memory, grouped by pipeline depth, because
        a depth often has only some ZeRO stages."""
        kept = np.zeros(len(self.bases.cells), dtype=bool)
        kept[self.bases.of_cell[among]] = True
        bases: list[Array] = []
        where: list[Array] = []
        for depth, members in self.of_depth.items():
            here = members[kept[members]]
            stages = self.storages[depth][part]
            if self.apart and len(here):
                for place in stages:
                    yield _Some(here, place, depth)
            else:
                bases.append(np.repeat(here, len(stages)))
                where.append(np.tile(np.array(stages, dtype=float), len(here)))
        if bases:
            joined, place_of = np.concatenate(bases), np.concatenate(where)
            for start in range(0, len(joined), AT_ONCE):
                at_once = slice(start, start + AT_ONCE)
                yield _Some(joined[at_once], place_of[at_once], None)

    def _each(self, bases: Array, among: Array) -> tuple[Array, Array]:
        """Return pairs of cells and stages: each cell repeated for every stage of its base, and the index of the
        stage."""
        begins = np.flatnonzero(np.diff(bases, prepend=-1))
        first, count = np.zeros(len(self.bases.cells), dtype=int), np.zeros(len(self.bases.cells), dtype=int)
        first[bases[begins]], count[bases[begins]] = begins, np.diff(begins, append=len(bases))
        of_cell = self.bases.of_cell[among]
        times = count[of_cell]
        before = np.cumsum(times) - times
        return np.repeat(among, times), np.repeat(first[of_cell] - before, times) + np.arange(times.sum())

    def _evaluated(self, some: _Some, cells: Array, stages: Array, zero: Array, capacity: float) -> Used:
        """Return the used bytes as [zero, cell] of cells on stages of their bases; zero: indices of the ZeRO stages.
        If most exceed the capacity anyway, a lower bound is taken as the used bytes."""

        def of_cells(values: Number) -> Number:
            """Return the entries of the cells from those of stages."""
            return entries_of(values, len(some.bases), stages)

        of_zero = as_array(self.setup.layout.zero)
        deep = {} if some.depth is None else {"pp": some.depth}
        layout = cells_of(self.layout, some.bases).replaced(zero=of_zero[zero], **deep)
        step = self.tape.step(replace(self.setup, layout=layout), self.bases.rows[some.bases])
        rank = memory.holding(step, some.place)
        alone = rank.alone()
        planned = self.setup.framework.planned
        flight = in_flight(cells_of(self.setup.layout, cells).replaced(**deep), of_cells(some.place), planned)
        waiting = waiting_bytes(of_cells(rank.each), of_cells(rank.delayed), *flight)
        least = spread(of_cells(alone.least) + waiting, (len(zero), len(cells)))
        fit = np.flatnonzero((least * ROUNDING <= capacity).any(axis=0))
        if FEW * len(fit) > len(cells):
            alone = memory.with_moments(step, alone)
            flow = alone.flow(step.setup)
            flow = replace(
                flow,
                standing=of_cells(flow.standing),
                passing=of_cells(flow.passing) + waiting,
                groups=of_cells(flow.groups),
                workspaces=of_cells(flow.workspaces),
                streams=of_cells(flow.streams),
                peers=of_cells(flow.peers),
                layers=of_cells(flow.layers),
                head=of_cells(flow.head),
            )
            live = maximum(of_cells(alone.in_passes) + waiting, flow.standing)
            copies = of_cells(narrow_copies(self.setup, alone))
            found = figures_of(self.setup, live, flow, self.width, copies, bounds=("high",))
            return spread(found.used.value, least.shape), spread(found.ends["memory/used"][1], least.shape)
        used, upper = least.copy(), least.copy()
        if len(fit):
            kept, index = np.unique(stages[fit], return_inverse=True)
            used[:, fit], upper[:, fit] = self._evaluated(some.those(kept), cells[fit], index, zero, math.inf)
        return used, upper

"""Memory of many layouts as arrays, on the stage of each that uses the most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from napkin import term
from napkin.elementwise import Number, is_array, maximum
from napkin.footprint import allocator, memory
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Rank
from napkin.footprint.rows import Rows
from napkin.footprint.stages import places, places_of
from napkin.operations.model import Model
from napkin.planning.grid import Array, Block, Request, cells_of
from napkin.planning.verdicts import narrow_copies, width_of
from napkin.record import replace
from napkin.training.setup import EXACT, Setup, Width

AT_ONCE = 1 << 13
"""Stages of cells that are evaluated at a time: more would leave the processor's caches."""
FEW = 2
"""Share of the stages, as one in so many, down to which those that cannot fit are evaluated along with the others."""
ROUNDING = 1 - 1e-9
"""What a bound may be off by rounding."""
MANY = 1 << 10
"""Cells of which those are set aside first whose first stage alone is too large: for fewer it does not pay."""

Used = tuple[Array, Array]
"""memory/used and the upper end of its interval."""


def used_bytes(model: Model, setup: Setup) -> Any:
    """Return memory/used of the worst stage of one layout."""
    step = prepare(model, setup)
    return maximum(*(_used_by(step, memory.rank_of(step, place), EXACT)[0] for place in places(step)))


def used(request: Request, block: Block, capacity: float, wanted: Array) -> Used:
    """Return memory/used and the upper end of its interval as [recomputation, zero, cell]; wanted: of which, an array
    of the same shape.

    Of many cells, the first stage is evaluated for all and the others where it fits: no stage needs less than the worst
    one, so that what is left out is larger than the capacity anyway."""
    alike = block.layout.replaced(
        tp=1, micro=2 if is_array(block.layout.micro) else 1, **dict.fromkeys(("pp", "cp", "ep", "vp"), 1)
    )
    alike = alike.replaced(dp=request.gpus)
    width = width_of(request.model, replace(request.setup, layout=alike), request.implementation)
    tapes: dict[bool, Rows] = {}  # the tape is the same for all but `selective`
    found = []
    distinct, first, index = np.unique(block.row, return_index=True, return_inverse=True)
    for recompute, asked in zip(request.recomputes, wanted, strict=True):
        setup = replace(request.setup, layout=block.layout.replaced(recompute=recompute))
        selective = recompute.kind == "selective"
        if selective not in tapes:
            rows = cells_of(setup.layout, first).replaced(zero=0)
            tapes[selective] = Rows(request.model, replace(setup, layout=rows))
        found.append(_Stages(tapes[selective], setup, index.reshape(-1), width).worst(asked, capacity))
    both = zip(*found, strict=True)
    of_all, ends = (np.stack(one) for one in both)
    return of_all, ends


class _Stages:
    """The stages of the cells of a block under one recomputation."""

    def __init__(self, tape: Rows, setup: Setup, index: Array, width: Width) -> None:
        self.tape, self.setup, self.index, self.width = tape, setup, index, width
        depths: Array = setup.layout.pp
        order = tape.order(setup)
        self.cells: dict[int, Array] = {}
        self.storages: dict[int, tuple[Number, ...]] = {}
        for depth in np.unique(depths):
            single = replace(setup, layout=setup.layout.replaced(pp=int(depth)))
            self.storages[int(depth)] = places_of(tape.model, order, single)
            self.cells[int(depth)] = np.flatnonzero(depths == depth)
        alike = len(order.segments) == 1 and order.segments[0].period == 1
        self.apart = setup.layout.recompute.kind == "group" and not alike
        """Whether checkpoint groups start anew on every stage: then stages of one place are evaluated at a time."""

    def worst(self, valid: Array, capacity: float) -> Used:
        """Return what the worst stage of each cell uses, and the upper end."""
        used, upper = np.zeros(valid.shape), np.zeros(valid.shape)
        every = np.flatnonzero(valid.any(axis=0))
        split = len(every) >= MANY and capacity < math.inf
        for part in (slice(1), slice(1, None)) if split else (slice(None),):
            for cells, place, depth in self._pairs(part, every):
                starts = np.flatnonzero(np.diff(cells, prepend=-1))
                zero = np.flatnonzero(valid[:, cells].any(axis=1))
                here = np.ix_(zero, cells[starts])
                for whole, one in zip((used, upper), self._evaluated(cells, zero, place, depth, capacity), strict=True):
                    whole[here] = np.maximum(whole[here], np.maximum.reduceat(one, starts, axis=1))
            every = np.flatnonzero((valid & (used <= capacity)).any(axis=0))
        return used, upper

    def _pairs(self, part: slice, among: Array) -> Iterator[tuple[Array, Any, int | None]]:
        """Yield cells with the places of some of their stages, as many at a time as there is room for: cell by cell,
        those of one number of stages after the other, which often have some ZeRO stages only."""
        kept = np.zeros(len(self.index), dtype=bool)
        kept[among] = True
        cells: list[Array] = []
        where: list[Array] = []
        for depth, members in self.cells.items():
            here = members[kept[members]]
            stages = self.storages[depth][part]
            if self.apart and len(here):
                for place in stages:
                    yield here, place, depth
            else:
                cells.append(np.repeat(here, len(stages)))
                where.append(np.tile(np.array(stages, dtype=float), len(here)))
        if cells:
            joined, place_of = np.concatenate(cells), np.concatenate(where)
            for start in range(0, len(joined), AT_ONCE):
                some = slice(start, start + AT_ONCE)
                yield joined[some], place_of[some], None

    def _evaluated(self, cells: Array, zero: Array, place: Any, depth: int | None, capacity: float) -> Used:
        """Return the used bytes of these stages as [zero, cell]; zero: indices of the ZeRO stages. Where most stages
        hold more than the capacity whatever the moment, what these hold stands for what they use."""
        stages: Array = self.setup.layout.zero
        layout = cells_of(self.setup.layout, cells).replaced(zero=stages[zero])
        if depth is not None:
            layout = layout.replaced(pp=depth)
        step = self.tape.step(replace(self.setup, layout=layout), self.index[cells])
        rank = memory.holding(step, place)
        least = np.broadcast_to(np.asarray(rank.least, dtype=float), (len(zero), len(cells)))
        some = np.flatnonzero((least * ROUNDING <= capacity).any(axis=0))
        if FEW * len(some) > len(cells):
            found = _used_by(step, memory.with_moments(step, rank), self.width)
            return np.broadcast_to(found[0], least.shape), np.broadcast_to(found[1], least.shape)
        used, upper = least.copy(), least.copy()
        if len(some):
            places = place[some] if is_array(place) else place
            used[:, some], upper[:, some] = self._evaluated(cells[some], zero, places, depth, math.inf)
        return used, upper


def _used_by(step: PreparedStep, rank: Rank, width: Width) -> tuple[Any, Any]:
    """Return memory/used of a rank and the upper end of its interval."""
    setup = step.setup
    live = term.leaf("memory/live", rank.live, "byte", term.TRUE)
    found = allocator.reported(live, setup.layout.gpus, setup.compiled, width, rank.flow(setup), bounds=("high",))
    return found.used.value, found.ends["memory/used"][1] + narrow_copies(setup, rank)

"""Every layout of a machine, evaluated as arrays by the same formulas as `step` and `memory`.

Layouts whose states alone are larger than the card are dropped; what is left is evaluated block by block (grid.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from napkin.footprint.memory import least_states
from napkin.planning.found import Found, exact_layout
from napkin.planning.grid import CELL, Array, Block, Grid, Request, blocks, grid
from napkin.planning.layout_memory import used
from napkin.planning.layout_time import Timed, seconds
from napkin.record import record, replace
from napkin.training.layout import Layout

TIMED = 1 << 12
"""Cells that are timed together at most, unless one block has more."""
ROUNDING = 1 - 1e-9
"""What a bound may be off by rounding."""


def search(request: Request, timed: Timed, capacity: float, prune: bool = True) -> Found:
    """Evaluate every layout; keep those that use at most `capacity` bytes of each card. Layouts whose states alone are
    larger are not evaluated further; without `prune` they are, so that the one of least memory is known."""
    memory = _memory(request, capacity, prune)
    return _joined(request, memory, [seconds(request, one.block, timed) for one in memory.fitting], capacity)


@record
class Fitting:
    """Cells that fit under some recomputation and ZeRO stage; arrays are [recomputation, zero, cell]."""

    block: Block
    used: Array
    upper: Array
    fits: Array

    def kept(self, cells: Array, fits: Array) -> Fitting:
        """Return some of the cells; fits: which of their layouts."""
        return Fitting(self.block.kept(cells), self.used[..., cells], self.upper[..., cells], fits[..., cells])


@record
class Evaluated:
    """What a search knows before any time.

    fitting  layouts that fit, by block
    layouts  how many there are, fitting or not       least, least_used   the one of least memory, if it is known
    """

    fitting: list[Fitting]
    layouts: int
    least: Layout | None
    least_used: float


_KEPT: list[tuple[Request, float, Evaluated]] = []
"""The first search and the last: questions that differ in rates alone (sensitivity, a deadline) share their memory."""


def _memory(request: Request, capacity: float, prune: bool) -> Evaluated:
    """Return the layouts that fit, from an earlier search where that asked the same of memory, or for more."""
    if not prune:
        return _evaluated(request, capacity, prune)
    for asked, room, found in _KEPT:
        if room == capacity and asked == request:
            return found
        if room >= capacity and replace(asked, below=request.below) == request and _narrower(request, asked):
            return _among(found, request, capacity)
    found = _evaluated(request, capacity, prune)
    _KEPT[1:] = [(request, capacity, found)]
    return found


def _narrower(request: Request, than: Request) -> bool:
    """Return whether every largest value of a degree is at most the other request's."""
    return all(request.below.get(degree, math.inf) <= most for degree, most in than.below.items())


def _among(found: Evaluated, request: Request, capacity: float) -> Evaluated:
    """Return those of the layouts found that the request allows and that fit into a smaller capacity."""
    whole = grid(request)
    fitting: list[Fitting] = []
    for one in found.fitting:
        fits = one.fits & (one.used <= capacity)
        for degree, most in request.below.items():
            values = one.block.layout.zero if degree == "zero" else one.block.column(FIELDS.get(degree, degree))
            fits = fits & (values <= most)
        cells = fits.any(axis=(0, 1))
        if cells.any():
            fitting.append(one.kept(cells, fits))
    return Evaluated(fitting, _count(request, whole), None, math.inf)


FIELDS = {"micro-batch": "micro"}
"""Fields of a layout whose degree has another name."""


def _count(request: Request, whole: Grid | None) -> int:
    return 0 if whole is None else whole.count * len(request.recomputes)


def _evaluated(request: Request, capacity: float, prune: bool) -> Evaluated:
    """Evaluate the memory of every layout."""
    fitting: list[Fitting] = []
    whole, least, least_used = grid(request), None, math.inf
    room = capacity if prune else math.inf
    for block in () if whole is None else _candidates(request, whole, room):
        sizes, upper = used(request, block, room)
        fits = block.valid & (sizes <= capacity)
        if not prune:
            sizes = np.where(block.valid, sizes, math.inf)
            if sizes.min() < least_used:
                least_used = float(sizes.min())
                least = _layout_at(request, block, int(sizes.argmin()))
        cells = fits.any(axis=(0, 1))
        if cells.any():
            fitting.append(Fitting(block, sizes, upper, fits).kept(cells, fits))
    return Evaluated(list(_gathered(fitting)), _count(request, whole), least, least_used)


def _layout_at(request: Request, block: Block, at: int) -> Layout:
    """Return one layout of a block, by its place among all recomputations, ZeRO stages and cells."""
    again, stage, cell = np.unravel_index(at, (len(request.recomputes), *block.valid.shape))
    numbers = {name: int(block.column(name)[cell]) for name in CELL}
    numbers |= {"zero": int(np.ravel(block.layout.zero)[stage])}
    return exact_layout(request, numbers, request.recomputes[int(again)])


def _gathered(fitting: list[Fitting]) -> Iterator[Fitting]:
    """Yield the same layouts in the same order, those of small blocks together: the formulas of time do not differ
    between kinds of block."""
    start = 0
    while start < len(fitting):
        end, count = start + 1, len(fitting[start].block)
        while end < len(fitting) and count + len(fitting[end].block) <= TIMED:
            count += len(fitting[end].block)
            end += 1
        yield _together(fitting[start:end])
        start = end


def _together(parts: list[Fitting]) -> Fitting:
    """Return blocks of several kinds as one."""
    if len(parts) == 1:
        return parts[0]
    layouts = [part.block.layout for part in parts]
    columns = {name: np.concatenate([part.block.column(name) for part in parts]) for name in CELL}
    block = Block(
        layouts[0].replaced(**columns),
        np.concatenate([part.block.row for part in parts]),
        np.concatenate([part.block.valid for part in parts], axis=-1),
    )
    arrays = (np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("used", "upper", "fits"))
    return Fitting(block, *arrays)


def _joined(request: Request, memory: Evaluated, times: list[Array], capacity: float) -> Found:
    """Return the layouts that fit as columns."""
    pieces = [_columns(one, spent) for one, spent in zip(memory.fitting, times, strict=True)]
    names = (*CELL, "zero", "recompute", "seconds", "used", "upper")
    columns = {name: np.concatenate([piece[name] for piece in pieces]) if pieces else np.zeros(0) for name in names}
    spent, sizes, surely = columns.pop("seconds"), columns.pop("used"), columns.pop("upper") <= capacity
    score = _score(request, spent, columns["micro"] * columns["micro_batches"] * columns["dp"])
    return Found(request, columns, spent, sizes, surely, score, memory.layouts, memory.least, memory.least_used)


def _columns(one: Fitting, spent: Array) -> dict[str, Array]:
    """Return the layouts of a block that fit, with an entry for each in every array."""
    fits = one.fits
    again, stage, cell = np.nonzero(fits)
    piece = {name: one.block.column(name)[cell] for name in CELL}
    return piece | {
        "zero": np.ravel(one.block.layout.zero)[stage],
        "recompute": again,
        "seconds": np.broadcast_to(spent, fits.shape)[fits],
        "used": one.used[fits],
        "upper": one.upper[fits],
    }


def _score(request: Request, spent: Array, sequences: Array) -> Array:
    """Return the GPU-seconds of a token."""
    return request.gpus * spent / np.maximum(sequences * request.seq, 1.0)


def least_score(request: Request, timed: Timed, capacity: float) -> float:
    """Return the least GPU-seconds of a token of all layouts whose states fit, whether the rest of them fits or not."""
    whole = grid(request)
    least = math.inf
    for block in () if whole is None else _candidates(request, whole, capacity):
        layout = block.layout
        scores = _score(request, seconds(request, block, timed), layout.micro * layout.micro_batches * layout.dp)
        least = min(least, float(np.where(block.valid, scores, math.inf).min()))
    return least


def _candidates(request: Request, whole: Grid, capacity: float) -> Iterator[Block]:
    """Yield the layouts of which the states alone fit a card."""
    for block in blocks(request, whole):
        states = least_states(request.model, replace(request.setup, layout=block.layout))
        fits = block.valid & (states * ROUNDING <= capacity)
        cells = fits.any(axis=0)
        if cells.any():
            yield replace(block, valid=fits).kept(cells)

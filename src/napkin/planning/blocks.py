"""Layouts of a grid in blocks that run the same operations: the inputs of the memory and time formulas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from napkin.elementwise import Number, is_array
from napkin.planning.grid import Array, Grid, GridColumn, GridRow, Request
from napkin.record import record
from napkin.training.layout import Layout

ENTRIES = 1 << 19
"""Maximum cells of the grid in a block, unless one row has more."""

CELL = (*GridRow._fields, *GridColumn._fields, "dp", "micro_batches")
"""Fields of a layout that may differ from cell to cell of a block."""


def given(request: Request) -> Layout:
    """Return the fields that all layouts share: the sequences, their images, how full experts are."""
    return request.setup.layout.replaced(seq=request.seq)


@record
class Block:
    """Layouts of a grid that run the same operations: tp is 1 for all or above 1 for all, and sp is one number.

    layout  one entry per cell (a row and a column), ZeRO stages as [zero, 1]; without recomputation
    row     of each cell            valid  [zero, cell]
    """

    layout: Layout
    row: Array
    valid: Array

    def __len__(self) -> int:
        return len(self.row)

    @property
    def zero(self) -> Array:
        """The ZeRO stages."""
        return as_array(self.layout.zero)[:, 0]

    @property
    def sequences(self) -> Array:
        """Sequences of a step."""
        return as_array(self.layout.global_batch)

    def kept(self, cells: Array) -> Block:
        """Return some of the cells; cells: their indices, or a mask."""
        return Block(cells_of(self.layout, cells), self.row[cells], self.valid[:, cells])

    def column(self, name: str) -> Array:
        """Return one field of the layout with an entry for each cell."""
        return np.broadcast_to(np.asarray(getattr(self.layout, name), dtype=float), self.row.shape)


def cells_of(layout: Layout, cells: Array) -> Layout:
    """Return some of the cells of a block's layout."""
    arrays = {name: getattr(layout, name) for name in CELL}
    return layout.replaced(**{name: array[cells] for name, array in arrays.items() if is_array(array)})


def blocks(request: Request, whole: Grid) -> Iterator[Block]:
    """Yield the layouts of a grid in blocks."""
    kinds, kind_of = np.unique(np.stack((whole.rows.tp == 1, whole.rows.sp), axis=1), axis=0, return_inverse=True)
    rows_at_once = max(ENTRIES // (len(whole.columns.pp) * len(whole.zero)), 1)
    for kind, (whole_width, sp) in enumerate(kinds):
        members = np.flatnonzero(kind_of.reshape(-1) == kind)
        for start in range(0, len(members), rows_at_once):
            rows = members[start : start + rows_at_once]
            of_row, of_column = np.nonzero(whole.valid[:, rows].any(axis=0))
            row = rows[of_row]
            tp, cp, ep, _, micro = (values[row] for values in whole.rows)
            pp, vp = (values[of_column] for values in whole.columns)
            layout = given(request).replaced(
                micro=micro,
                micro_batches=whole.micro_batches[row, of_column],
                tp=1 if whole_width else tp,
                pp=pp,
                dp=whole.dp[row, of_column],
                cp=cp,
                ep=ep,
                vp=vp,
                sp=int(sp),
                zero=whole.zero,
            )
            yield Block(layout, row, whole.valid[:, row, of_column])


def score(request: Request, seconds: Array, samples: Array) -> Array:
    """Return the GPU-seconds per token; samples: those of a step, each of one or several sequences."""
    found: Array = request.gpus * seconds / np.maximum(samples * request.setup.layout.rows * request.seq, 1.0)
    return found


def as_array(values: Number) -> Array:
    """Return values of a block, which must be an array."""
    assert isinstance(values, np.ndarray)
    return values


def spread(values: Number, shape: tuple[int, ...]) -> Array:
    """Return numbers as an array of that shape."""
    return np.broadcast_to(values if isinstance(values, np.ndarray) else float(values), shape)


def entries_of(values: Number, count: int, index: Array) -> Number:
    """Return selected entries of values with `count` entries along the last axis; other values unchanged."""
    return values.take(index, axis=-1) if is_array(values) and values.shape[-1] == count else values

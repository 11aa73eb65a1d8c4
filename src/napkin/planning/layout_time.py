"""The time of many layouts as arrays: the time of one layer is computed once per row of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from napkin.elementwise import is_array
from napkin.planning.blocks import CELL, Block, entries_of, score
from napkin.planning.grid import Array, Request
from napkin.planning.layout_memory import ROUNDING
from napkin.record import fields, record, replace
from napkin.term import Term
from napkin.timing.layer import RECOMPUTED, LayerTime
from napkin.timing.layer_weights import Held
from napkin.timing.pipeline import Layers
from napkin.timing.rates import Rates
from napkin.timing.step import layers_of_passes, least_step, step_of_passes
from napkin.timing.step_layout import StepLayout
from napkin.training.setup import Setup
from napkin.training.tasks import Passes

Timed = Callable[[Setup], "tuple[StepLayout, Rates]"]
"""Maps a setup to its layout for the time formulas, and to the rates of machine and software."""

AT_ONCE = 1 << 12
"""Number of cells timed at a time, so that the arrays stay in the processor's caches."""


@record
class _Kind:
    """How steps under some recomputations (by index) are computed; layers: of every row."""

    which: list[int]
    passes: Passes
    plan: StepLayout
    rates: Rates
    layers: tuple[Layers, ...]


class Times:
    """Times of the layouts of some blocks, for selected cells. The time formulas are the same for all layouts, so
    blocks are evaluated together.

    seconds  step/time as [recomputation, zero, cell], the cells of one block after those of another; infinite if it
             is not evaluated
    """

    def __init__(self, request: Request, parts: Sequence[Block], timed: Timed) -> None:
        self._request, self._block = request, _joined(parts)
        self._ends = np.cumsum([len(part) for part in parts])[:-1]
        _, self._first, index = np.unique(self._block.row, return_index=True, return_inverse=True)
        self._row = index.reshape(-1)
        self._kinds = [self._kind(timed, which) for which in self._alike()]
        self.seconds = np.full((len(request.recomputes), *self._block.valid.shape), math.inf)

    def _setups(self) -> list[Setup]:
        """Return the setup under each recomputation."""
        layouts = (self._block.layout.replaced(recompute=one) for one in self._request.recomputes)
        return [replace(self._request.setup, layout=layout) for layout in layouts]

    def _alike(self) -> list[list[int]]:
        """Return the recomputations by index, grouped by the layers that gradients reach and the parts of layers that
        run again."""
        found: dict[object, list[int]] = {}
        for number, setup in enumerate(self._setups()):
            found.setdefault((setup.wakes, setup.layout.recompute.apart), []).append(number)
        return list(found.values())

    def _kind(self, timed: Timed, which: list[int]) -> _Kind:
        """Return how steps under some recomputations are computed, with recomputation as an axis."""
        setups = self._setups()
        passes = setups[which[0]].passes(self._request.model)
        asked = [timed(setups[number]) for number in which]
        plan, rates = asked[0]
        shares = {name: np.array([float(getattr(p, name)) for p, _ in asked]).reshape(-1, 1, 1) for name in RECOMPUTED}
        plan = replace(plan, **shares)
        of_rows = (_picked(one, len(self._block), self._first) for one in (plan, rates))
        with np.errstate(all="ignore"):  # entries that are not valid may divide by zero
            return _Kind(which, passes, plan, rates, layers_of_passes(passes, *of_rows))

    def evaluate(self, cells: Array) -> None:
        """Evaluate some of the cells."""
        for kind in self._kinds:
            for some, plan, rates, layers in self._parts(kind, cells):
                seconds = step_of_passes(kind.passes, plan, rates, layers).time.value
                for number, one in zip(
                    kind.which, np.broadcast_to(seconds, (len(kind.which), *seconds.shape[1:])), strict=True
                ):
                    self.seconds[number][..., some] = one

    def least(self) -> Array:
        """Return a lower bound of the GPU-seconds per token of each cell's layouts."""
        found = np.full(len(self._block), math.inf)
        for kind in self._kinds:
            for some, plan, rates, layers in self._parts(kind, np.arange(len(found))):
                seconds = least_step(plan, rates, layers[0]).value
                found[some] = np.minimum(found[some], seconds.min(axis=tuple(range(seconds.ndim - 1))))
        return ROUNDING * score(self._request, found, self._block.sequences)

    def scores(self, cells: Array) -> Array:
        """Return the GPU-seconds per token of the layouts of some cells, infinite if not valid."""
        some = self._block.kept(cells)
        return np.where(some.valid, score(self._request, self.seconds[..., cells], some.sequences), math.inf)

    def by_block(self, values: Array) -> list[Array]:
        """Return values of all cells block by block."""
        return np.split(values, self._ends, axis=-1)

    def _parts(self, kind: _Kind, cells: Array) -> Iterator[tuple[Array, StepLayout, Rates, tuple[Layers, ...]]]:
        """Yield batches of cells with their step layouts and layers."""
        with np.errstate(all="ignore"):
            for start in range(0, len(cells), AT_ONCE):
                some = cells[start : start + AT_ONCE]
                plan, rates = (_picked(one, len(self._block), some) for one in (kind.plan, kind.rates))
                yield some, plan, rates, _picked(kind.layers, len(self._first), self._row[some])


def timed_blocks(request: Request, parts: Sequence[Block], timed: Timed) -> list[Array]:
    """Return step/time of blocks."""
    if not any(len(part) for part in parts):
        return [np.zeros((1, 1, 0)) for _ in parts]
    times = Times(request, parts, timed)
    times.evaluate(np.arange(sum(map(len, parts))))
    return times.by_block(times.seconds)


def _joined(parts: Sequence[Block]) -> Block:
    """Return blocks of several kinds as one."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.column(name) for part in parts]) for name in CELL}
    rows, valid = (np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("row", "valid"))
    return Block(parts[0].layout.replaced(**columns), rows, valid)


def _picked(value: Any, count: int, index: Array) -> Any:
    """Return a value with some entries of every array in it whose last axis has `count` of them."""
    if is_array(value):
        return entries_of(value, count, index)
    if isinstance(value, Term):
        return Term(value.name, _picked(value.value, count, index), value.unit, value.op, (), value.source, value.kind)
    if isinstance(value, (Layers, LayerTime, Held, StepLayout, Rates)):
        names = fields(type(value))
        return replace(value, **{name: _picked(getattr(value, name), count, index) for name in names})
    if isinstance(value, dict):
        return {name: _picked(one, count, index) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_picked(one, count, index) for one in value)
    return value

"""The time of many layouts as arrays: what one layer takes is computed once a row of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from napkin.elementwise import is_array
from napkin.planning.grid import CELL, Array, Block, Request, score
from napkin.planning.layout_memory import ROUNDING
from napkin.record import fields, replace
from napkin.term import Term
from napkin.timing.layer import RECOMPUTED, LayerTime
from napkin.timing.layer_weights import Held
from napkin.timing.pipeline import Layers
from napkin.timing.rates import Rates
from napkin.timing.step import layers_of_passes, least_step, step_of_passes
from napkin.timing.step_layout import StepLayout
from napkin.training.setup import Setup

Timed = Callable[[Setup], "tuple[StepLayout, Rates]"]
"""From a setup to its layout, as the formulas of time take it, and the rates of the machine and software."""

AT_ONCE = 1 << 12
"""Cells that are timed at a time: more would leave the processor's caches."""


class Times:
    """Times of the layouts of some blocks, of the cells that are asked for. The formulas of time do not differ between
    the kinds of layouts, so that blocks are evaluated together.

    seconds  step/time as [recomputation, zero, cell], the cells of one block after those of another; infinite where it
             is not evaluated
    """

    def __init__(self, request: Request, parts: Sequence[Block], timed: Timed) -> None:
        self._request, self._block = request, _joined(parts)
        self._ends = np.cumsum([len(part) for part in parts])[:-1]
        block = self._block
        setups = (replace(request.setup, layout=block.layout.replaced(recompute=one)) for one in request.recomputes)
        asked = [timed(setup) for setup in setups]
        plan, self._rates = asked[0]
        shares = {name: np.array([float(getattr(p, name)) for p, _ in asked]).reshape(-1, 1, 1) for name in RECOMPUTED}
        self._plan = replace(plan, **shares)  # recomputation is an axis too
        _, first, index = np.unique(block.row, return_index=True, return_inverse=True)
        self._row, self._rows = index.reshape(-1), len(first)
        plan, rates = (_picked(one, len(block), first) for one in (self._plan, self._rates))
        self._layers = layers_of_passes(request.passes, plan, rates)
        self.seconds = np.full((len(request.recomputes), *block.valid.shape), math.inf)

    def evaluate(self, cells: Array) -> None:
        """Evaluate some of the cells."""
        for some, plan, rates, layers in self._parts(cells):
            self.seconds[..., some] = step_of_passes(self._request.passes, plan, rates, layers).time.value

    def least(self) -> Array:
        """Return the GPU-seconds of a token of every cell below which none of its layouts is."""
        found = np.zeros(len(self._block))
        for some, plan, rates, layers in self._parts(np.arange(len(found))):
            seconds = least_step(plan, rates, layers[0]).value
            found[some] = seconds.min(axis=tuple(range(seconds.ndim - 1)))
        return ROUNDING * score(self._request, found, self._block.sequences)

    def scores(self, cells: Array) -> Array:
        """Return the GPU-seconds of a token of the layouts of some cells, infinite where they are not valid."""
        some = self._block.kept(cells)
        return np.where(some.valid, score(self._request, self.seconds[..., cells], some.sequences), math.inf)

    def by_block(self, values: Array) -> list[Array]:
        """Return values of all cells block by block."""
        return np.split(values, self._ends, axis=-1)

    def _parts(self, cells: Array) -> Iterator[tuple[Array, StepLayout, Rates, tuple[Layers, ...]]]:
        """Yield some of the cells at a time, with how their steps are laid out and computed, and their layers."""
        with np.errstate(all="ignore"):  # entries that are not valid may divide by zero
            for start in range(0, len(cells), AT_ONCE):
                some = cells[start : start + AT_ONCE]
                plan, rates = (_picked(one, len(self._block), some) for one in (self._plan, self._rates))
                yield some, plan, rates, _picked(self._layers, self._rows, self._row[some])


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
        return value.take(index, axis=-1) if value.shape[-1] == count else value
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

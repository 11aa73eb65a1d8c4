"""The time of many layouts as arrays: what one layer takes is computed once a row of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from napkin.elementwise import is_array
from napkin.planning.grid import CELL, Array, Block, Request
from napkin.record import fields, replace
from napkin.term import Term
from napkin.timing.layer import RECOMPUTED, LayerTime
from napkin.timing.layer_weights import Held
from napkin.timing.pipeline import Layers
from napkin.timing.rates import Rates
from napkin.timing.step import layers_of_passes, step_of_passes
from napkin.timing.step_layout import StepLayout
from napkin.training.setup import Setup
from napkin.training.tasks import Passes

Timed = Callable[[Setup], "tuple[StepLayout, Rates]"]
"""From a setup to its layout, as the formulas of time take it, and the rates of the machine and software."""

AT_ONCE = 1 << 12
"""Cells that are timed at a time: more would leave the processor's caches."""


def timed_blocks(request: Request, parts: Sequence[Block], timed: Timed) -> list[Array]:
    """Return step/time of blocks, evaluated together: the formulas of time do not differ between kinds."""
    if not any(len(part) for part in parts):
        return [np.zeros((1, 1, 0)) for _ in parts]
    seconds = _seconds(request, _joined(parts), timed)
    return np.split(seconds, np.cumsum([len(part) for part in parts])[:-1], axis=-1)


def _joined(parts: Sequence[Block]) -> Block:
    """Return blocks of several kinds as one."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.column(name) for part in parts]) for name in CELL}
    rows, valid = (np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("row", "valid"))
    return Block(parts[0].layout.replaced(**columns), rows, valid)


def _seconds(request: Request, block: Block, timed: Timed) -> Array:
    """Return step/time as [recomputation, zero, cell]: one evaluation for the kinds of recomputation under which
    gradients reach the same layers, in which they are an axis too."""
    setups = [replace(request.setup, layout=block.layout.replaced(recompute=one)) for one in request.recomputes]
    found: dict[int, Array] = {}
    for wakes in {setup.wakes for setup in setups}:
        alike = [number for number, setup in enumerate(setups) if setup.wakes == wakes]
        passes = setups[alike[0]].passes(request.model)
        seconds = _of_kinds(passes, block, [timed(setups[number]) for number in alike])
        seconds = np.broadcast_to(seconds, (len(alike), *seconds.shape[1:]))
        found |= dict(zip(alike, seconds, strict=True))
    return np.stack([found[number] for number in range(len(setups))])


def _of_kinds(passes: Passes, block: Block, asked: Sequence[tuple[StepLayout, Rates]]) -> Array:
    """Return step/time as [recomputation, zero, cell]; asked: the plan and the rates of each kind."""
    plan, rates = asked[0]
    shares = {name: np.array([float(getattr(p, name)) for p, _ in asked]).reshape(-1, 1, 1) for name in RECOMPUTED}
    plan = replace(plan, **shares)
    _, first, index = np.unique(block.row, return_index=True, return_inverse=True)
    found = []
    with np.errstate(all="ignore"):  # entries that are not valid may divide by zero
        of_rows = layers_of_passes(passes, *(_picked(one, len(block), first) for one in (plan, rates)))
        for start in range(0, len(block), AT_ONCE):
            some = np.arange(start, min(start + AT_ONCE, len(block)))
            layers = _picked(of_rows, len(first), index.reshape(-1)[some])
            here, rates_here = (_picked(one, len(block), some) for one in (plan, rates))
            seconds = step_of_passes(passes, here, rates_here, layers).time.value
            found.append(np.broadcast_to(seconds, (*seconds.shape[:-1], len(some))))
    return np.concatenate(found, axis=-1)


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

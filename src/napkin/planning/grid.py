"""Every valid layout of a machine, a model and a batch, as arrays.

The inputs of one layer (tensor, context, expert and sequence parallelism, micro-batch) vary along the rows of a grid;
those of the pipeline (stages, chunks) along its columns; the ZeRO stage is a third axis. The formulas take numbers or
arrays, so what does not depend on the ZeRO stage is computed once for all of its values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from napkin.elementwise import divisors
from napkin.operations.model import Model
from napkin.operations.queries import undivided, unshared_heads
from napkin.options.layout import FIELDS
from napkin.record import record, replace
from napkin.training.framework import ANY
from napkin.training.recomputation import Recompute
from napkin.training.setup import Setup

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"

MOST_MICRO = 64
"""Largest micro-batch that is tried; kernels reach full efficiency well below."""


class GridRow(NamedTuple):
    """The inputs of one layer, with one entry per row of a grid; fields as in Layout."""

    tp: Array
    cp: Array
    ep: Array
    sp: Array
    micro: Array


class GridColumn(NamedTuple):
    """The inputs of the pipeline, with one entry per column of a grid."""

    pp: Array
    vp: Array


@record
class Request:
    """A search space.

    setup    of every layout, but for their ZeRO stages in `sharded`
    sharded  setups of layouts on other frameworks, each with the ZeRO stages that mean one
    stages   ZeRO stages
    gpus     total number of GPUs               node     GPUs of a node
    batch    sequences in a step, or None: each layout takes its largest batch up to `most`
    only     the allowed value by degree        below    the largest value by degree
    deep     whether ZeRO-3 may be combined with a pipeline
    """

    model: Model
    setup: Setup
    gpus: int
    node: int
    seq: int
    batch: int | None
    most: int
    recomputes: tuple[Recompute, ...]
    only: Mapping[str, int]
    below: Mapping[str, int]
    deep: bool = True
    sharded: tuple[tuple[tuple[int, ...], Setup], ...] = ()
    stages: tuple[int, ...] = ANY

    def setup_with(self, zero: int) -> Setup:
        """Return the setup of layouts with a ZeRO stage."""
        return next((setup for stages, setup in self.sharded if zero in stages), self.setup)

    def parts(self) -> list[Request]:
        """Return the search as several that have one setup each."""
        found = dict.fromkeys((self.setup, *(setup for _, setup in self.sharded)))
        of = {setup: tuple(stage for stage in self.stages if self.setup_with(stage) == setup) for setup in found}
        return [self._part(setup, stages) for setup, stages in of.items() if stages]

    def _part(self, setup: Setup, stages: tuple[int, ...]) -> Request:
        """Return the search of some ZeRO stages, without a pipeline where only other frameworks have one."""
        staged = setup.framework.divides.staged or not self.setup.framework.divides.staged
        below = self.below if staged else {**self.below, "pp": 1}
        return replace(self, setup=setup, sharded=(), stages=stages, below=below)

    def allows(self, degree: str, value: int) -> bool:
        if degree == "zero" and not (value in self.stages and value in self.setup_with(value).framework.divides.zero):
            return False
        return self.only.get(degree, value) == value and value <= self.below.get(degree, value)


def forced(setup: Setup) -> dict[str, int]:
    """Return the degrees that the optimizer leaves no choice of: whole matrices, one micro-batch a step."""
    return ({"tp": 1} if setup.optimizer.whole else {}) | ({"grad-accum": 1} if setup.in_backward else {})


@record
class Grid:
    """Layouts: each row has a tp, cp, ep, sp and micro-batch, each column a pp and vp. `valid` is [zero, row, column],
    the other arrays are [row, column]; zero: the ZeRO stages."""

    rows: GridRow
    columns: GridColumn
    zero: Array
    valid: Array
    dp: Array
    micro_batches: Array

    @property
    def count(self) -> int:
        """How many layouts there are."""
        return int(self.valid.sum())


def grid(request: Request) -> Grid | None:
    """Return every layout that divides the machine, the model and the batch; None if there is none.

    tp divides the heads (operations/queries.py), cp the sequence, sp the tokens of a sequence, ep the experts and the
    data-parallel ranks, micro-batch · dp the batch, tp·pp·cp·dp the number of GPUs; pp·vp is at most the layers; a step
    with images has no pipeline, because its first stage would have the tower."""
    n = request.gpus
    largest = request.batch or request.most
    rows, columns = list(_rows(request, largest)), list(_columns(request))
    stages = [zero for zero in range(4) if request.allows("zero", zero)]
    if not rows or not columns or not stages:
        return None
    each_row, each_column = GridRow(*np.array(rows, dtype=float).T), GridColumn(*np.array(columns, dtype=float).T)
    zero = np.array(stages, dtype=float).reshape(-1, 1, 1)
    tp, cp, ep, _, micro = (values[:, None] for values in each_row)
    pp = each_column.pp
    dp = n / (tp * cp * pp)
    whole = dp == np.floor(dp)
    dp = np.where(whole, dp, 1.0)
    count = np.floor(largest / (micro * dp))
    accumulated = request.only.get("grad-accum")
    divides = whole & (dp % ep == 0) & (count >= 1)
    if accumulated is not None:  # the batch that it makes is at most the largest, and the one that is given
        divides &= count >= accumulated
        count = np.full_like(count, accumulated)
    if request.batch is not None:
        divides &= count * micro * dp == request.batch
    if "dp" in request.only:
        divides &= dp == request.only["dp"]
    if "dp" in request.below:
        divides &= dp <= request.below["dp"]
    valid = divides & ((zero == 0) | (dp * cp > 1))
    if not request.deep:
        valid &= (zero < 3) | (pp == 1)
    valid &= np.stack([_has(request, stage, each_row, pp * dp) for stage in stages])
    kept_rows, kept_columns = valid.any(axis=(0, 2)), valid.any(axis=(0, 1))
    if not kept_rows.any():
        return None
    both = np.ix_(kept_rows, kept_columns)
    counts = np.maximum(count[both], 1.0)
    valid = valid[:, kept_rows][:, :, kept_columns]
    each_row = GridRow(*(values[kept_rows] for values in each_row))
    each_column = GridColumn(*(values[kept_columns] for values in each_column))
    return Grid(each_row, each_column, zero[:, :, 0], valid, dp[both], counts)


def _has(request: Request, stage: int, rows: GridRow, others: Array) -> Array:
    """Return whether the software has tensor- and context-parallel ranks with a ZeRO stage, as [row, column]; others:
    ranks of other degrees, as [row, column]."""
    divides, found = request.setup_with(stage).framework.divides, np.ones(others.shape, dtype=bool)
    for name, ranks, further in (("tp", rows.tp, rows.cp), ("cp", rows.cp, rows.tp)):
        if stage not in divides.of(name, request.setup.layout.ulysses):
            found &= ranks[:, None] == 1
        elif divides.alone:
            found &= (ranks[:, None] == 1) | (further[:, None] * others == 1)
    return found


def _rows(request: Request, largest: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the fields of each GridRow that divides model and machine."""
    model, n = request.model, request.gpus
    experts = model.experts
    sizes = _micro_batches(request, largest)
    for tp in divisors(n, model.heads):
        if undivided(model, request.setup.implementation, tp) or not request.allows("tp", tp):
            continue
        for cp in divisors(n // tp, request.seq):
            if request.seq % cp or not request.allows("cp", cp):
                continue
            if request.setup.layout.ulysses and unshared_heads(model, cp, tp):
                continue
            some = divisors(n // (tp * cp), max(experts)) if experts else [1]
            some = [ep for ep in some if all(count % ep == 0 for count in experts) and request.allows("ep", ep)]
            sequence = [0, 1] if tp > 1 and request.seq // cp % tp == 0 else [0]
            for ep in some:
                for sp in sequence:
                    if request.allows("sp", sp):
                        yield from ((tp, cp, ep, sp, micro) for micro in sizes)


def _columns(request: Request) -> Iterator[tuple[int, int]]:
    """Yield the fields of each GridColumn that divides the layers."""
    depth = request.model.stacks[-1].depth
    whole = request.model.on_one_stage or request.setup.layout.images
    for pp in divisors(request.gpus, 1 if whole else depth):
        if request.allows("pp", pp):
            yield from ((pp, vp) for vp in chunks(depth, pp) if request.allows("vp", vp))


def _micro_batches(request: Request, largest: int) -> list[int]:
    """Return the divisors of a given batch; powers of two if it is free."""
    sizes = divisors(request.batch, MOST_MICRO) if request.batch else [1 << i for i in range(MOST_MICRO.bit_length())]
    if "micro-batch" in request.only:
        sizes = [request.only["micro-batch"]]
    return [size for size in sizes if size <= largest and request.allows("micro-batch", size)]


def chunks(depth: int, pp: int) -> list[int]:
    """Return the numbers of virtual stages of a pipeline: the divisors of the layers of its fullest stage."""
    if pp == 1:
        return [1]
    return [vp for vp in divisors(-(-depth // pp), depth) if pp * vp <= depth]


def near_values(free: Request, name: str, value: int) -> list[int]:
    """Return the values of a degree that have layouts, nearest to `value` first."""
    whole = grid(free)
    if whole is None:
        return []
    of_layouts = {"dp": whole.dp, "grad-accum": whole.micro_batches}
    if name in of_layouts:
        values = of_layouts[name][whole.valid.any(axis=0)]
    elif name == "zero":
        values = whole.zero[whole.valid.any(axis=(1, 2))]
    else:
        field = FIELDS[name]
        values = getattr(whole.rows if field in GridRow._fields else whole.columns, field)
    found = {int(value) for value in values.flat}
    return sorted(found - {value}, key=lambda v: abs(math.log(max(v, 0.5) / max(value, 0.5))))[:4]

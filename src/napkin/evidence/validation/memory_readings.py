"""The possible readings of a published row of memory: the memory model under each setup that the row leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from napkin.elementwise import Number, ceil_div
from napkin.evidence.rows.row import RowFields
from napkin.evidence.rows.setups import dated, setup_of, stated_recompute
from napkin.evidence.software.scripts import scripts_of
from napkin.footprint import allocator, memory
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.rank import Rank
from napkin.operations.model import Model
from napkin.record import record, replace
from napkin.term import TRUE, leaf
from napkin.training.framework import ENDS, FIRST, Framework
from napkin.training.recomputation import Recompute
from napkin.training.setup import EXACT, Setup, Width

STATE_BYTES = 18
"""Bytes a parameter of Korthikanti et al. 2022, figure 1: fp16 weights, fp32 gradients, master copy and moments."""


def reported_rank(prepared: PreparedStep) -> Rank:
    """Return the rank whose memory the framework's log prints."""
    setup = prepared.setup
    stages = int(setup.layout.pp)
    which = setup.framework.reported
    if which == FIRST:
        places: list[int] = [0]
    elif which == ENDS:
        places = [0, stages - 1]
    else:
        places = sorted({0, min(1, stages - 1), stages // 2, max(stages - 2, 0), stages - 1})
    ranks = [memory.rank_of(prepared, place) for place in places]
    return max(ranks, key=lambda rank: rank.live + rank.flow(setup).apart(rank.live))


def analytic(prepared: PreparedStep) -> float:
    """Return the bytes of a bar by its paper's definition: the first stage's block weights at 18 bytes and what
    its layers save for all micro-batches in flight, no embedding, head or loss (Korthikanti et al. 2022, figure 1)."""
    rank = memory.rank_of(prepared, 0)
    weights = sum(n * part.all for n, part in zip(rank.stage.layers, prepared.weights.layers, strict=True))
    kept = sum(
        (n - again) * section.saved + again * section.input
        for n, again, (_, section) in zip(rank.stage.layers, rank.stage.checkpointed, prepared.run.layers, strict=True)
    )
    return float(STATE_BYTES * weights + rank.stage.in_flight * kept)


@record
class Figures:
    """Figures of one reading of a row: the printed quantity with its ends, the used bytes, and the lower and upper
    bounds from the constants' ranges."""

    value: float
    used: float
    least: float
    most: float
    low: float
    high: float


def figures(
    row: RowFields, setup: Setup, model: Model, quantity: str, grows: bool = False, width: Width | None = None
) -> Figures:
    """Return the figures of one setup for the quantity that the row prints. width: how far live bytes may be from the
    formulas; the ends of the quantity follow from it and from the allocator's ranges, as those of `napkin memory` do.
    Without it they are the quantity itself."""
    prepared = prepare(model, setup)
    if row.flag("memory.analytic"):
        value = analytic(prepared)
        return Figures(value, value, value, value, value, value)
    rank = reported_rank(prepared)
    context = allocator.CONTEXT_EAGER if scripts_of(setup.framework).eager_context else allocator.CONTEXT
    term = leaf("memory/live", ceil_div(rank.live, 1), "byte", TRUE)
    flow = rank.flow(setup)
    found = allocator.reported(term, setup.layout.gpus, width or EXACT, flow, context, grows)
    terms = {"memory_reserved": found.reserved, "memory_used": found.used}
    printed = terms.get(quantity, found.allocated)
    value, most = float(printed.value), float(found.ends["memory/used"][1])
    low, high = (float(end) for end in found.ends[printed.name]) if width else (value, value)
    return Figures(value, float(found.used.value), float(found.least), most, low, high)


def layouts(row: RowFields, setup: Setup) -> Iterator[Setup]:
    """Yield the setup with each value that the framework may choose if the row states none: sequence parallelism
    under tensor parallelism, the ZeRO stage where several ranks hold the same weights, the states of embedding and head
    under an 8-bit optimizer, whether both are sharded separately."""
    layout, scripts = setup.layout, scripts_of(setup.framework)
    sp: Sequence[Number] = (layout.sp,)
    if row.flag("layout.sp") is None and layout.tp > 1:
        sp = scripts.sequence_parallel or sp
    zero: Sequence[Number] = (layout.zero,)
    if row.count("layout.zero", least=0) is None and not layout.zero and layout.dp > 1:
        zero = (3,) if setup.framework.zero == 3 else (0,) if scripts_of(setup.framework).whole_states else (0, 1)
    tables = (False, True) if setup.optimizer.unquantized and setup.implementation.tuning is None else (False,)
    optional = scripts.ends_apart and setup.implementation.tuning is not None and layout.dp > 1
    for parallel, stage, wide, apart in product(sp, zero, tables, (False, True) if optional else (None,)):
        framework = setup.framework if apart is None else replace(setup.framework, ends_apart=apart)
        laid = layout.replaced(sp=parallel, zero=stage)
        yield replace(setup, layout=laid, wide_tables=wide, framework=framework)


def savings(row: RowFields, setup: Setup) -> tuple[list[Setup], bool]:
    """Return the possible recomputation settings, fastest first, and whether all count even if the fastest fits.

    Where the row does not say what is recomputed: no layers, all layers. Where it only names a recipe: no layers; all
    layers, with and without an offload."""
    none = replace(setup, layout=setup.layout.replaced(recompute=Recompute("none")))
    full = replace(setup, layout=setup.layout.replaced(recompute=Recompute("full")))
    scripts = scripts_of(setup.framework)
    if row.flag("layout.recipe_defaults") and scripts.recipe_offloads:
        return [none, full, replace(full, offload=(*setup.offload, "activations"))], False
    if not stated_recompute(row) and not scripts.recompute:
        return [none, full], True
    return [setup], True


@record
class Readings:
    """Possible readings of a row under one framework: the likely ones, and all."""

    likely: list[Figures]
    all: list[Figures]


def readings(
    row: RowFields, model: Model, framework: Framework, quantity: str, room: float | None, width: Width | None = None
) -> Readings:
    """Return the readings of a row; where recomputation is not stated, there was none if the run fits without it."""
    likely: list[Figures] = []
    every: list[Figures] = []
    stated = row.flag("layout.expandable_segments")
    grows, either = bool(stated), stated is None and framework.grows
    for setup in (way for one in dated(row, framework) for way in layouts(one, setup_of(one, model, framework))):
        ways, all_count = savings(row, setup)
        first, *others = [figures(row, one, model, quantity, grows, width) for one in ways]
        fits = not others or room is None or first.used <= room or bool(row.flag("memory.oom"))
        likely += [first] if fits else others
        every += [first, *others] if fits and all_count else [first] if fits else others
        every += [figures(row, one, model, quantity, True, width) for one in ways] if either else []
    return Readings(likely, every)


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean, for values that may differ by factors."""
    return math.exp(sum(math.log(one) for one in values) / len(values))

"""Pipeline stages: the layers of each, which of them can differ, and the micro-batches in flight on each."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.elementwise import Number, ceil_div, maximum, minimum, ratio, where
from napkin.footprint.local_weights import weights_of
from napkin.footprint.prepared import PreparedStep
from napkin.footprint.submodels import tower_part
from napkin.operations.base import Operation
from napkin.operations.model import Layer, Model
from napkin.record import record
from napkin.training.framework import COST, FRONT, SLOTS
from napkin.training.layout import Layout, held_by
from napkin.training.order import Counts, Order
from napkin.training.setup import Setup


@record
class Stage:
    """A pipeline stage: layers low … high − 1.

    variants      number of layers of each variant
    layers        number of each type          kinds  the layer of each type
    checkpointed  number of each type that are checkpointed
    first, last   1 if it is the first (last) stage, with the embedding (head)
    chunks        micro-batches in flight, in units of its `parts` model chunks
    delayed       micro-batches of which only the weight gradients are still to be computed (zero-bubble schedules)
    """

    index: Number
    low: Number
    high: Number
    variants: Counts
    layers: tuple[Number, ...]
    checkpointed: tuple[Number, ...]
    first: Number
    last: Number
    chunks: Number
    parts: Number
    delayed: Number
    kinds: tuple[Layer, ...]

    @property
    def in_flight(self) -> Number:
        """Return the number of micro-batches whose activations it holds."""
        return ratio(self.chunks, self.parts)


def shares(depth: int, stages: Number, index: Number, partition: str) -> tuple[Number, Number]:
    """Return the first layer of stage `index` (from 0) of `stages`, and the one after its last.

    even   as evenly as possible, earlier stages get one more
    front  ⌈L/p⌉ on each, the last stage gets the rest
    slots  the embedding and the head count as one layer each"""
    if partition == FRONT:
        each = ceil_div(depth, stages)
        return minimum(index * each, depth), minimum((index + 1) * each, depth)
    places = depth + 2 * (partition == SLOTS)
    least, more = places // stages, places % stages
    low = index * least + minimum(index, more)
    high = low + least + (index < more) * 1
    if partition == SLOTS:
        return maximum(low - 1, 0), minimum(high - 1, depth)
    return low, high


def shares_by_cost(depth: int, stages: Number, index: Number, layer: int, head: int) -> tuple[Number, Number]:
    """Return the same where stage i ends with the layer at which the matrix weights exceed i + 1 of p equal shares of
    the total (the framework's partition by cost). layer, head: matrix weights of a layer and of the head."""
    crossing = [(depth * layer + head) * i // (stages * layer) + 1 for i in (index, index + 1)]
    low = where(index == 0, 0, minimum(crossing[0], depth))
    return low, minimum(crossing[1], depth)


def _matrix_weights(operations: Iterable[Operation]) -> int:
    return sum(weight.count for weight in weights_of(operations) if len(weight.shape) > 1)


def bounds(step: PreparedStep, index: Number) -> tuple[Number, Number]:
    """Return the first layer of stage `index` and the one after its last; a vision tower is on the first."""
    ahead = tower_part(step.model).layers
    low, high = _bounds(step, index, step.order.depth - ahead)
    return (where(index == 0, 0, low + ahead), high + ahead) if ahead else (low, high)


def _bounds(step: PreparedStep, index: Number, depth: int) -> tuple[Number, Number]:
    """Return the same for the `depth` layers that are assigned to stages."""
    if step.setup.layout.stages:
        return held_by(step.setup.layout.stages, int(index))
    partition, stack = step.setup.framework.partition, step.stack
    if partition == COST:
        largest = max(_matrix_weights(layer.operations) for layer in stack.layers)
        return shares_by_cost(depth, step.setup.layout.pp, index, largest, _matrix_weights(stack.after))
    return shares(depth, step.setup.layout.pp, index, partition)


def stage_of(step: PreparedStep, index: Number) -> Stage:
    """Return stage `index` of the pipeline."""
    order, p = step.order, step.setup.layout.pp
    low, high = bounds(step, index)
    variants = order.between(low, high)
    layers: list[Number] = [0] * len(step.run.kinds)
    checkpointed: list[Number] = [0] * len(step.run.kinds)
    for variant, count in zip(order.variants, variants, strict=True):
        layers[variant.kind] = layers[variant.kind] + count
        checkpointed[variant.kind] = checkpointed[variant.kind] + count * variant.checkpointed
    return Stage(
        index,
        low,
        high,
        variants,
        tuple(layers),
        tuple(checkpointed),
        (index == 0) * 1,
        (index == p - 1) * 1,
        *in_flight(step.setup.layout, index, step.setup.framework.planned),
        step.run.kinds,
    )


def places(step: PreparedStep) -> tuple[int, ...]:
    """Return the indices of stages that can be the worst, each once."""
    return places_of(step.model, step.order, step.setup)


def places_of(model: Model, order: Order, setup: Setup) -> tuple[int, ...]:
    """Return the indices of stages that can be the worst, each once, for one layout.

    Micro-batches in flight never increase along the pipeline, so among inner stages with equal layers the first is the
    worst. With one layer variant, all inner stages equal the first one without its embedding, or are smaller (the
    second is the first full one if embedding and head count as layers). Where layers differ, one stage of each
    composition is tried."""
    last = int(setup.layout.pp) - 1
    inside = (min(max(place, 0), last) for place in _inner(model, order, setup))
    return tuple(dict.fromkeys((0, last, *inside)))


def _inner(model: Model, order: Order, setup: Setup) -> list[int]:
    """Return the inner stages to check; some indices may be out of range."""
    layout, partition = setup.layout, setup.framework.partition
    last, delays = int(layout.pp) - 1, layout.schedule == "zero-bubble"
    if len(order.segments) == 1 and order.segments[0].period == 1:
        if layout.stages or delays:
            runs = _runs(model, order, setup)
            return [place for _, begin, end, _ in runs for place in (begin, begin + 1, end - 2, end - 1)]
        return [1] if partition == SLOTS else []
    between = range(1, last)
    if partition == COST and not layout.stages:
        return list(between)
    runs = _runs(model, order, setup)
    later = _unlike(order, runs, reversed(between)) if delays else []
    return [*_unlike(order, runs, between), *later]


_Run = tuple[int, int, int, int]
"""Stages of one size, as `_runs` returns them."""


def _unlike(order: Order, runs: list[_Run], places: Iterable[int]) -> list[int]:
    """Return some stages between the ends without those whose layers are like those of one before it. The first holds
    the most micro-batches in flight; under a zero-bubble schedule the last may hold more, with delayed gradients."""
    found: dict[object, int] = {}
    for place in places:
        size, _, _, origin = next(run for run in runs if run[1] <= place < run[2])
        found.setdefault(order.composition(place * size + origin, (place + 1) * size + origin), place)
    return list(found.values())


def _runs(model: Model, order: Order, setup: Setup) -> list[_Run]:
    """Return (layers per stage, first stage, one after the last, origin) of runs of stages of one size: stage i begins
    with layer i · size + origin."""
    layout, partition, seen = setup.layout, setup.framework.partition, tower_part(model).layers
    if layout.stages:
        found: list[_Run] = []
        begin, low = 0, seen
        for count, size in layout.stages:
            found.append((size, begin, begin + count, low - begin * size))
            begin, low = begin + count, low + count * size
        return found
    p = int(layout.pp)
    ahead = (partition == SLOTS) * 1
    assigned = order.depth - seen + 2 * ahead
    least, more = (-(-assigned // p), 0) if partition == FRONT else divmod(assigned, p)
    return [(least + 1, 0, more, seen - ahead), (least, more, p, more + seen - ahead)]


def in_flight(layout: Layout, index: Number, planned: bool = False) -> tuple[Number, Number, Number]:
    """Return the model chunks whose activations a stage holds at once, the chunks of a micro-batch, and the
    micro-batches whose weight gradients are delayed. planned: buffers of 2p micro-batches hold what the backward pass
    needs, on all stages but the last (Oneflow-Inc/oneflow core/job_rewriter/pipeline_buffer_pass.cpp).

    1F1B holds min(p − i, m) micro-batches; interleaved with v chunks each, 2(p − i − 1) + (v − 1)p + 1 chunks; GPipe m
    (Narayanan et al. 2021). Zero-bubble (ZB-H1) is like 1F1B, and stage i delays the weight gradients of i
    micro-batches, so that all stages have p in flight (Qi et al. 2023, arXiv:2401.10241, section 2)."""
    p, v, m = layout.pp, layout.vp, layout.micro_batches
    if planned:
        return where((p > 1) & (m > 1) & (index < p - 1), 2 * p, 1) * v, v, 0
    if layout.schedule == "gpipe":
        return m, 1, 0
    ahead = minimum(p - index, m)
    if layout.schedule == "zero-bubble":
        return ahead, 1, minimum(index, m - ahead)
    chunks = minimum(2 * (p - index - 1) + (v - 1) * p + 1, m * v)
    return where(v > 1, chunks, ahead), v, 0

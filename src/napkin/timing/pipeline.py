"""Pipeline parallelism: the slowest stage, the bubble, and communication between stages.

Stages hold neighboring layers: if the first layers are frozen, or the first ones are dense, the stages differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from napkin import term
from napkin.elementwise import Number, chosen, combinations, is_zero, where
from napkin.record import record, replace
from napkin.term import Term
from napkin.timing.clock import BYTE, ONE, SECOND, STACK, Clock, size, total, zero
from napkin.timing.collectives import gathered
from napkin.timing.layer import LayerTime
from napkin.timing.layer_clock import GROUPS


@record
class LayerRuns:
    """A network's layers in order.

    runs    (number of layers, index of their type) in order
    first   (number of layers, index of their type) on the first stage before its layers: a vision tower
    kinds   number of layer types"""

    runs: tuple[tuple[Number, int], ...]
    first: tuple[tuple[int, int], ...]
    kinds: int


@record
class Degrees:
    """A pipeline: its stages, the chunks of each, and the layers of a stage before the last and of the last."""

    pp: Number
    vp: Number
    before: Number
    last: Number


def slowest_stage(
    order: LayerRuns, degrees: Degrees, seconds: Sequence[Number], head: Number
) -> tuple[list[Number], Number]:
    """Return the number of layers of each type on the slowest stage, and whether it has the head (1 or 0).

    seconds  of one layer of each type        head  seconds of the head, which is on the last stage"""
    four = (degrees.pp, degrees.vp, degrees.before, degrees.last)
    different, which = combinations(*four, *(count for count, _ in order.runs))
    unlike = []
    for pp, vp, before, last, *layers in different:
        runs = zip(layers, (kind for _, kind in order.runs), strict=True)
        unlike.append(_unlike(replace(order, runs=tuple(runs)), pp, vp, before, last))

    def held(place: int) -> list[Number]:
        stages = [one[min(place, len(one) - 1)] for one in unlike]
        return [chosen([counts[kind] for counts in stages], which) for kind in range(order.kinds)]

    slowest = held(0)
    longest = head + _taken(slowest, seconds)
    with_head: Number = 1
    for place in range(1, max(len(one) for one in unlike)):
        counts = held(place)
        taken = _taken(counts, seconds)
        longer = taken > longest
        longest = where(longer, taken, longest)
        slowest = [where(longer, new, old) for new, old in zip(counts, slowest, strict=True)]
        with_head = where(longer, 0, with_head)
    return slowest, with_head


def _taken(counts: Sequence[Number], seconds: Sequence[Number]) -> Number:
    taken: Number = 0
    for count, each in zip(counts, seconds, strict=True):
        taken = taken + count * each
    return taken


@lru_cache(maxsize=4096)
def _unlike(order: LayerRuns, pp: int, vp: int, before: int, last: int) -> tuple[tuple[int, ...], ...]:
    """Return the number of layers of each type on the last stage, then on the others, without stages that have no more
    of any type than an earlier one and so cannot be slower."""
    layers = [place for count, place in order.runs for _ in range(int(count))]
    ahead = [place for count, place in order.first for _ in range(count)]
    found: list[tuple[int, ...]] = []
    for stage in (pp - 1, *range(pp - 1)):
        held = _held(layers, stage, pp, vp, before, last) + (ahead if stage == 0 else [])
        counts = tuple(held.count(kind) for kind in range(order.kinds))
        if not any(all(a <= b for a, b in zip(counts, other, strict=True)) for other in found):
            found.append(counts)
    return tuple(found)


def _held(layers: list[int], stage: int, pp: int, vp: int, before: int, last: int) -> list[int]:
    """Return the layers of a stage: one contiguous run, or one per chunk. Of the stages before the last one, the
    fullest counts."""
    if vp > 1:
        size = -(-before // vp)
        starts = ((chunk * pp + stage) * size for chunk in range(vp))
        return [layer for start in starts for layer in layers[start : start + size]]
    if stage == pp - 1:
        return layers[len(layers) - last :]
    first = min(stage * before, max(len(layers) - last - before, 0))
    return layers[first : first + before]


ZERO = term.constant("0", 0)


@record
class Layers:
    """The layers of a model and its head for one micro-batch. They depend on tensor, context and expert parallelism,
    the micro-batch and recomputation, not on pipeline or data parallelism.

    runs   (number of layers, time of one) by layer type                depth         total number of layers
    order  order of the layer types
    mean   seconds of the mean layer by group                      layer         of all its groups
    head   time of the head                                        head_seconds  of all its groups
    spare  seconds of a micro-batch in all layers and the head that the host has to spare
    """

    runs: tuple[tuple[Number, LayerTime], ...]
    order: LayerRuns
    head: LayerTime
    depth: Term
    mean: Mapping[str, Term]
    layer: Term
    head_seconds: Term
    spare: Term

    def stage_mean(self, pp: Term) -> Term:
        """Return the seconds of the mean stage for one micro-batch."""
        layers = term.multiply("model/layers", self.depth, self.layer)
        return term.divide("stage/mean", term.add("model/micro_batch", layers, self.head_seconds), pp)


def layers_of(runs: Sequence[tuple[Number, LayerTime]], order: LayerRuns, head: LayerTime) -> Layers:
    """Return the layers of these runs, with the mean of them."""
    depth = term.leaf("depth", sum(count for count, _ in runs), "1", term.TRUE)
    mean = mean_layer(runs, depth)
    head_seconds = total("model/head", head.groups.values())
    spare = [
        term.multiply(f"{one.spare.name}/all", term.leaf("layers", count, "1", term.TRUE), one.spare)
        for count, one in runs
    ]
    every = total("model/host/spare", (*spare, head.spare))
    return Layers(tuple(runs), order, head, depth, mean, total("layer", mean.values()), head_seconds, every)


def mean_layer(runs: Sequence[tuple[Number, LayerTime]], depth: Term) -> dict[str, Term]:
    """Return the seconds of the mean layer by group, for runs of (number of layers, time of one)."""
    found = {}
    for group in GROUPS:
        every = [
            term.multiply(f"{part.name}/all", term.leaf("layers", count, "1", term.TRUE), part)
            for count, part in ((count, one.groups[group]) for count, one in runs)
        ]
        found[group] = term.divide(f"layer/{group}", total(f"layers/{group}", every), depth)
    return found


@record
class Stages:
    """A pipeline: its layers, its number of stages, and the layers of each type, and the head, on the slowest stage."""

    layers: Layers
    pp: Term
    layers_on: tuple[Term, ...]
    head_on: Term

    def slowest(self, group: str) -> Term:
        """Return the seconds of a group on the slowest stage for one micro-batch."""
        found = [one.groups[group] for _, one in self.layers.runs]
        return term.add(
            f"stage/{group}",
            *(term.multiply(f"{one.name}/stage", on, one) for on, one in zip(self.layers_on, found, strict=True)),
            term.multiply(f"stage/{group}/head", self.head_on, self.layers.head.groups[group]),
        )

    def spare(self) -> Term:
        """Return the seconds of a micro-batch on the slowest stage that the host has to spare."""
        found = [one.spare for _, one in self.layers.runs]
        return term.add(
            "stage/spare",
            *(term.multiply(f"{one.name}/stage", on, one) for on, one in zip(self.layers_on, found, strict=True)),
            term.multiply("stage/spare/head", self.head_on, self.layers.head.spare),
        )


def stages_of(clock: Clock, layers: Layers) -> Stages:
    """Assign layers to stages: every stage but the last has ⌈L/p⌉, the last one the rest and the head; or as the user
    assigned them. A vision tower is on the first one."""
    layout = clock.layout
    depth = term.leaf("stage/depth", sum(count for count, _ in layers.order.runs), "1", term.TRUE)
    pp = clock.groups.stages.ranks
    each = term.ceil_divide("stage/even", depth, pp)
    before = term.multiply("stage/before_last", term.subtract("stage/others", pp, ONE), each)
    rest = term.largest("stage/rest", term.subtract("stage/left", depth, before), ZERO)
    given_before, given_last = size("layers_before", layout.layers_before), size("layers_last", layout.layers_last)
    by_hand = term.greater("stage/by_hand", term.add("stage/given", given_before, given_last), ZERO)
    full = term.choose("stage/full", by_hand, given_before, each)
    last = term.choose("stage/last", by_hand, given_last, rest)
    every = [total("layer/seconds", one.groups.values()).value for _, one in layers.runs]
    degrees = Degrees(layout.pp, layout.vp, full.value, last.value)
    counts, has_head = slowest_stage(layers.order, degrees, every, layers.head_seconds.value)
    head_on = term.leaf("stage/head", has_head, "1", term.TRUE, "1 where the slowest has the head")
    source = "of the slowest pipeline stage"
    layers_on = tuple(term.leaf("stage/layers", count, "1", term.TRUE, source) for count in counts)
    return Stages(layers, pp, layers_on, head_on)


def bubble_time(clock: Clock, layers: Layers, stack: Term) -> Term:
    """Return the seconds of the bubble: p−1 slots of a mean stage, divided by the v chunks of each stage (Narayanan et
    al. 2021, section 2.2)."""
    pp = clock.groups.stages.ranks
    others = term.subtract("bubble/stages", pp, ONE)
    slots = term.divide("bubble/slots", others, size("vp", clock.layout.vp))
    kept = term.leaf("bubble/kept", clock.layout.idle, "1", term.TRUE, "schedule")
    stage = layers.stage_mean(pp)
    if not is_zero(clock.rates.host_chunk):
        spare = term.divide("bubble/stage/spare", layers.spare, pp)
        stage = term.add("bubble/stage", stage, chunks_time(clock, "bubble/stage/host", spare))
    return term.multiply("step/bubble", stack, kept, slots, stage)


def chunks_time(clock: Clock, name: str, spare: Term) -> Term:
    """Return the seconds of a micro-batch on a stage that the device waits while the host goes from chunk to chunk:
    reads the batch, exchanges with other stages and starts the passes of each. What the host has to spare in the layers
    of the stage hides them."""
    each = clock.rate("stage/host/chunk", clock.rates.host_chunk, SECOND, STACK)
    spent = term.multiply("stage/host/chunks", size("vp", clock.layout.vp), each)
    return term.subtract(name, term.largest(f"{name}/longer", spent, spare), spare)


def boundary_time(clock: Clock, stages: Stages, width: Number, stack: Term, repeats: Term) -> Term:
    """Return the seconds to send activations and their gradients between stages, for each chunk; with sequence
    parallelism each rank sends its own part, and also where ranks gather the others' on arrival, which nothing hides.
    width: elements of the stream a token; repeats: micro-batches."""
    layout = clock.layout
    both_ways = term.constant("bytes_both_ways", 4, BYTE, "16 bits of an activation and of its gradient")
    stream = term.multiply(
        "pipeline/stream", both_ways, clock.tokens, size("stream_width", width), size("vp", layout.vp)
    )
    several = term.greater("pipeline/several", stages.pp, ONE)
    splits = term.leaf("pipeline/splits", layout.splits_boundary, "1", term.TRUE, "1 where gathered on arrival")
    ranks = term.choose("pipeline/ranks", splits, clock.tp, clock.stream)
    none = term.constant("pipeline/none", 0, BYTE)
    sent = term.choose("pipeline/bytes", several, term.divide("pipeline/own", stream, ranks), none)
    bandwidth = clock.neighbors("pipeline/bandwidth", clock.groups.stages)
    exposed = clock.rate("pipeline/exposed", clock.rates.pipeline_exposed, source=STACK)
    boundary = clock.transfer("pipeline/boundary", sent, bandwidth, zero("pipeline/latency"))
    arrived = term.multiply("pipeline/gathered", splits, stream, gathered("pipeline/gathered/share", clock.tp))
    bus = clock.bus("pipeline/gathered/bandwidth", clock.groups.tensor)
    gathers = clock.transfer("pipeline/gather", term.choose("pipeline/gathered/bytes", several, arrived, none), bus)
    shown = term.add("pipeline/shown", term.multiply("pipeline/boundary/shown", exposed, boundary), gathers)
    return term.multiply("step/communication/pipeline", stack, repeats, shown)

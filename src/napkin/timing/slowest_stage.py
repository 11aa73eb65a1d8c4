"""The layers on the slowest stage of a pipeline, for models with several layer types.

Stages hold neighboring layers: if the first layers are frozen, or the first ones are dense, the stages differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from napkin.elementwise import Number, chosen, combinations, where
from napkin.record import record, replace


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

"""Which layers the slowest stage of a pipeline holds, where a model's layers are of several kinds.

Stages hold neighboring layers: where the first layers are frozen, or the first ones are dense, the stages differ."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.elementwise import Number, ceil_div, holds_for_all, is_array, maximum, minimum, where
from napkin.record import record


@record
class Order:
    """A network's layers in order.

    runs    (how many, place of their kind) in order
    first   (how many, place of their kind) of what the first stage computes before its layers: a vision tower
    kinds   how many kinds there are"""

    runs: tuple[tuple[Number, int], ...]
    first: tuple[tuple[int, int], ...]
    kinds: int

    def depth(self) -> Number:
        """Return how many layers there are."""
        found: Number = 0
        for count, _ in self.runs:
            found = found + count
        return found

    def among_first(self, layers: Number) -> list[Number]:
        """Return how many of the first layers are of each kind."""
        found: list[Number] = [0] * self.kinds
        for count, place in self.runs:
            found[place] = found[place] + maximum(minimum(layers, count), 0)
            layers = layers - count
        return found


@record
class Degrees:
    """A pipeline: its stages, the chunks of each, and the layers of a stage before the last and of the last."""

    pp: Number
    vp: Number
    before: Number
    last: Number


def slowest_stage(
    order: Order, degrees: Degrees, seconds: Sequence[Number], head: Number
) -> tuple[list[Number], Number]:
    """Return how many layers of each kind the slowest stage holds, and whether it has the head (1 or 0).

    seconds  of one layer of each kind        head  seconds of the head, which is on the last stage"""
    pp = degrees.pp
    slowest = _counts(order, degrees, pp - 1, True)
    for count, place in order.first:
        slowest[place] = where(pp == 1, count, 0)
    longest = head + _taken(slowest, seconds)
    with_head: Number = 1
    tried: list[list[Number]] = []
    for stage in range(max(int(pp.max() if is_array(pp) else pp) - 1, 1)):
        counts = _counts(order, degrees, minimum(stage, maximum(pp - 2, 0)), False)
        for count, place in order.first if stage == 0 else ():
            counts[place] = count
        if any(_same(counts, other) for other in tried):
            continue
        tried.append(counts)
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


def _same(counts: Sequence[Number], others: Sequence[Number]) -> bool:
    return all(holds_for_all(a == b) for a, b in zip(counts, others, strict=True))


def _counts(order: Order, degrees: Degrees, stage: Number, is_last: bool) -> list[Number]:
    """Return how many layers of each kind a stage holds: one run of neighbors, or one in each of its chunks. Of the
    stages before the last one, the fullest counts."""
    pp, vp, before, last = degrees.pp, degrees.vp, degrees.before, degrees.last
    depth = order.depth()
    size = ceil_div(before, vp)
    held = last if is_last else before
    first = depth - last if is_last else minimum(stage * before, maximum(depth - last - before, 0))
    found: list[Number] = [0] * order.kinds
    for chunk in range(int(vp.max() if is_array(vp) else vp)):
        start = minimum(where(vp > 1, (chunk * pp + stage) * size, first), depth)
        end = minimum(start + where(vp > 1, size, held), depth)
        end = where(vp > chunk, end, start)
        for kind, (upto, skipped) in enumerate(zip(order.among_first(end), order.among_first(start), strict=True)):
            found[kind] = found[kind] + upto - skipped
    return found

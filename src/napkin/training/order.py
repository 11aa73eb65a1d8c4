"""The order of a stack's layers: the layers of each variant before a layer, and the layers at which a quantity can
peak.

Layer types usually alternate with a period, so a stack is a few repeated patterns, and a question about a million
layers costs as much as one about a period. Positions may be arrays with one entry per layout."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from math import gcd, lcm

from napkin.elementwise import Number, ceil_div, floor_div, is_array, maximum, minimum
from napkin.operations.model import Numbered
from napkin.record import record
from napkin.training.recomputation import OPERATIONS, Recompute


@record
class Variant:
    """Layers that save the same tensors.

    kind          index of the layer type
    checkpointed  whether it saves its input and is recomputed in backward
    no_grad       whether it is before the first trained layer and saves nothing
    still         whether its weights are frozen
    """

    kind: int
    checkpointed: bool = False
    no_grad: bool = False
    still: bool = False


@record
class Segment:
    """`times` repetitions of `period` layers from layer `start` on: runs of (offset, layers, index of the variant). A
    run of equal layers is one layer, repeated."""

    start: int
    times: int
    period: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def end(self) -> int:
        return self.start + self.times * self.period


Counts = tuple[Number, ...]
"""Number of layers of each variant."""


class Order:
    """The layers of a stack in order, by variant."""

    def __init__(self, variants: tuple[Variant, ...], segments: tuple[Segment, ...]) -> None:
        self.variants, self.segments = variants, segments
        self.starts = [segment.start for segment in segments]
        self.each: list[Counts] = []
        self.within: list[tuple[Counts, ...]] = []
        self.base: list[Counts] = [(0,) * len(variants)]
        for segment in segments:
            seen = [0] * len(variants)
            ahead = []
            for _, count, variant in segment.runs:
                ahead.append(tuple(seen))
                seen[variant] += count
            self.each.append(tuple(seen))
            self.within.append(tuple(ahead))
            self.base.append(tuple(b + segment.times * n for b, n in zip(self.base[-1], seen, strict=True)))

    @property
    def depth(self) -> int:
        return self.segments[-1].end if self.segments else 0

    def before(self, x: Number) -> Counts:
        """Return the number of layers of each variant among the first x."""
        if is_array(x):
            return self._before_all(x)
        at = bisect_right(self.starts, x) - 1
        if at < 0:
            return self.base[0]
        segment = self.segments[at]
        times, left = divmod(min(x, segment.end) - segment.start, segment.period)
        found = [b + times * n for b, n in zip(self.base[at], self.each[at], strict=True)]
        for offset, count, variant in segment.runs:
            if offset >= left:
                break
            found[variant] += min(left - offset, count)
        return tuple(found)

    def _before_all(self, x: Number) -> Counts:
        found: list[Number] = [0] * len(self.variants)
        for segment, each in zip(self.segments, self.each, strict=True):
            inside = minimum(maximum(x - segment.start, 0), segment.times * segment.period)
            times = floor_div(inside, segment.period)
            left = inside - times * segment.period
            for variant, n in enumerate(each):
                found[variant] = found[variant] + times * n
            for offset, count, variant in segment.runs:
                found[variant] = found[variant] + minimum(maximum(left - offset, 0), count)
        return tuple(found)

    def between(self, low: Number, high: Number) -> Counts:
        """Return the number of layers of each variant among layers low … high − 1."""
        return tuple(b - a for a, b in zip(self.before(low), self.before(high), strict=True))

    def composition(self, low: int, high: int) -> tuple[object, ...]:
        """Return the composition of layers low … high − 1: for each segment among them its runs, the number of its
        layers, and the offset in its period at which they start."""
        parts = (
            (segment.runs, min(high, segment.end) - begin, (begin - segment.start) % segment.period)
            for segment in self.segments
            if (begin := max(low, segment.start)) < min(high, segment.end)
        )
        return tuple(parts)

    def corners(self, low: Number, high: Number) -> Iterator[tuple[Number, int, Counts]]:
        """Yield the layers among low … high − 1 at which a quantity that is linear in `Counts` can peak.

        Each is (whether it exists, its variant, layers of each variant up to and including it), from the last to the
        first. The layers of a run in all repetitions form a lattice on which such a quantity is linear, cut off at both
        ends: it is largest in a corner (the first or last layer of a run, in the first or last repetition) or at the
        cut."""
        first, last = self._overlapping(low, high)
        for at in range(last, first - 1, -1):
            segment, base, each = self.segments[at], self.base[at], self.each[at]
            for (offset, count, variant), ahead in zip(reversed(segment.runs), reversed(self.within[at]), strict=True):
                start = segment.start + offset
                for valid, times, inside in _corners(segment, start, count, low, high):
                    if not (valid.any() if is_array(valid) else valid):
                        continue
                    upto = [b + times * n + a for b, n, a in zip(base, each, ahead, strict=True)]
                    upto[variant] = upto[variant] + inside + 1
                    yield valid, variant, tuple(upto)

    def _overlapping(self, low: Number, high: Number) -> tuple[int, int]:
        """Return the first and the last segment that may contain some of layers low … high − 1."""
        if is_array(low) or is_array(high):
            return 0, len(self.segments) - 1
        if low >= high:
            return 0, -1
        return max(bisect_right(self.starts, low) - 1, 0), bisect_right(self.starts, high - 1) - 1

    def groups(self, low: Number, high: Number, size: int) -> list[tuple[Number, Number]]:
        """Return groups of `size` layers as (first layer, one after the last), counted from `low`, in reverse order.

        The largest is among them. Groups that start at the same place of a period are equal: of each segment the
        first and the last of each such class are enough, with those that extend beyond it."""
        many = ceil_div(high - low, size)
        if is_array(many):  # layouts of one segment: search.py separates the others
            chosen: list[Number] = [maximum(many - 1, 0), maximum(many - 2, 0), 0 * many]
        else:
            found: set[int] = set()
            first, last = self._overlapping(low, high)
            for segment in self.segments[first : last + 1]:
                begin = int((max(segment.start, low) - low) // size)
                end = int((min(segment.end, high) - 1 - low) // size)
                kinds = segment.period // gcd(segment.period, size)
                found.update(range(begin, min(begin + kinds, end) + 1), range(max(end - kinds, begin), end + 1))
            chosen = sorted(found, reverse=True)
        return [(low + g * size, minimum(low + (g + 1) * size, high)) for g in chosen]


def _corners(
    segment: Segment, start: int, count: int, low: Number, high: Number
) -> Iterator[tuple[Number, Number, Number]]:
    """Yield the layers of a run at which a linear quantity can peak, from the last to the first, as (whether it
    exists, complete repetitions before it, place in its run)."""
    period, most = segment.period, segment.times - 1
    places = (count - 1, 0) if count > 1 else (0,)
    ends = []
    for inside in places:
        top = minimum(most, floor_div(high - 1 - start - inside, period))
        bottom = maximum(0, -floor_div(start + inside - low, period))
        ends.append((bottom <= top, top, bottom, inside))
    if count > 1:
        yield _cut(high - 1 - start, period, most, count)
    for valid, top, _, inside in ends:
        yield valid, top, inside
    for valid, top, bottom, inside in ends:
        if most and (is_array(valid) or bottom != top):
            yield valid, bottom, inside
    if count > 1:
        yield _cut(low - start, period, most, count)


def _cut(distance: Number, period: int, most: int, count: int) -> tuple[Number, Number, Number]:
    times = floor_div(distance, period)
    inside = distance - times * period
    return (times >= 0) & (times <= most) & (inside < count), times, inside


# --- making one ------------------------------------------------------------------------------------------------------


def order_of(
    patterns: Iterable[Numbered],
    recompute: Recompute,
    untrained: int = 0,
    between: Container[int] = (),
    awake: bool = False,
) -> Order:
    """Return the order of layers in patterns under recomputation: `every:K` checkpoints blocks 0, K, 2K, …, the other
    kinds all or none.

    untrained  layers before the first trained one        awake  gradients pass through them anyway
    between    types that are not blocks"""
    ordering = _Ordering(recompute, untrained, between, awake)
    for times, pattern in patterns:
        runs = list(pattern)
        period = sum(count for count, _ in runs)
        if untrained > ordering.layers:  # layers that keep nothing are separate
            few = min(times, -(-(untrained - ordering.layers) // period))
            for _ in range(few):
                ordering.put(runs)
            times -= few
        if len(runs) == 1:
            count, kind = runs[0]
            ordering.put_equal(times * count, kind)
            continue
        blocks = sum(count for count, kind in runs if kind not in between)
        joined = lcm(blocks, recompute.k) // blocks if recompute.kind == "every" and blocks else 1
        if times >= 2 * joined:
            ordering.put(runs * joined, times // joined)
            times %= joined
        for _ in range(times):
            ordering.put(runs)
    return Order(tuple(ordering.variants), tuple(ordering.segments))


class _Ordering:
    """Collects the segments of an order. `layers`: number added so far; `skipped`: those that are not blocks."""

    def __init__(self, recompute: Recompute, untrained: int, between: Container[int], awake: bool) -> None:
        self.recompute, self.untrained, self.between, self.awake = recompute, untrained, between, awake
        self.variants: dict[Variant, int] = {}
        self.segments: list[Segment] = []
        self.layers = self.skipped = 0

    def variant(self, kind: int, layer: int) -> int:
        """Return the index of a layer's variant."""
        still, recompute = layer < self.untrained, self.recompute
        again = recompute.kind in ("full", "group", OPERATIONS)
        again = again or (recompute.kind == "every" and (layer - self.skipped) % recompute.k == 0)
        one = Variant(kind, again and kind not in self.between, still and not self.awake, still)
        return self.variants.setdefault(one, len(self.variants))

    def put(self, runs: Iterable[tuple[int, int]], times: int = 1) -> None:
        """Append runs of (layers, kind), repeated; without repetition, one segment per run."""
        first, offset, pieces = self.layers, 0, []
        skipped = self.skipped
        for count, kind in runs:
            begin, end = first + offset, first + offset + count
            for low, high in _even(begin, end, self.recompute, self.untrained, self.skipped):
                pieces.append((low - first, high - low, self.variant(kind, low)))
            offset += count
            self.skipped += count * (kind in self.between)
        self.skipped += (times - 1) * (self.skipped - skipped)
        if times > 1 and len(pieces) > 1:
            self.segments.append(Segment(first, times, offset, tuple(pieces)))
        else:
            ones = (Segment(first + at, times * count, 1, ((0, 1, which),)) for at, count, which in pieces)
            self.segments.extend(ones)
        self.layers += times * offset

    def put_equal(self, left: int, kind: int) -> None:
        """Append equal layers: one layer, repeated; with `every:K`, K layers."""
        if kind in self.between:
            self.put([(left, kind)])
            return
        long = self.recompute.k if self.recompute.kind == "every" else 1
        if left >= 2 * long > 2:
            self.put([(long, kind)], left // long)
            left %= long
        if left:
            self.put([(left, kind)])


def _even(first: int, last: int, recompute: Recompute, untrained: int, skipped: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a run with one variant: each block that `every:K` checkpoints, those that save nothing, the
    others. `skipped`: preceding layers that are not blocks."""
    begin = first
    while begin < last:
        end = last
        if recompute.kind == "every" and recompute.k > 1:
            past = (begin - skipped) % recompute.k
            end = begin + (1 if past == 0 else recompute.k - past)
        if begin < untrained:
            end = min(end, untrained)
        yield begin, min(end, last)
        begin = min(end, last)

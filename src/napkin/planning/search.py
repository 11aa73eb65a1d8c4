"""Every layout of a machine, evaluated as arrays by the same formulas as `step` and `memory`, and ranked.

What one layer depends on (tensor, context and expert parallelism, sequence parallelism, the micro-batch) varies along
the rows of a grid; what the pipeline and data parallelism add (stages, chunks, ZeRO) along its columns. Layouts whose
states alone are larger than the card are dropped; what is left is evaluated along one axis. The formulas take numbers
or arrays and do not know which.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from napkin import term
from napkin.elementwise import Number, is_array, maximum
from napkin.footprint import allocator, memory
from napkin.footprint.memory import least_states
from napkin.footprint.prepared import PreparedStep, prepare
from napkin.footprint.stages import places
from napkin.operations.model import Model
from napkin.operations.queries import divides_heads
from napkin.planning.verdicts import narrow_copies, width_of
from napkin.record import record, replace
from napkin.timing.rates import Rates
from napkin.timing.step import step
from napkin.timing.step_layout import StepLayout
from napkin.training.layout import Layout
from napkin.training.recomputation import Recompute
from napkin.training.setup import EXACT, Setup, Width

Array = Any
Timed = Callable[[Setup], "tuple[StepLayout, Rates]"]
"""From a setup to its layout, as the formulas of time take it, and the rates of the machine and software."""

MOST_MICRO = 64
"""Largest micro-batch that is tried: kernels reach their best efficiency long before."""
STACKED = 1 << 13
"""Stages of layouts whose memory is evaluated at a time: more would leave the processor's caches."""
MANY = 1 << 11
"""Layouts of which those are set aside first whose first stage alone is too large: for fewer it does not pay."""
TIMED = 1 << 12
"""Layouts that are timed together at most, unless one block has more."""
ENTRIES = 1 << 15
"""Entries of the grid that are evaluated at a time: about a hundred arrays of this size are allocated at once."""


@record
class Request:
    """What is searched.

    gpus     total number of GPUs               node     GPUs of a node
    batch    sequences in a step, or None: each layout takes its largest up to `most`
    only     the allowed value by degree        below    the largest value by degree
    deep     whether ZeRO-3 may be combined with a pipeline
    implementation  of the model, by name
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
    implementation: str = ""

    def allows(self, degree: str, value: int) -> bool:
        return self.only.get(degree, value) == value and value <= self.below.get(degree, value)


def divisors(n: int, most: int) -> list[int]:
    """Return the divisors of n up to `most`, ascending."""
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


@record
class Grid:
    """Layouts: each row has a tp, cp, ep, sp and micro-batch, each column a pp, vp and zero. The other arrays are
    [rows, columns]."""

    rows: Array
    columns: Array
    valid: Array
    dp: Array
    micro_batches: Array


def grid(request: Request) -> Grid | None:
    """Return every layout that divides the machine, the model and the batch; None where there is none.

    tp divides the heads (lowering.py), cp the sequence, sp the tokens of a sequence, ep the experts and the
    data-parallel ranks, micro-batch · dp the batch, tp·pp·cp·dp the number of GPUs; pp·vp is at most the layers; a step
    with images has no pipeline, whose first stage would have the tower."""
    model, n = request.model, request.gpus
    depth = model.stacks[-1].depth
    experts = model.experts
    largest = request.batch or request.most
    rows = [
        (tp, cp, ep, sp, micro)
        for tp in divisors(n, model.heads)
        if divides_heads(model, request.setup.implementation, tp) and request.allows("tp", tp)
        for cp in divisors(n // tp, request.seq)
        if request.seq % cp == 0 and request.allows("cp", cp)
        for ep in (divisors(n // (tp * cp), max(experts)) if experts else [1])
        if all(count % ep == 0 for count in experts) and request.allows("ep", ep)
        for sp in (0, 1)
        if (sp == 0 or (tp > 1 and request.seq // cp % tp == 0)) and request.allows("sp", sp)
        for micro in _micro_batches(request, largest)
    ]
    columns = [
        (pp, vp, zero)
        for pp in divisors(n, 1 if model.shares_tensors or request.setup.layout.images else depth)
        if request.allows("pp", pp)
        for vp in _chunks(depth, pp)
        if request.allows("vp", vp)
        for zero in range(4)
        if request.allows("zero", zero)
    ]
    if not rows or not columns:
        return None
    of_row, of_column = np.array(rows, dtype=float), np.array(columns, dtype=float)
    tp, cp, ep, _, micro = (of_row[:, i : i + 1] for i in range(5))
    pp, _, zero = (of_column[:, i] for i in range(3))
    dp = n / (tp * cp * pp)
    whole = dp == np.floor(dp)
    dp = np.where(whole, dp, 1.0)
    count = np.floor(largest / (micro * dp))
    accumulated = request.only.get("grad-accum")
    valid = whole & (dp % ep == 0) & (count >= 1) & ((zero == 0) | (dp * cp > 1))
    if not request.deep:
        valid &= (zero < 3) | (pp == 1)
    if accumulated is not None:  # the batch that it makes is at most the largest, and the one that is given
        valid &= count >= accumulated
        count = np.full_like(count, accumulated)
    if request.batch is not None:
        valid &= count * micro * dp == request.batch
    for degree, value in request.only.items():
        if degree == "dp":
            valid &= dp == value
    if "dp" in request.below:
        valid &= dp <= request.below["dp"]
    kept_rows, kept_columns = valid.any(axis=1), valid.any(axis=0)
    if not kept_rows.any():
        return None
    both = np.ix_(kept_rows, kept_columns)
    return Grid(of_row[kept_rows], of_column[kept_columns], valid[both], dp[both], np.maximum(count[both], 1.0))


def _micro_batches(request: Request, largest: int) -> list[int]:
    """Return the divisors of a given batch; powers of two where it is free."""
    sizes = divisors(request.batch, MOST_MICRO) if request.batch else [1 << i for i in range(MOST_MICRO.bit_length())]
    if "micro-batch" in request.only:
        sizes = [request.only["micro-batch"]]
    return [size for size in sizes if size <= largest and request.allows("micro-batch", size)]


def _chunks(depth: int, pp: int) -> list[int]:
    """Return the numbers of virtual stages of a pipeline: the divisors of the layers of its fullest stage."""
    if pp == 1:
        return [1]
    return [vp for vp in divisors(-(-depth // pp), depth) if pp * vp <= depth]


@record
class Found:
    """Layouts that fit, as arrays with one entry per layout.

    fields   degrees by name
    seconds  of a step
    used     bytes that a GPU reports as used, on the worst stage
    surely   whether the upper end of their interval fits too
    score    GPU-seconds per token, by which layouts are ranked
    layouts  number of layouts evaluated, fitting or not
    least    the layout of least memory among all evaluated, and its bytes in `least_used`
    """

    request: Request
    fields: Mapping[str, Array]
    seconds: Array
    used: Array
    surely: Array
    score: Array
    layouts: int
    least: Layout | None
    least_used: float

    def __len__(self) -> int:
        return len(self.seconds)

    def layout(self, i: int) -> Layout:
        """Return one of them, in exact integers."""
        numbers = {name: int(column[i]) for name, column in self.fields.items() if name != "recompute"}
        recompute = self.request.recomputes[int(self.fields["recompute"][i])]
        return _exact(self.request, numbers, recompute)

    def ranked(self, most: int, among: Array | None = None) -> list[int]:
        """Return the indices of the best, in order; among equals the lowest ZeRO stage, then the most memory left.
        among: the indices to choose from, all where it is None."""
        near = np.arange(len(self)) if among is None else among
        if len(near) > most:
            near = near[self.score[near] <= np.partition(self.score[near], most)[most]]
        order = np.lexsort((self.used[near], self.fields["zero"][near], self.score[near]))
        return [int(i) for i in near[order][:most]]

    def distinct(self, most: int) -> list[int]:
        """Return the indices of the best, in order; of equally fast ones that differ only in the ZeRO stage, the lowest
        stage."""
        seen: dict[tuple[Layout, float], int] = {}
        for i in self.ranked(16 * most):
            seen.setdefault((self.layout(i).replaced(zero=0), float(self.seconds[i])), i)
            if len(seen) == most:
                break
        return list(seen.values())

    def front(self) -> list[int]:
        """Return the Pareto front in time and memory as indices, fastest first; less than a thousandth less memory does
        not count."""
        order = np.argsort(self.score, kind="stable")
        used = self.used[order]
        before = np.minimum.accumulate(np.concatenate(([np.inf], used[:-1])))
        steps = order[used < before]  # few are left; among equally fast ones the smallest comes first
        kept: list[int] = []
        for i in steps[np.lexsort((self.used[steps], self.score[steps]))]:
            if not kept or self.used[i] < 0.999 * self.used[kept[-1]]:
                kept.append(int(i))
        return kept


INNER = ("tp", "cp", "ep", "sp", "micro-batch")
"""Degrees along the rows of a grid, in order."""
OUTER = ("pp", "vp", "zero")
"""Degrees along its columns, in order."""
_NAMES = ("tp", "cp", "ep", "sp", "micro", "pp", "vp", "zero", "dp", "micro_batches")


def near_values(free: Request, name: str, value: int) -> list[int]:
    """Return the values of a degree for which there are layouts, nearest to `value` first."""
    whole = grid(free)
    if whole is None:
        return []
    if name in INNER:
        found = {int(v) for v in whole.rows[:, INNER.index(name)]}
    elif name in OUTER:
        found = {int(v) for v in whole.columns[:, OUTER.index(name)]}
    else:
        found = {int(v) for v in whole.dp[whole.valid]}
    return sorted(found - {value}, key=lambda v: abs(math.log(max(v, 0.5) / max(value, 0.5))))[:4]


def _given(request: Request) -> Layout:
    """Return what every layout has: the sequences and their images."""
    given = request.setup.layout
    return Layout(seq=request.seq, images=given.images, image_tokens=given.image_tokens)


def _exact(request: Request, numbers: Mapping[str, int], recompute: Recompute) -> Layout:
    return (
        _given(request)
        .replaced(
            schedule="interleaved" if numbers["vp"] > 1 else "1f1b",
            recompute=recompute,
        )
        .replaced(**numbers)
    )


def search(request: Request, timed: Timed, capacity: float, prune: bool = True) -> Found:
    """Evaluate every layout; keep those that use at most `capacity` bytes of each card. Layouts whose states alone are
    larger are not evaluated further; without `prune` they are, so that the one of least memory is known."""
    memory = _memory(request, capacity, prune)
    pieces = [
        _piece(layout, _seconds(request, layout, timed), used, upper, used <= capacity)
        for layout, used, upper in memory.fitting
    ]
    return _joined(request, pieces, capacity, memory)


Fitting = tuple[Layout, Array, Array]
"""Layouts along one axis, their used bytes and the upper ends of them as [recomputation, layout]."""


@record
class Evaluated:
    """What a search knows before any time.

    fitting  layouts that fit under some recomputation
    layouts  how many there are, fitting or not       least, least_used   the one of least memory, if it is known
    """

    fitting: list[Fitting]
    layouts: int
    least: Layout | None
    least_used: float


_KEPT: list[tuple[Request, float, Evaluated]] = []
"""The first search and the last: questions that differ in rates alone (sensitivity, a deadline) share their memory."""


def _memory(request: Request, capacity: float, prune: bool) -> Evaluated:
    """Return the layouts that fit, from an earlier search where that asked the same of memory, or for more."""
    if not prune:
        return _evaluated(request, capacity, prune)
    for asked, room, found in _KEPT:
        if room == capacity and asked == request:
            return found
        if room >= capacity and replace(asked, below=request.below) == request and _narrower(request, asked):
            return _among(found, request, capacity)
    found = _evaluated(request, capacity, prune)
    _KEPT[1:] = [(request, capacity, found)]
    return found


def _narrower(request: Request, than: Request) -> bool:
    """Return whether every largest value of a degree is at most the other request's."""
    return all(request.below.get(degree, math.inf) <= most for degree, most in than.below.items())


def _among(found: Evaluated, request: Request, capacity: float) -> Evaluated:
    """Return those of the layouts found that the request allows and that fit into a smaller capacity."""
    whole = grid(request)
    fitting: list[Fitting] = []
    for layout, used, upper in found.fitting:
        kept = (used <= capacity).any(axis=0)
        for degree, most in request.below.items():
            kept = kept & (_column(layout, "micro" if degree == "micro-batch" else degree) <= most)
        if kept.any():
            fitting.append((_flat(layout, kept), used[:, kept], upper[:, kept]))
    layouts = 0 if whole is None else int(whole.valid.sum()) * len(request.recomputes)
    return Evaluated(fitting, layouts, None, math.inf)


def _evaluated(request: Request, capacity: float, prune: bool) -> Evaluated:
    """Evaluate the memory of every layout."""
    fitting: list[Fitting] = []
    whole, least, least_used = grid(request), None, float("inf")
    layouts = 0 if whole is None else int(whole.valid.sum()) * len(request.recomputes)
    for layout in () if whole is None else _candidates(request, whole, capacity if prune else math.inf):
        used, upper = _used(request, layout, capacity if prune else math.inf)  # recomputation × layout
        if not prune and used.min() < least_used:
            least_used = float(used.min())
            again, here = divmod(int(used.argmin()), used.shape[1])
            least = _exact(request, _numbers(layout, used.shape[1], here), request.recomputes[again])
        kept = (used <= capacity).any(axis=0)
        if kept.any():
            fitting.append((_flat(layout, kept), used[:, kept], upper[:, kept]))
    return Evaluated(list(_gathered(fitting)), layouts, least, least_used)


def _gathered(fitting: list[Fitting]) -> Iterator[Fitting]:
    """Yield the same layouts in the same order, those of small blocks together: the formulas of time do not differ
    between kinds of block."""
    start = 0
    while start < len(fitting):
        end, count = start + 1, fitting[start][1].shape[1]
        while end < len(fitting) and count + fitting[end][1].shape[1] <= TIMED:
            count += fitting[end][1].shape[1]
            end += 1
        layouts, used, upper = zip(*fitting[start:end], strict=True)
        if len(layouts) == 1:
            yield fitting[start]
        else:
            columns = {name: np.concatenate([_column(one, name) for one in layouts]) for name in _NAMES}
            yield layouts[0].replaced(**columns), np.concatenate(used, axis=1), np.concatenate(upper, axis=1)
        start = end


def _column(layout: Layout, name: str) -> Array:
    """Return one degree of layouts along one axis, with an entry for each."""
    stages: Array = layout.pp
    return np.broadcast_to(np.asarray(getattr(layout, name), dtype=float), stages.shape)


def _piece(layout: Layout, seconds: Array, used: Array, upper: Array, fits: Array) -> dict[str, Array]:
    """Return those of the layouts that fit as columns; each array is [recomputation, layout]."""
    seconds = np.broadcast_to(seconds, fits.shape)
    piece = {name: np.broadcast_to(getattr(layout, name), fits.shape)[fits] for name in _NAMES}
    return piece | {
        "recompute": np.nonzero(fits)[0],
        "seconds": seconds[fits],
        "used": used[fits],
        "upper": upper[fits],
    }


def _joined(request: Request, pieces: list[dict[str, Array]], capacity: float, memory: Evaluated) -> Found:
    """Return the pieces as one."""
    joined = {
        name: np.concatenate([p[name] for p in pieces]) if pieces else np.zeros(0)
        for name in (*_NAMES, "recompute", "seconds", "used", "upper")
    }
    seconds, used, surely = joined.pop("seconds"), joined.pop("used"), joined.pop("upper") <= capacity
    tokens = joined["micro"] * joined["micro_batches"] * joined["dp"] * request.seq
    score = request.gpus * seconds / np.maximum(tokens, 1.0)
    return Found(request, joined, seconds, used, surely, score, memory.layouts, memory.least, memory.least_used)


def least_score(request: Request, timed: Timed, capacity: float) -> float:
    """Return the least GPU-seconds of a token of all layouts whose states fit, whether the rest of them fits or not."""
    whole = grid(request)
    least = math.inf
    for layout in () if whole is None else _candidates(request, whole, capacity):
        seconds = _seconds(request, layout, timed)
        tokens = layout.micro * layout.micro_batches * layout.dp * request.seq
        least = min(least, float((request.gpus * seconds / tokens).min()))
    return least


def _candidates(request: Request, whole: Grid, capacity: float) -> Iterator[Layout]:
    """Yield the layouts whose states alone fit a card, along one axis, as many at a time as run the same operations."""
    for _, blocks in itertools.groupby(_blocks(request, whole), key=lambda block: block[0]):
        waiting: list[dict[str, Array]] = []
        for _, block, valid in blocks:
            states = least_states(request.model, replace(request.setup, layout=block))
            valid = valid & (states * ROUNDING <= capacity)
            if valid.any():
                flat = _flat(block, valid)
                waiting.append({name: getattr(flat, name) for name in _NAMES if is_array(getattr(flat, name))})
        if waiting:
            joined = {name: np.concatenate([one[name] for one in waiting]) for name in waiting[0]}
            for start in range(0, len(joined["pp"]), ENTRIES):
                yield block.replaced(**{name: array[start : start + ENTRIES] for name, array in joined.items()})


ROUNDING = 1 - 1e-9
"""What a bound may be off by rounding."""


def _flat(layout: Layout, kept: Array) -> Layout:
    """Return the layouts that are kept, along one axis."""
    arrays = {name: getattr(layout, name) for name in _NAMES if is_array(getattr(layout, name))}
    return layout.replaced(**{name: np.broadcast_to(array, kept.shape)[kept] for name, array in arrays.items()})


def _numbers(layout: Layout, count: int, at: int) -> dict[str, int]:
    """Return the degrees of one of `count` layouts along one axis."""
    return {name: int(np.broadcast_to(getattr(layout, name), (count,))[at]) for name in _NAMES}


def _used(request: Request, layout: Layout, capacity: float) -> tuple[Array, Array]:
    """Return memory/used and the upper end of its interval as [recomputation, layout].

    Of many layouts, the first stage is evaluated for all and the others where it fits under some recomputation: no
    stage needs less than the worst one, so that what is left out is larger than the capacity anyway."""
    some = layout.replaced(micro=2 if is_array(layout.micro) else 1, **dict.fromkeys(("pp", "cp", "ep", "dp", "vp"), 1))
    alike = replace(request.setup, layout=some.replaced(tp=1, dp=request.gpus))
    width = width_of(request.model, alike, request.implementation)
    steps = list(_prepared(request, layout))
    stages: Array = layout.pp
    count = len(stages)
    grouped = any(recompute.kind == "group" for recompute in request.recomputes)
    if count < MANY or grouped or capacity == math.inf:
        return _joined_ends((used_of(step, width) for step in steps), count)
    used, upper = _joined_ends((used_of(step, width, slice(1)) for step in steps), count)
    near = (used <= capacity).any(axis=0)
    if near.any():
        if 2 * near.sum() > count:  # too few are left out to pay for another tape
            near[:] = True
        left = int(near.sum())
        if left < count:
            steps = list(_prepared(request, _flat(layout, near)))
        others = _joined_ends((used_of(step, width, slice(1, None)) for step in steps), left)
        used[:, near] = np.maximum(used[:, near], others[0])
        upper[:, near] = np.maximum(upper[:, near], others[1])
    return used, upper


def _prepared(request: Request, layout: Layout) -> Iterator[PreparedStep]:
    """Yield the layouts' step under each recomputation. The tape is the same for all but `selective`."""
    tapes: dict[bool, PreparedStep] = {}
    for recompute in request.recomputes:
        setup = replace(request.setup, layout=layout.replaced(recompute=recompute))
        selective = recompute.kind == "selective"
        if selective not in tapes:
            tapes[selective] = prepare(request.model, setup)
        yield tapes[selective].under(setup)


def _joined_ends(found: Iterable[tuple[Any, Any]], count: int) -> tuple[Array, Array]:
    """Return values and upper ends by recomputation as two arrays of [recomputation, layout]."""
    values, ends = zip(*found, strict=True)
    of_layout = [np.stack([np.broadcast_to(one, (count,)) for one in both]) for both in (values, ends)]
    return of_layout[0], of_layout[1]


AGAIN = ("layers_recomputed", "attention_recomputed", "products_recomputed")
"""Fields of a StepLayout that recomputation decides."""


def _seconds(request: Request, layout: Layout, timed: Timed) -> Array:
    """Return step/time as [recomputation, layout], from one evaluation in which recomputation is an axis too."""
    asked = [timed(replace(request.setup, layout=layout.replaced(recompute=r))) for r in request.recomputes]
    plan, rates = asked[0]
    shares = {name: np.array([float(getattr(p, name)) for p, _ in asked]).reshape(-1, 1) for name in AGAIN}
    with np.errstate(all="ignore"):  # entries that are not valid may divide by zero
        return step(request.model, replace(plan, **shares), rates).time.value


def _blocks(request: Request, whole: Grid) -> Iterator[tuple[int, Layout, Array]]:
    """Yield blocks of the grid: their kind, layouts as arrays, without their recomputation, and which are valid.

    Within a kind of block tp is 1 or more, sp is one number, and micro-batches are all of one sequence or all of more,
    so that the same operations (copies, gathers, reductions) run in all its layouts."""
    rows_at_once = max(ENTRIES // (len(whole.columns) * len(request.recomputes)), 1)
    kinds, kind_of = np.unique(
        np.stack((whole.rows[:, 0] == 1, whole.rows[:, 3], whole.rows[:, 4] == 1), axis=1), axis=0, return_inverse=True
    )
    for kind, (whole_width, sp, single) in enumerate(kinds):
        members = np.flatnonzero(kind_of.reshape(-1) == kind)
        for start in range(0, len(members), rows_at_once):
            rows = members[start : start + rows_at_once]
            here = np.ix_(rows, whole.valid[rows].any(axis=0))
            tp, cp, ep, _, micro = (whole.rows[rows, i : i + 1] for i in range(5))
            pp, vp, zero = (whole.columns[here[1][0], i][None, :] for i in range(3))
            layout = _given(request).replaced(
                micro=1 if single else micro,
                micro_batches=whole.micro_batches[here],
                tp=1 if whole_width else tp,
                pp=pp,
                dp=whole.dp[here],
                cp=cp,
                ep=ep,
                vp=vp,
                sp=int(sp),
                zero=zero,
            )
            yield kind, layout, whole.valid[here]


def used_bytes(model: Model, setup: Setup) -> Any:
    """Return memory/used of the worst stage: a number or an array."""
    return used_of(prepare(model, setup), EXACT)[0]


def used_of(prepared: PreparedStep, width: Width, part: slice = slice(None)) -> tuple[Any, Any]:
    """Return memory/used of the worst stage of a prepared step, and the upper end of its interval. part: which of the
    stages that can be the worst are looked at; the first where it holds none."""
    setup = prepared.setup
    alike = len(prepared.order.segments) == 1 and prepared.order.segments[0].period == 1
    if setup.layout.recompute.kind == "group" and not alike and is_array(setup.layout.pp):
        return _by_stages(prepared.model, setup, width)
    used, upper = [], []
    tried = places(prepared)
    for place in _together(tried[part] or tried[:1]):
        rank = memory.rank_of(prepared, place)
        live = term.leaf("memory/live", rank.live, "byte", term.TRUE)
        found = allocator.reported(live, setup.layout.gpus, False, width, rank.flow(setup))
        most = found.ends["memory/used"][1] + narrow_copies(setup, rank)
        used.append(_largest(found.used.value, place))
        upper.append(_largest(most, place))
    return maximum(*used), maximum(*upper)


def _together(found: tuple[Number, ...]) -> Iterator[Number]:
    """Yield the stages, arrays of them as [stage, layout], as many at a time as there is room for."""
    if not is_array(found[0]):
        yield from found
        return
    arrays: Any = found
    index = np.stack(np.broadcast_arrays(*arrays))
    at_once = max(STACKED // index.shape[1], 1)
    for start in range(0, len(index), at_once):
        yield index[start : start + at_once]


def _largest(size: Any, place: Any) -> Any:
    """Return the bytes of the worst of the stages that were evaluated together."""
    return np.broadcast_to(size, place.shape).max(axis=0) if is_array(place) else size


def _by_stages(model: Model, setup: Setup, width: Width) -> tuple[Any, Any]:
    """Return the same for pipelines of one depth at a time: where layers differ, checkpoint groups start anew on every
    stage."""
    layout = setup.layout
    depths: Array = layout.pp
    found = np.zeros((2, len(depths)))
    for stages in np.unique(depths):
        here = depths == stages
        part = replace(setup, layout=_flat(layout, here).replaced(pp=int(stages)))
        found[0][here], found[1][here] = used_of(prepare(model, part), width)
    return found[0], found[1]

"""The layouts of a search that fit, and their ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from napkin.planning.blocks import CELL, Block, blocks, given, score
from napkin.planning.grid import Array, Request, grid
from napkin.planning.memory_cache import Fitting, Memory
from napkin.record import record, replace
from napkin.training.layout import Layout
from napkin.training.recomputation import Recompute


@record
class FittingLayouts:
    """Layouts that fit, as arrays with one entry per layout.

    fields   degrees by name
    seconds  of a step
    used     bytes that a GPU reports as used, on the worst stage
    surely   whether the upper end of their interval fits
    score    GPU-seconds per token, by which layouts are ranked
    layouts  number of layouts evaluated, fitting or not
    least    the layout with the least memory among all evaluated; its bytes are `least_used`
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
        """Return one layout, in exact integers."""
        numbers = {name: int(column[i]) for name, column in self.fields.items() if name != "recompute"}
        recompute = self.request.recomputes[int(self.fields["recompute"][i])]
        return exact_layout(self.request, numbers, recompute)

    def up_to(self, most: float) -> FittingLayouts:
        """Return the layouts with at most this many GPU-seconds per token."""
        kept = self.score <= most
        arrays = {name: getattr(self, name)[kept] for name in ("seconds", "used", "surely", "score")}
        return replace(self, fields={name: column[kept] for name, column in self.fields.items()}, **arrays)

    def ranked(self, most: int, among: Array | None = None) -> list[int]:
        """Return the indices of the best, in order; ties go to the lowest ZeRO stage, then the least memory, then the
        smallest degrees.
        among: the indices to choose from, all if it is None."""
        near = np.arange(len(self)) if among is None else among
        if len(near) > most:
            near = near[self.score[near] <= np.partition(self.score[near], most)[most]]
        rest = (column[near] for name, column in self.fields.items() if name != "zero")
        order = np.lexsort((*rest, self.used[near], self.fields["zero"][near], self.score[near]))
        return [int(i) for i in near[order][:most]]

    def distinct(self, most: int) -> list[int]:
        """Return the indices of the best, in order; of equally fast ones that differ only in the ZeRO stage, only the
        lowest stage."""
        seen: dict[tuple[Layout, float], int] = {}
        for i in self.ranked(16 * most):
            seen.setdefault((self.layout(i).replaced(zero=0), float(self.seconds[i])), i)
            if len(seen) == most:
                break
        return list(seen.values())

    def front(self) -> list[int]:
        """Return the Pareto front of time and memory as indices, fastest first; savings of less than 0.1 % of memory do
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


def exact_layout(request: Request, numbers: Mapping[str, int], recompute: Recompute) -> Layout:
    """Return one layout in integers; numbers: its degrees by field."""
    schedule = "interleaved" if numbers["vp"] > 1 else "1f1b"
    return given(request).replaced(schedule=schedule, recompute=recompute, **numbers)


def layout_at(request: Request, block: Block, at: int) -> Layout:
    """Return one layout of a block, by its flat index over recomputations, ZeRO stages and cells."""
    again, stage, cell = np.unravel_index(at, (len(request.recomputes), *block.valid.shape))
    numbers = {name: int(block.column(name)[cell]) for name in CELL}
    numbers |= {"zero": int(block.zero[stage])}
    return exact_layout(request, numbers, request.recomputes[int(again)])


def only_layout(request: Request) -> Layout | None:
    """Return the layout of a request with all degrees fixed; None if it is not valid."""
    whole = grid(request)
    if whole is None:
        return None
    block = next(blocks(request, whole))
    return layout_at(request, block, int(block.valid.argmax()))


def joined(memory: Memory, fitting: Sequence[Fitting], times: Sequence[Array], capacity: float) -> FittingLayouts:
    """Return the layouts that fit as columns; times: their step/time by block."""
    request = memory.request
    pieces = [_columns(one, seconds) for one, seconds in zip(fitting, times, strict=True)]
    names = (*CELL, "zero", "recompute", "seconds", "used", "upper")
    columns = {name: np.concatenate([piece[name] for piece in pieces]) if pieces else np.zeros(0) for name in names}
    seconds, used, surely = columns.pop("seconds"), columns.pop("used"), columns.pop("upper") <= capacity
    scores = score(request, seconds, columns["micro"] * columns["micro_batches"] * columns["dp"])
    return FittingLayouts(request, columns, seconds, used, surely, scores, memory.layouts, None, math.inf)


def together(request: Request, found: Sequence[FittingLayouts]) -> FittingLayouts:
    """Return the layouts found by the parts of a request as its own."""
    if len(found) == 1:
        return replace(found[0], request=request)
    least = min(found, key=lambda one: one.least_used)
    arrays = {
        name: np.concatenate([getattr(one, name) for one in found]) for name in ("seconds", "used", "surely", "score")
    }
    return FittingLayouts(
        request=request,
        fields={name: np.concatenate([one.fields[name] for one in found]) for name in found[0].fields},
        layouts=sum(one.layouts for one in found),
        least=least.least,
        least_used=least.least_used,
        **arrays,
    )


def _columns(one: Fitting, seconds: Array) -> dict[str, Array]:
    """Return the layouts of a block that fit, with an entry for each in every array."""
    fits = one.fits
    again, stage, cell = np.nonzero(fits)
    piece = {name: one.block.column(name)[cell] for name in CELL}
    return piece | {
        "zero": one.block.zero[stage],
        "recompute": again,
        "seconds": np.broadcast_to(seconds, fits.shape)[fits],
        "used": one.used[fits],
        "upper": one.upper[fits],
    }

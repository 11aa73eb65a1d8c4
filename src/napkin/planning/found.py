"""The layouts of a search that fit, and how they are ranked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from napkin.planning.grid import Array, Request
from napkin.record import record
from napkin.training.layout import Layout
from napkin.training.recomputation import Recompute


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
        return exact_layout(self.request, numbers, recompute)

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


def exact_layout(request: Request, numbers: Mapping[str, int], recompute: Recompute) -> Layout:
    """Return one layout in integers; numbers: its degrees by field."""
    return Layout(
        seq=request.seq,
        schedule="interleaved" if numbers["vp"] > 1 else "1f1b",
        recompute=recompute,
    ).replaced(**numbers)

"""Screen of `memory --tensors`: every tensor that autograd saves for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.planning.step_memory import SavedTensor
from napkin.record import replace
from napkin.render.figures import size
from napkin.render.screen import Column, Next, Screen, Table


def listed(screen: Screen, tensors: Sequence[SavedTensor], recomputes: bool) -> Screen:
    """Return the screen of a step with its saved tensors in place of the categories, grouped by block; recomputes:
    whether some are already recomputed."""
    columns = (
        Column("block", drop=1),
        Column("operation"),
        Column("tensor"),
        Column("each", right=True),
        Column("times", right=True),
        Column("total", right=True, drop=2),
    )
    rows = [
        (one.section, one.operation, one.tensor, size(one.size), f"{one.times:,}", size(one.size * one.times))
        for one in tensors
    ]
    following = Next({"tensors": None} if recomputes else {"recompute": "full"})
    return replace(screen, table=Table(columns, rows), remarks=(), more=None, next=following, listing=True)

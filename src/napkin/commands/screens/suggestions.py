"""Table of the suggestions that make a step fit: the memory of each, and its extra time; and host memory in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from napkin.elementwise import Number
from napkin.render.answer import Row, number_in
from napkin.render.figures import size, size_of
from napkin.render.screen import Column, Table

LONGEST = 52
"""Characters of the options of a suggestion that are shown."""
NODE = 8
"""GPUs of a usual node: who asks about a machine is not sent to one more than this many times as large."""
MANY = 9
"""A ratio of times beyond this factor is written as a multiple."""


def would_fit(rows: Sequence[Row], most: int) -> Table | None:
    """Return a table of suggestions, best first, at most this many; None if there are none."""
    if not rows:
        return None
    columns = (Column("would fit with"), Column("per GPU", True, 1), Column("time", remark=True))
    return Table(columns, [(change_of(row), size(number_in(row, "used")), _slower(row)) for row in rows[:most]])


def first_command(rows: Sequence[Row], gpus: float = math.inf) -> str:
    """Return the command of the first suggestion that trains the same weights on at most NODE times the GPUs; else of
    the first. gpus: number of GPUs of the question, if a suggestion may have more."""
    near = (row for row in rows if "trains" not in row and number_in(row, "gpus") <= NODE * gpus)
    return str(next(near, rows[0])["command"])


def change_of(row: Row) -> str:
    """Return the changed options, cut between two of them where the other columns would have no room; --json has
    all."""
    pieces = str(row["change"]).split(" --")
    texts = [" --".join(pieces), *(" --".join(pieces[:count]) + " …" for count in range(len(pieces) - 1, 0, -1))]
    return next((text for text in texts if len(text) <= LONGEST), texts[-1])


def _slower(row: Row) -> str:
    """Return whether a suggestion trains only LoRA matrices, its extra time for the same tokens, and its host
    memory."""
    trains = "LoRA only" if "trains" in row else ""
    if isinstance(row.get("extra_time"), float):
        return joined(trains, _time(row), hosted(row))
    return joined(trains, hosted(row), "not timed")


def joined(*clauses: str) -> str:
    """Return the clauses that are not empty as a remark, of which a narrow screen shows the first."""
    return "; ".join(clause for clause in clauses if clause)


def _time(row: Row) -> str:
    """Return the extra time of a suggestion, with its interval unless it is a multiple."""
    times = 1 + number_in(row, "extra_time")
    if times > MANY or 0 < times < 1 / MANY:  # 0: shorter than the precision of what is left
        return f"{times:,.0f} × as long" if times > 1 else f"{1 / times:,.0f} × as fast"
    return f"{times - 1:+.0%} ({number_in(row, 'low'):+.0%} to {number_in(row, 'high'):+.0%})"


def hosted(row: Row) -> str:
    """Return the host memory that a suggestion uses, as a clause; "" if none."""
    if "host" not in row:
        return ""
    there = f"of {size(number_in(row, 'host_capacity'))} " if "host_capacity" in row else ""
    return f"{size(number_in(row, 'host'))} {there}host"


def host_line(host: Number, there: Number | None) -> str:
    """Return the line on host memory. there: its size, None if it is not given."""
    if there is None:
        return f"in the host's memory: {size(host)} per node"
    return f"in the host's memory: {size_of(host, there)} per node{' does not fit' if host > there else ''}"

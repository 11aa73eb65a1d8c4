"""Screen of `compare`: the change of the answer from A to B, and the contribution of each difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.elementwise import ratio
from napkin.record import record
from napkin.render.answer import Quantities
from napkin.render.figures import compact
from napkin.render.screen import Column, Screen, Table
from napkin.units import human

LEADING = (
    "serve/output_tokens_per_second",
    "serve/tpot",
    "serve/cost_per_million_output_tokens",
    "serve/ttft",
    "time",
    "step/time",
    "memory/total",
    "params/max",
    "fits/params",
    "intensity",
    "cost",
    "energy",
    "mfu",
    "gpu_hours",
    "tokens_per_second",
    "params/total",
    "params/active",
    "flops/total",
    "hardware/peak/bf16",
    "hardware/memory/capacity",
    "hardware/memory/bandwidth",
    "hardware/link/per_direction",
    "hardware/network/per_direction",
    "hardware/tdp",
)
"""Quantities that are shown first."""
DETAILS = ("/at/", "/after/", "/sparse_peak/", "/ridge/", "/low", "/high")
"""Parts of the paths that are shown last."""
PRINTED = "hardware/memory"
"""The memory that a datasheet prints, in GB."""
MOST_ROWS, IN_HEADLINE = 15, 3


@record
class Contribution:
    """The contribution of one difference: its name, its text on both sides, path → contribution."""

    name: str
    a: str
    b: str
    adds: Mapping[str, float]


def signed(value: float, unit: str) -> str:
    """Return a change with its sign and a readable unit."""
    return ("+" if value > 0 else "−" if value < 0 else "") + (compact(abs(value), unit) if value else "0")


def of_sides(
    asked: Sequence[str],
    have: Quantities,
    get: Quantities,
    paths: Sequence[str],
    headline: Sequence[str],
    verdicts: Sequence[str | None],
    follows: Sequence[str],
) -> Screen:
    """Return the screen of two sides as wholes: each quantity of both, and their ratio. follows: what changes with the
    difference."""
    moved = sorted((path for path in paths if have[path][0] != get[path][0]), key=rank)
    moved.sort(key=lambda path: _cell(path, have) == _cell(path, get))  # what is too close to be seen comes last
    if not moved:
        return Screen(asked, ("no difference",))
    shown = moved[: MOST_ROWS - 2 * len(follows)]
    rows: list[tuple[str, ...]] = [
        (path, _cell(path, have), _cell(path, get), _times(have[path][0], get[path][0])) for path in shown
    ]
    if any(verdicts):
        rows.insert(0, ("verdict", *(verdict or "" for verdict in verdicts), ""))
    listing = not headline
    columns = (Column("quantity"), Column("A", right=True), Column("B", right=True), Column("B / A", True, 1))
    more = len(moved) - len(shown)
    differ = "quantity differs" if more == 1 else "quantities differ"
    said = [*follows, *([f"{more} more {differ}: --show names one, --json has all"] if more else [])]
    lines = headline or [f"{path.removeprefix('hardware/')} {_times(have[path][0], get[path][0])}" for path in moved]
    return Screen(asked, lines[:IN_HEADLINE], table=Table(columns, rows), remarks=said, listing=listing)


def _cell(path: str, of: Quantities) -> str:
    """Return a quantity in a readable unit: the datasheet's memory in its gigabytes, next to the usable GiB."""
    value, unit = of[path]
    return human(value, "byte/GPU").removesuffix("/GPU") if path == PRINTED else compact(value, unit)


def rank(path: str) -> tuple[int, bool, int]:
    """Return the sort key of a quantity: leading ones first, totals before their parts, details last."""
    at = LEADING.index(path) if path in LEADING else len(LEADING)
    return at, any(part in path for part in DETAILS), path.count("/")


def of_steps(
    asked: Sequence[str],
    steps: Sequence[Contribution],
    have: Quantities,
    get: Quantities,
    headline: Sequence[str],
    verdicts: Sequence[str | None],
    follows: Sequence[str],
) -> Screen:
    """Return the screen of several differences: A, the contribution of each, then B, down a column. follows: what
    changes with them."""
    paths = list(steps[0].adds)
    rows = [["A", "", *(compact(*have[path]) for path in paths)]]
    for one in steps:
        rows.append([one.name, f"{one.a} → {one.b}", *(signed(one.adds[path], have[path][1]) for path in paths)])
    rows.append(["B", "", *(compact(*get[path]) for path in paths)])
    columns = [Column("difference"), Column()]
    columns += [Column(path, right=True, drop=at) for at, path in enumerate(paths)]
    if any(verdicts):
        columns.append(Column("verdict"))
        ends = {0: verdicts[0], len(rows) - 1: verdicts[1]}
        rows = [[*row, ends.get(at) or ""] for at, row in enumerate(rows)]
    return Screen(asked, headline, table=Table(columns, rows), remarks=follows)


def changes(have: Quantities, get: Quantities, paths: Sequence[str]) -> list[str]:
    """Return the changes of the explained quantities."""
    return [
        f"{path} {signed(float(get[path][0]) - float(have[path][0]), have[path][1])}"
        + (f" ({times})" if (times := _times(have[path][0], get[path][0])) else "")
        for path in paths
    ]


def _times(a: float, b: float) -> str:
    """Return the ratio of the second to the first, or nothing if it is out of range or one of them is below 0."""
    if min(a, b) < 0:
        return ""
    times = float(ratio(b, a))
    return f"{times:.3g} ×" if math.isfinite(times) else ""

"""Screen of `sweep`: a line for each value of an option, and the values with the smallest and largest answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.commands.screens.compare import rank
from napkin.commands.sweep.point import Point
from napkin.errors import HELD, OK
from napkin.options.registry import OPTIONS
from napkin.planning.verdicts import FITS, VERDICTS
from napkin.render.answer import is_end
from napkin.render.figures import compact
from napkin.render.screen import Column, Next, Screen, Table

MOST_COLUMNS = 5
"""Number of quantities that are shown by default; --csv and --json have all that change."""
ANSWERS = ("time", "step/time", "memory/total", "cost", "gpu_hours")
"""Quantities that are said even if no value of the swept option changes them."""
SPEED = "tokens_per_second_per_gpu"
LARGER = (
    *("mfu", "params/max", "fits/params", "tokens", "params", "tokens_per_second", SPEED),
    "serve/output_tokens_per_second",
)
"""Quantities for which larger is better."""


def chosen(kept: Sequence[str], named: bool, points: Sequence[Point]) -> list[str]:
    """Return the quantities that are shown: those named, else the most important ones."""
    if named:
        return list(kept)
    distinct: dict[tuple[object, ...], str] = {}
    leading = SPEED if _differ_in_tokens(points) else ""
    for path in sorted((path for path in kept if not is_end(path)), key=lambda path: (path != leading, rank(path))):
        values = tuple(point.quantities.get(path) for point in points)
        distinct.setdefault(values, path)  # one of those that are the same at every point
    return list(distinct.values())[:MOST_COLUMNS]


def _differ_in_tokens(points: Sequence[Point]) -> bool:
    """Return whether the swept steps train on different numbers of tokens, so that their times do not compare."""
    tokens = []
    for point in points:
        found = point.quantities
        if point.answer is not None and "step/time" in found and SPEED in found and "gpus" in point.answer.inputs:
            gpus = point.answer.inputs["gpus"].value
            tokens.append(found["step/time"][0] * found[SPEED][0] * (gpus if isinstance(gpus, int) else 1))
    return bool(tokens) and max(tokens) > 1.001 * min(tokens)


def screen(command: str, points: Sequence[Point], shown: Sequence[str], more: int, swept: Sequence[str]) -> Screen:
    """Return the screen; shown: paths of the columns; more: the number of other quantities that change; swept: the
    options."""
    judged = any(point.judgement for point in points)
    columns = [Column(name, right=all(_typed(point, name)[:1].isdigit() for point in points)) for name in swept]
    columns += [Column(path, right=True, drop=at) for at, path in enumerate(shown)]
    columns += [Column("verdict")] if judged else []
    rows = []
    for point in points:
        found = point.quantities
        row = [_typed(point, name) for name in swept]
        row += [_number(path, *found[path]) if path in found else "–" for path in shown]
        row += [point.judgement or ""] if judged else []
        rows.append(row)
    asked = [command, *(_range(points, name) for name in swept)]
    said = [f"{_at(point, swept)}: {point.problem.message}" for point in points if point.problem is not None]
    said += _unchanged(points, shown)
    change = "quantity changes" if more == 1 else "quantities change"
    said += [f"{more} more {change}: --show names one, --csv and --json have all"] if more > 0 else []
    headline = [*_fitting(points, swept), *(_ends(points, shown[0], swept) if shown else ())]
    return Screen(asked, headline, table=Table(columns, rows), remarks=said, next=_next(points, shown), listing=True)


def _number(path: str, value: int | float, unit: str) -> str:
    """Return a quantity with its unit, unless the path above it spells the unit out (`tokens_per_second_per_gpu`)."""
    return compact(value, unit).removesuffix(unit).rstrip() if path == SPEED else compact(value, unit)


def _unchanged(points: Sequence[Point], shown: Sequence[str]) -> list[str]:
    """Return what the question answers that is the same at every point, if the table does not show it."""
    answered = [point.quantities for point in points if point.answer is not None]
    same = [path for path in ANSWERS if path not in shown and len({one.get(path) for one in answered}) == 1]
    found = [f"{path} {compact(*answered[0][path])}" for path in same if path in answered[0]]
    return [f"the same for all: {', '.join(found)}"] if found and len(answered) > 1 else []


def _typed(point: Point, name: str) -> str:
    return str(point.changes[name]).lower().strip()


def _range(points: Sequence[Point], name: str) -> str:
    """Return the values of an option in words."""
    values = list(dict.fromkeys(_typed(point, name) for point in points))
    return (
        f"{name} {', '.join(values)}"
        if len(values) <= 4
        else f"{name} {values[0]} to {values[-1]} ({len(values)} values)"
    )


def _ends(points: Sequence[Point], path: str, swept: Sequence[str]) -> list[str]:
    """Return the values with the smallest and the largest quantity."""
    known = [point for point in points if path in point.quantities]
    least = min(known, key=lambda point: point.quantities[path][0], default=None)
    largest = max(known, key=lambda point: point.quantities[path][0], default=None)
    if least is None or largest is None or least.quantities[path][0] == largest.quantities[path][0]:
        return []
    ends = (f"{compact(*one.quantities[path])} ({_at(one, swept)})" for one in (least, largest))
    return [f"{path}: least {next(ends)}", f"largest {next(ends)}"]


def _fitting(points: Sequence[Point], swept: Sequence[str]) -> list[str]:
    """Return the values for which it fits, if there are any."""
    fits = [point for point in points if point.fit == FITS]
    judged = [point for point in points if point.fit in VERDICTS]
    if judged and not fits and len(judged) == len(points):
        return ["fits for none of them"]
    if not fits or len(fits) == len(points):
        return []
    values = [point.value(OPTIONS[swept[0]]) for point in points] if len(swept) == 1 else []
    numbers = [value for value in values if isinstance(value, (int, float))]
    if numbers and len(numbers) == len(points):
        ascending = [points[place] for place in sorted(range(len(points)), key=numbers.__getitem__)]
        among = [any(point is one for one in fits) for point in ascending]
        if among == sorted(among, reverse=True):
            return [f"fits up to {_at(ascending[len(fits) - 1], swept)}"]
        if among == sorted(among):
            return [f"fits from {_at(ascending[-len(fits)], swept)} on"]
    return [f"fits: {'; '.join(_at(point, swept) for point in fits[:3])}{f', {len(fits) - 3} more' * (len(fits) > 3)}"]


def _at(point: Point, swept: Sequence[str]) -> str:
    return ", ".join(f"{name} {_typed(point, name)}" for name in swept)


def _next(points: Sequence[Point], shown: Sequence[str]) -> Next:
    """Return the command for the best value."""
    known = [point for point in points if point.answer is not None]
    path = shown[0] if shown else ""
    fits = [point for point in known if point.fit == FITS]
    filled = path.startswith("memory/") and 0 < len(fits) < len(known)
    sign = -1 if path in LARGER or filled else 1  # if some do not fit, what uses most
    known = [point for point in known if point.judgement == HELD[OK]] or fits or known
    best = min(known, key=lambda point: sign * point.quantities[path][0] if path in point.quantities else math.inf)
    gone: Mapping[str, None] = {"over": None, "by": None, "show": None}
    assert best.answer is not None
    return Next({**best.changes, **gone}, best.answer.command)

"""Limits on the quantities of an answer: `<= 150d`, `30B .. 50B`, `== 144d ± 1%`, and on its verdict: `fits`.

A limit holds, is broken, or is too close to call: if the quantity is an estimate and the limit lies inside its
interval, or where the verdict itself is too close to call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from napkin.elementwise import Number
from napkin.errors import BROKEN, CLOSE, OK, UNDECIDED, NapkinError, did_you_mean
from napkin.record import record
from napkin.units import Unreadable, number, quantity

HOLDS, BROKEN_WORD, CLOSE_WORD = "holds", "broken", "close"
VERDICT = "verdict"
"""The path of an answer's word: a limit on it is one word, or several with | between them."""
GIVEN_BY = {"cost": "price, USD per GPU-hour,", "memory/capacity": "hardware", "gpu_hours": "tokens"}
"""Path → the input without which an answer lacks it."""
LIMITED = {"within": "time", "budget": "cost"}
"""Option that limits a run → the path of what it limits."""
_HINT = 'a condition is "<= 150d", ">= 30B", "30B .. 50B", "== 144d" or "== 144d ± 1%"'


Intervals = Mapping[str, tuple[Number, Number]]
"""Path of an estimate → its ends."""


@record
class Limit:
    """The quantity must lie between `low` and `high`, ends included unless `open_ends`."""

    text: str
    low: float
    high: float
    open_ends: bool = False

    def admits(self, value: Number) -> bool:
        if self.open_ends:
            return bool(self.low < value < self.high)
        return bool(self.low <= value <= self.high)


@record
class LimitOutcome:
    """One limit checked against one quantity; `beyond` is how far outside the value is (0 if the limit holds). The
    value of a verdict is its word."""

    path: str
    limit: str
    value: float | str
    unit: str
    low: Number | None
    high: Number | None
    status: str
    beyond: float


def read_limit(text: object, unit: str) -> Limit:
    """Parse a condition on a quantity of that unit. Raises Unreadable with what is wrong."""
    if not isinstance(text, str):
        raise Unreadable(f"{text!r} is not a condition", _HINT)
    plain = text.strip()
    for sign in ("<=", ">=", "==", "<", ">"):
        if plain.startswith(sign):
            rest = plain[len(sign) :].strip()
            if sign == "==":
                return _equal(plain, rest, unit)
            bound = quantity(rest, unit)
            low, high = (-math.inf, bound) if sign[0] == "<" else (bound, math.inf)
            return Limit(plain, low, high, open_ends=len(sign) == 1)
    if ".." in plain:
        first, _, second = plain.partition("..")
        low, high = quantity(first, unit), quantity(second, unit)
        if low > high:
            raise Unreadable(f"{plain!r} is an empty range", "the smaller end comes first")
        return Limit(plain, low, high)
    raise Unreadable(f"{plain[:60]!r} is not a condition", _HINT)


def _equal(plain: str, rest: str, unit: str) -> Limit:
    for sign in ("±", "+-", "+/-"):
        middle, found, width = rest.partition(sign)
        if found:
            center = quantity(middle, unit)
            share = width.strip().endswith("%")
            reach = abs(center) * number(width) if share else quantity(width, unit)
            if reach < 0:
                raise Unreadable(f"{plain!r}: a tolerance is not negative", "for example ± 5%")
            return Limit(plain, center - reach, center + reach)
    value = quantity(rest, unit)
    return Limit(plain, value, value)


def judge(path: str, limit: Limit, value: float, unit: str, interval: tuple[Number, Number] | None) -> LimitOutcome:
    """Check a limit against a quantity, and against the ends of its interval if it is an estimate."""
    admitted = limit.admits(value)
    status = HOLDS if admitted else BROKEN_WORD
    low, high = interval if interval is not None else (None, None)
    if low is not None and high is not None:
        certain = limit.admits(low) and limit.admits(high)
        apart = high < limit.low or low > limit.high
        status = HOLDS if certain else BROKEN_WORD if apart else CLOSE_WORD
    beyond = max(limit.low - value, value - limit.high, 0.0)
    return LimitOutcome(path, limit.text, value, unit, low, high, status, beyond)


def judge_verdict(text: object, verdict: str | None, known: Sequence[str]) -> LimitOutcome:
    """Check a limit against a verdict. known: the words that the command's verdict may be. Raises Unreadable if the
    limit names none of them, or if this answer has no verdict."""
    wanted = [word.strip() for word in text.strip().removeprefix("==").split("|")] if isinstance(text, str) else []
    offered = f"the verdict is one of: {', '.join(known)}" if known else "leave it out"
    if not known:
        raise Unreadable("the command gives no verdict", offered)
    strange = [word for word in wanted if word not in known]
    if strange or not wanted:
        named = repr(strange[0] if strange else text)[:60]
        raise Unreadable(f"{named} is not a verdict of this command", offered)
    if verdict is None:
        raise Unreadable("this answer has no verdict", "ask for something that may fail, such as hardware: or within:")
    status = HOLDS if verdict in wanted else CLOSE_WORD if verdict == UNDECIDED else BROKEN_WORD
    return LimitOutcome(VERDICT, str(text).strip(), verdict, "", None, None, status, 0.0)


def hold(
    limits: Mapping[str, object],
    quantities: Mapping[str, tuple[float, str]],
    intervals: Intervals,
    place: Mapping[str, str],
    verdict: str | None = None,
    verdicts: Sequence[str] = (),
) -> tuple[list[LimitOutcome], list[NapkinError]]:
    """Check every limit against an answer's quantities and its verdict. `place` names where each limit is written, for
    messages; `verdicts` are the words that the command's verdict may be."""
    outcomes, problems = [], []
    for path, text in limits.items():
        where = place.get(path, path)
        if path == VERDICT and path not in quantities:
            try:
                outcomes.append(judge_verdict(text, verdict, verdicts))
            except Unreadable as problem:
                problems.append(NapkinError(f"{where}: {problem.reason}", problem.hint))
            continue
        if path not in quantities:
            known = (*quantities, VERDICT) if verdicts else quantities
            given = f"{GIVEN_BY[path]} gives it" if path in GIVEN_BY else None
            last = path.rpartition("/")[2]
            same = [one for one in quantities if one == last or one.endswith(f"/{last}")][:3]  # step/mfu is mfu
            near = f"did you mean {' or '.join(same)}?" if same else did_you_mean(path, known)
            hint = given or near or f"it has {', '.join(list(quantities)[:12])}"
            problems.append(NapkinError(f"{where}: the answer has no such quantity", hint))
            continue
        value, unit = quantities[path]
        try:
            limit = read_limit(text, unit)
        except Unreadable as problem:
            problems.append(NapkinError(f"{where}: {problem.reason}", problem.hint or _HINT))
            continue
        outcomes.append(judge(path, limit, value, unit, intervals.get(path)))
    return outcomes, problems


def status_of_most(most: Mapping[str, float], answer: Mapping[str, tuple[float, str]], ends: Intervals) -> int:
    """Return the exit status for quantities with upper limits `most`; ends: intervals of those that are estimates."""
    outcomes = [
        judge(path, Limit(path, -math.inf, limit), *answer[path], ends.get(path)) for path, limit in most.items()
    ]
    return status_of(outcomes)


def status_of(outcomes: list[LimitOutcome]) -> int:
    """Return the exit status over several limits: broken wins over close."""
    words = {outcome.status for outcome in outcomes}
    return BROKEN if BROKEN_WORD in words else CLOSE if CLOSE_WORD in words else OK

"""Attribute a change to several differences independently of their order (Shapley values).

Two questions A and B differ in n inputs. Going from A to B one input at a time, the effect of a step depends on the
steps before it. The Shapley value is the mean over all orders: the parts add up to the total change, and no order is
preferred (Shapley 1953, A Value for n-Person Games). If some mixtures of A and B are not valid questions (a layout that
does not divide the machine), the mean is over the orders that avoid them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from napkin.record import record

Part = TypeVar("Part", bound=Hashable)
Values = Sequence[float]
Ask = Callable[[frozenset[Part]], "Values | None"]
"""Returns the answer's quantities with these inputs as in B and the others as in A, or None if that is not a valid
question."""

MOST_EXACT = 8
"""Number of differences up to which every order is evaluated: 2⁸ = 256 questions."""
SAMPLED = 128
"""Number of sampled orders for more differences; half of them are the reverse of the others, which cancels the
first-order error."""
ROUNDING = 1e-12
"""Share of a quantity below which its change is an artefact of floating point."""


@record
class Attribution(Generic[Part]):
    """`by[part]` is the contribution of a difference to each quantity; `exact`: every order was evaluated."""

    by: dict[Part, tuple[float, ...]]
    exact: bool


def attribute(parts: Sequence[Part], ask: Ask[Part]) -> Attribution[Part] | None:
    """Return the contributions that add up to ask(all) − ask(none), or None if no order of single steps gets
    there."""
    known: dict[frozenset[Part], Values | None] = {}

    def asked(done: frozenset[Part]) -> Values | None:
        if done not in known:
            known[done] = ask(done)
        return known[done]

    if len(parts) <= MOST_EXACT:
        return _over_all_orders(parts, asked)
    return _over_sampled_orders(parts, asked)


def _over_all_orders(parts: Sequence[Part], asked: Ask[Part]) -> Attribution[Part] | None:
    """Return the contributions over all orders: each step of the lattice of subsets, weighted by the share of orders
    through it."""
    subsets = [frozenset(p for i, p in enumerate(parts) if mask >> i & 1) for mask in range(1 << len(parts))]
    subsets.sort(key=len)
    possible = [s for s in subsets if asked(s) is not None]
    ways_to: dict[frozenset[Part], int] = {}
    for done in possible:
        ways_to[done] = sum(ways_to.get(done - {p}, 0) for p in done) if done else 1
    ways_on: dict[frozenset[Part], int] = {}
    whole = frozenset(parts)
    for done in reversed(possible):
        ways_on[done] = 1 if done == whole else sum(ways_on.get(done | {p}, 0) for p in whole - done)
    orders = ways_to.get(whole, 0)
    if not orders:
        return None
    steps = (
        (ways_to[done] * ways_on[done | {p}] / orders, done, p)
        for done in possible
        for p in parts
        if p not in done and done | {p} in ways_on
    )
    return Attribution(_summed(parts, steps, asked), exact=True)


def _over_sampled_orders(parts: Sequence[Part], asked: Ask[Part]) -> Attribution[Part] | None:
    """Return the mean over some orders, always the same ones."""
    dice = random.Random(len(parts))
    orders: list[list[Part]] = []
    for _ in range(SAMPLED // 2):
        order = list(parts)
        dice.shuffle(order)
        for one in (order, order[::-1]):
            if all(asked(frozenset(one[:n])) is not None for n in range(len(one) + 1)):
                orders.append(one)
    if not orders:
        return None
    steps = ((1 / len(orders), frozenset(order[:n]), p) for order in orders for n, p in enumerate(order))
    return Attribution(_summed(parts, steps, asked), exact=False)


def _summed(
    parts: Sequence[Part], steps: Iterator[tuple[float, frozenset[Part], Part]], asked: Ask[Part]
) -> dict[Part, tuple[float, ...]]:
    total: dict[Part, list[float]] = {}
    largest: list[float] = []
    for weight, done, part in steps:
        before, after = asked(done), asked(done | {part})
        assert before is not None
        assert after is not None
        sums = total.setdefault(part, [0.0] * len(before))
        largest = largest or [0.0] * len(before)
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            sums[i] += weight * (b - a)
            largest[i] = max(largest[i], abs(a), abs(b))
    # what is left of terms that cancel is rounding, not a contribution
    return {
        part: tuple(0.0 if abs(x) < ROUNDING * most else x for x, most in zip(total[part], largest, strict=True))
        for part in parts
    }


Decide = Callable[[float], "str | None"]
"""Returns the decision for one value of an input; None if that is not a valid question, which counts as no change."""

GRID = 2**0.5
"""Factor between the values that are tried outward from the current one."""


@record
class Flip:
    """The value of an input from which, moving away from the current one, a decision changes."""

    value: float
    word: str


def flip(decide: Decide, now: float, low: float, high: float, whole: bool = False) -> Flip | None:
    """Return the value nearest to `now` (as a factor) between `low` and `high`, all above 0, at which the answer of
    `decide` changes: outwards on a grid, both ways at once and no further than the nearest change, then by bisection,
    to the integer or to a millionth of the value."""
    here = decide(now)
    if here is None:
        return None
    reached = {low: now, high: now}  # end → the value up to which the decision has been the same
    found: dict[float, Flip] = {}

    def far(value: float) -> float:
        return max(value / now, now / value)

    while reached:
        end = min(reached, key=lambda end: far(reached[end]))
        inside = reached.pop(end)
        most = min((far(one.value) for one in found.values()), default=math.inf)
        if inside == end or far(inside) >= most:
            continue
        outside = _next(inside, now, end, whole)
        word = decide(outside)
        if word is None or word == here:
            reached[end] = outside
        else:
            found[end] = _bisected(decide, here, inside, outside, whole)
    return min((found[end] for end in (low, high) if end in found), key=lambda one: far(one.value), default=None)


def _next(inside: float, now: float, end: float, whole: bool) -> float:
    """Return the next value of the grid on the way from `now` to `end`."""
    if end > now:
        return min(max(int(inside * GRID), inside + 1) if whole else inside * GRID, end)
    return max(min(int(inside / GRID), inside - 1) if whole else inside / GRID, end)


def _bisected(decide: Decide, here: str, inside: float, outside: float, whole: bool) -> Flip:
    """Bisect between `inside`, with the decision `here`, and `outside`, with another."""
    while abs(outside - inside) > (1 if whole else 1e-6 * abs(inside)):
        middle = (inside + outside) // 2 if whole else (inside + outside) / 2
        word = decide(middle)
        if word is None or word == here:
            inside = middle
        else:
            outside = middle
    word = decide(outside)
    assert word is not None
    return Flip(outside, word)

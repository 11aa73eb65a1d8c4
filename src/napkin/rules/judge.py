"""Choose the best fix of a finding, and decide whether its gain is worth reporting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from napkin.rules.case import SURELY, Configuration, Options, Stated
from napkin.rules.rule import (
    EITHER,
    INFO,
    MEMORY,
    NEEDLESS,
    OWN,
    SEVERITIES,
    TIME,
    Ask,
    BrokenRule,
    Contradiction,
    Gain,
    Hit,
    Rule,
)

SLACK = 0.01
"""Share of the step that a change may add and still count as free."""


def contradictions(given: Stated, rules: Sequence[Contradiction]) -> list[BrokenRule]:
    """Return the contradictions of a configuration."""
    return [BrokenRule(rule, hit, _first(hit), hit.price or Gain()) for rule in rules for hit in rule.find(given)]


def _first(hit: Hit) -> Options:
    return hit.changes[0] if hit.changes else {}


def findings(case: Configuration, rules: Sequence[Rule], ask: Ask) -> list[BrokenRule]:
    """Return the findings of each rule, the worst first: errors, then by share of time and memory."""
    found = [one for rule in rules for hit in rule.find(case) for one in judged(case, rule, hit, ask)]
    return sorted(found, key=lambda one: rank(case, one))


def rank(case: Configuration, one: BrokenRule) -> tuple[int, float]:
    """Return the sort key of a finding: severity, then the larger of its shares of time and memory."""
    memory = one.price.memory or 0.0
    part = memory / case.capacity if case.capacity else 0.0
    return SEVERITIES.index(one.rule.severity), -max(one.price.time or 0.0, part)


def judged(case: Configuration, rule: Rule, hit: Hit, ask: Ask) -> Iterator[BrokenRule]:
    """Yield the finding with its best change, if that is worth reporting."""
    if rule.gains == OWN:
        change = rule.fix(case, ask) if rule.fix is not None else _first(hit)
        yield BrokenRule(rule, hit, change, hit.price or Gain())
        return
    best: BrokenRule | None = None
    for change in (stated(case, change) for change in hit.changes):
        after = ask.case(change)
        if after is None:
            continue
        price = price_of(case, after)
        worth = is_worth(case, after, rule, price)
        if worth and (best is None or _gain(case, rule, price) > _gain(case, rule, best.price)):
            best = BrokenRule(rule, hit, change, price)
        if hit.ordered:
            break
    if best is not None:
        yield best


def stated(case: Configuration, change: Options) -> Options:
    """Return a change without removals of options that are not given."""
    return {name: text for name, text in change.items() if text is not None or name in case.given}


def price_of(case: Configuration, after: Configuration) -> Gain:
    """Return the extra cost of a configuration over a changed one: share of the time per token, bytes per GPU, USD."""
    time = memory = None
    if case.token_seconds is not None and after.token_seconds is not None:
        time = 1 - after.token_seconds / case.token_seconds
    if case.used is not None and after.used is not None:
        memory = float(case.used - after.used)
    cost = case.cost * time if case.cost is not None and time is not None else None
    return Gain(time, memory, cost)


def together(case: Configuration, found: Sequence[BrokenRule], ask: Ask) -> tuple[Options, Configuration]:
    """Return the combined changes of warnings and errors, added one by one from the worst on, and the configuration
    with them. A change is kept if the step then fits better, or as well and is faster or smaller."""
    change: Options = {}
    best = case
    for one in found:
        if not one.change or one.rule.severity == INFO or not one.rule.mends_step:
            continue
        after = ask.case({**change, **one.change})
        if after is None or after.verdict < best.verdict:
            continue
        price = price_of(best, after)
        gains = (price.time or 0.0) > SLACK or ((price.memory or 0.0) > 0 and (price.time or 0.0) > -SLACK)
        if after.verdict > best.verdict or gains:
            change, best = {**change, **one.change}, after
    return change, best


def joined(case: Configuration, found: Sequence[BrokenRule], ask: Ask) -> BrokenRule | None:
    """Return the combined changes as one finding; None if there are fewer than two."""
    change, after = together(case, found, ask)
    if sum(bool(one.change) for one in found) < 2 or not change:
        return None
    worst = found[0]
    return BrokenRule(worst.rule, Hit("together", worst.hit.option), change, price_of(case, after))


def is_worth(case: Configuration, after: Configuration, rule: Rule, price: Gain) -> bool:
    """Return whether a change gains at least the rule's minimum without a loss: a step that fitted still fits, and a
    gain of memory costs no time."""
    worse = after.verdict < case.verdict
    grows = price.memory is not None and price.memory < 0
    if worse or (case.verdict < SURELY and grows):
        return False
    if rule.gains == NEEDLESS:
        return after.verdict == SURELY and -(price.memory or 0.0) < rule.least * (case.capacity or case.used or 1)
    faster = price.time is not None and price.time >= rule.least
    whole = case.capacity or case.used or 1
    smaller = price.memory is not None and price.memory >= rule.least * whole
    slower = price.time is not None and price.time < -SLACK
    if rule.gains == TIME:
        return faster
    if rule.gains == MEMORY:
        return smaller and not slower
    return faster or (smaller and not slower)


def _gain(case: Configuration, rule: Rule, price: Gain) -> float:
    """Return the gain of a change in the rule's measure; for needless features, the smaller the cost the larger the
    gain."""
    part = (price.memory or 0.0) / (case.capacity or case.used or 1)
    share = price.time or 0.0
    return {TIME: share, EITHER: share + part}.get(rule.gains, part)

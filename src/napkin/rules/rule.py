"""A rule: its condition, its change, and the minimum gain that is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from napkin.planning.verdicts import Fit
from napkin.record import record
from napkin.rules.case import Configuration, Options, Stated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)
"""Severities: a run is impossible; something is wasted; something is spent for a benefit (accuracy, safety) and worth
knowing."""
TIME, MEMORY, EITHER, NEEDLESS, OWN = "time", "memory", "either", "needless", "own"
"""The measure of a rule's gain: step time; memory per GPU; either of both without a loss of the other; a needless
feature (its price is the memory that removing it takes); or figures that the rule itself states."""


@record
class Gain:
    """What a change saves. time: share of the step (or of the run); memory: bytes per GPU; cost: USD of the run. None:
    unknown or nothing."""

    time: float | None = None
    memory: float | None = None
    cost: float | None = None


@record
class Hit:
    """A place in a configuration where a rule's condition holds.

    says     what was found, in one clause           option   the option that it is about
    changes  candidate fixes, the best of which is taken; empty: no option fixes it
    ordered  take the first change with which the step fits, because later ones are slower
    price    if the rule itself states it         edit     what to edit if no option fixes it
    where    file, line and key, if no option is stated there
    """

    says: str
    option: str
    changes: tuple[Options, ...] = ()
    price: Gain | None = None
    edit: str = ""
    where: str = ""
    ordered: bool = False


@record
class Law:
    """Fields of both kinds of rules.

    number   N101                                    name      a few words with dashes
    summary  the problem, in one line                 why       the explanation, with the basis of the price
    sources  citations of the explanation
    example  options of a command line that breaks the rule; "" if only a file can break it
    close    whether the finding is only a possible error (exit status 4)
    whole    the total that its price in time is a share of
    """

    number: str
    name: str
    summary: str
    why: str
    example: str
    _: KW_ONLY
    sources: tuple[str, ...] = ()
    severity: str = WARNING
    close: bool = False
    whole: str = "a step"

    @property
    def mends_step(self) -> bool:
        """Whether its change makes the step faster or smaller."""
        return False


@record
class Ask:
    """Evaluates the configuration with a change, entirely or only its memory; None if it is not valid."""

    case: Callable[[Options], Configuration | None]
    fit: Callable[[Options], Fit | None]


@record
class Rule(Law):
    """A rule about a configuration that can be run. gains: the measure of its gain; least: the smallest share of the
    step, or of a GPU's memory, that is reported (for needless features the largest); fix: searches for a change if a
    finding lists none."""

    find: Callable[[Configuration], Iterable[Hit]]
    gains: str = TIME
    least: float = 0.02
    fix: Callable[[Configuration, Ask], Options] | None = None

    @property
    def mends_step(self) -> bool:
        """Whether its change affects the step, and not the operation of the run or its data."""
        return self.gains != OWN or self.fix is not None


@record
class Contradiction(Law):
    """A rule about options that cannot be combined."""

    find: Callable[[Stated], Iterable[Hit]]


@record
class BrokenRule:
    """A broken rule, with the change that fixes it and its gain."""

    rule: Law
    hit: Hit
    change: Options
    price: Gain

"""A rule: what it looks for, what it would change, and from which price on it is worth a line."""

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
"""What stops a run, what wastes something, and what buys something with it (accuracy, safety) that is worth knowing."""
TIME, MEMORY, EITHER, NEEDLESS, OWN = "time", "memory", "either", "needless", "own"
"""What a rule's price is in: the step's time, each GPU's memory, whichever of both is gained while the other is kept,
or nothing: what is given up is not needed (its price is the memory that doing without it takes), or the rule states
figures of its own."""


@record
class Gain:
    """What a finding costs. time: share of the step (or of the run) that the change saves; memory: bytes of each GPU;
    cost: USD of the run. None: not known, or nothing."""

    time: float | None = None
    memory: float | None = None
    cost: float | None = None


@record
class Hit:
    """A place where a rule's condition holds.

    says     what was found, in one clause           option   the option that it is about
    changes  the changes that may fix it, the best of which is taken; empty: none that an option says
    ordered  the first of them with which the step fits is taken: those after it are slower
    price    where the rule states it                edit     what to edit if no option says it
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
    """What rules of both kinds state.

    number   N101                                    name      a few words with dashes
    summary  what is wrong, in one line              why       the law behind it, with what the price rests on
    sources  where the law is from
    example  a command line's options on which the rule is broken; "" if only a file can break it
    close    whether it is open if the finding is an error (exit status 4)
    whole    what its price in time is a share of
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
    """The configuration with a change: all of it, or its memory alone; None if it cannot be asked."""

    case: Callable[[Options], Configuration | None]
    fit: Callable[[Options], Fit | None]


@record
class Rule(Law):
    """A rule about a configuration that can be run. gains: what its price is in; least: the smallest share of the step,
    or of a GPU's memory, that is reported (of what is needless the largest); fix: searches the change where a finding
    does not list any."""

    find: Callable[[Configuration], Iterable[Hit]]
    gains: str = TIME
    least: float = 0.02
    fix: Callable[[Configuration, Ask], Options] | None = None

    @property
    def mends_step(self) -> bool:
        """Whether its change is one of the step: not of how the run is operated, or of what is trained on."""
        return self.gains != OWN or self.fix is not None


@record
class Contradiction(Law):
    """A rule about options that no run can have together."""

    find: Callable[[Stated], Iterable[Hit]]


@record
class BrokenRule:
    """A rule that is broken: with the change that fixes it, and what that is worth."""

    rule: Law
    hit: Hit
    change: Options
    price: Gain

"""The fewest GPUs that satisfy a condition: the memory of a step, the time of a run, a layout search, a served
model."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from napkin.elementwise import divisors
from napkin.errors import BROKEN, NapkinError
from napkin.record import record

LIMIT = 1 << 20
"""Largest number of GPUs that is tried."""
EIGHTHS = 8
"""Number of equal steps between two powers of two, if not every number is tried."""
TRIED = "powers of two up to a node, and whole nodes"
TRIED_IN_EIGHTHS = "powers of two, and eighths between them, in whole nodes"


@record
class Fewest:
    """The result of a search.

    gpus     the fewest that are enough; None if none are
    most     the largest number that was available
    asked    whether any number gave a valid question
    refused  the error of the first number that did not give a valid question, if any
    """

    gpus: int | None
    most: int
    asked: bool
    refused: NapkinError | None

    def or_refuse(self, claim: str, hint: str) -> int:
        """Return the number. If none gave a valid question, raise the common error; if none is enough, raise `claim`
        (status 1) with `hint` and the reason why some were not valid."""
        if self.gpus is not None:
            return self.gpus
        if self.refused is not None and not self.asked:
            raise self.refused
        why = f"{self.refused.message}; " if self.refused is not None else ""
        raise NapkinError(claim, f"{why}{hint}", status=BROKEN)


def machines(node: int, unit: int = 1, replicas: int | None = None, group: int = 1) -> list[int]:
    """Return the numbers of GPUs to try, ascending: powers of two up to a node, then full nodes, each a multiple of
    what the layout needs.

    node      GPUs of a node              unit   GPUs of one replica: the product of tp, pp and cp
    replicas  number that the data-parallel ranks must divide: the micro-batches of a step; None: any number of ranks
    group     number that must divide the ranks: expert parallelism and sharding groups
    """
    of_group = unit * group
    if replicas is not None and replicas % group == 0:
        numbers = [of_group * ranks for ranks in divisors(replicas // group)]
        usual = [n for n in numbers if n % node == 0 or node % n == 0]
        return [*usual, *(n for n in numbers if not usual or n > usual[-1])]
    inside = {math.lcm(1 << i, of_group) for i in range(node.bit_length()) if 1 << i < node}
    step = math.lcm(node, of_group)
    return [*sorted(n for n in inside if n < step), *range(step, max(LIMIT, step) + 1, step)]


def fewest(is_enough: Callable[[int], bool], counts: Sequence[int], parts: int | None = None) -> Fewest:
    """Return the fewest of these numbers that are enough, where more GPUs are enough too.

    The number is doubled until it is enough, then bisected between the last two; with `parts`, only the ends of that
    many equal steps are tried. A number for which is_enough raises NapkinError is skipped."""
    refused: list[NapkinError] = []
    asked = False

    def verdict(gpus: int) -> bool | None:
        nonlocal asked
        try:
            found = is_enough(gpus)
        except NapkinError as problem:
            refused.append(problem)
            return None
        asked = True
        return found

    at, before = 0, -1
    while at < len(counts):
        answer = verdict(counts[at])
        if answer:
            break
        before = before if answer is None else at
        at = bisect_left(counts, 2 * counts[at], at + 1)
    reason = refused[0] if refused else None
    if at >= len(counts):
        return Fewest(None, counts[-1], asked, reason)
    found, between = counts[at], list(counts[before + 1 : at])
    if parts is not None and len(between) >= parts:
        below = counts[before] if before >= 0 else 0
        ends = (below + (found - below) * i // parts for i in range(1, parts))
        between = sorted({counts[bisect_right(counts, end) - 1] for end in ends} - {below})
    while between:
        middle = len(between) // 2
        answer = verdict(between[middle])
        if answer is None:
            del between[middle]
        elif answer:
            found, between = between[middle], between[:middle]
        else:
            between = between[middle + 1 :]
    return Fewest(found, counts[-1], asked, refused[0] if refused else None)

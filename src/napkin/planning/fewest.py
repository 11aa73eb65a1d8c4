"""The fewest GPUs that are enough: powers of two up to a node, then whole nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

EIGHTHS = 8


def fewest(does: Callable[[int], bool], node: int, most: int, unit: int = 1, parts: int | None = None) -> int | None:
    """Return the fewest GPUs for which `does` holds; None where it holds for none up to `most`.

    The number is doubled until it is enough, then narrowed by whole nodes; where parts is given, to one of so many
    equal steps between the last two doublings only.

    node  GPUs of a node      unit  what the number is a multiple of: the product of degrees that are given
    """
    inside = [1 << i for i in range(node.bit_length()) if 1 << i < node]
    doubled = [node << i for i in range((most // node).bit_length())]
    counts = sorted({math.lcm(count, unit) for count in (*inside, *doubled)})
    at = next((at for at, count in enumerate(counts) if does(count)), None)
    if at is None:
        return None
    found, below, step = counts[at], counts[at - 1] if at else 0, math.lcm(node, unit)
    between: Sequence[int] = range(below + step, found, step) if below >= step else ()
    if parts is not None and between:
        steps = {below + (found - below) * i // parts // step * step for i in range(1, parts)}
        between = sorted(steps - {below})
    while between:
        middle = between[len(between) // 2]
        if does(middle):
            found, between = middle, [n for n in between if n < middle]
        else:
            between = [n for n in between if n > middle]
    return found

"""A size instead of a model: `7B`."""

from __future__ import annotations

import os

from napkin import units
from napkin.errors import NapkinError

LEAST = 10**6
"""A plain number below is a size without its letter: `7` for `7B`."""

_NUMBER = r"[+-]?[0-9][0-9.,_ ]*(e[+-]?[0-9]+)?([a-zµ%]{0,2}|thousand|million|billion|trillion)"


def size_of(model: str) -> int | None:
    """Return the parameters if MODEL is a size such as `7B`; None if it is a name, a path or a file.
    NapkinError (2): a number that states no size."""
    written = model.strip()
    if not written or written[0] not in "+-0123456789":
        return None
    import re  # slow to load: for what begins as a number only

    if not re.fullmatch(_NUMBER, written, re.IGNORECASE) or os.path.exists(model):
        return None
    try:
        size = units.positive_count(model)
    except units.Unreadable as problem:
        raise NapkinError(f"MODEL: {problem.reason}", problem.hint) from None
    if size < LEAST and model.strip()[-1].isdigit():
        raise NapkinError(f"MODEL: {model.strip()} is neither a model nor its size", "a size is written 7B")
    return size

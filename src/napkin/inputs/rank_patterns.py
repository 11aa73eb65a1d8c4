"""The patterns of module paths that napkin reads, of those that peft's rank_pattern may hold."""

from __future__ import annotations

import re

LONGEST_PATTERN, MOST_LOOPS = 400, 3
"""Characters of a pattern, and its repetitions: the time to match it grows with the length of a path to the power of
these."""
_PLAIN = re.compile(r"(?:[\w-]|\\?\.|\.[*+]|\\d\+?|\[[\w-]+\]\+?|\((?:\?:)?[\w|.-]+\))+")
_LOOP = re.compile(r"[*+]")


def is_plain(pattern: str) -> bool:
    """Return whether a pattern has only forms that match in little time."""
    few = len(pattern) <= LONGEST_PATTERN and len(_LOOP.findall(pattern)) <= MOST_LOOPS
    return few and bool(_PLAIN.fullmatch(pattern))

"""Tests and branches of a shell script, as far as values are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from napkin.inputs.launch.shell_values import opened
from napkin.units import plain


def asks_if_empty(texts: Sequence[str]) -> tuple[bool, str]:
    """Return whether a test holds for an empty text, and the argument or variable that is tested.

    The name is "" if the test is not one for emptiness.
    """
    sign, sides = True, list(texts)
    if len(texts) == 2 and texts[0] in ("-z", "-n"):
        sign, sides = texts[0] == "-z", [texts[1], ""]
    elif len(texts) == 3 and texts[1] in ("=", "==", "!="):
        sign, sides = texts[1] != "!=", [texts[0], texts[2]]
    elif len(texts) == 1:
        sign, sides = False, [texts[0], ""]
    unset = re.fullmatch(re.escape(opened("\0")).replace("\0", r"\$([0-9]+|[A-Za-z_]\w*)"), sides[0] if sides else "")
    return (sign, unset[1]) if unset and len(sides) == 2 and not sides[1] else (sign, "")


class Branch:
    """An unfinished if, case or loop.

    state     taken, not taken, or unknown (None)     done  a branch was already taken
    argument  a script argument or external variable that decides by being set (None) or unset (True)
    """

    def __init__(self, kind: str, state: bool | None, subject: str = "", argument: str = "") -> None:
        self.kind = kind
        self.state = state
        self.argument = argument
        self.done = bool(state)
        self.maybe = state is None
        self.subject = subject
        self.waits = kind == "case"
        self.patterns = ""


def compared(words: list[str]) -> bool | None:
    """Return the result of a test on known texts, or None if napkin does not know the test."""
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (not words[1]) is (words[0] == "-z")
    if len(words) != 3:
        return None
    left, sign, right = words
    if sign in ("=", "==", "!="):
        return fnmatchcase(left, right) is (sign != "!=")
    numbers = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
    a, b = plain(left), plain(right)
    if sign in numbers and a is not None and b is not None:
        return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[sign]
    return None

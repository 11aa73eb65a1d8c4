"""Tests of a shell script, as far as values are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from functools import reduce

from napkin.inputs.launch.shell.marks import marks, opened
from napkin.inputs.launch.shell.values import Variables
from napkin.record import record, replace
from napkin.units import plain

_BRACKETS = ("[", "[[", "]", "]]", "test")
AND, OR = ("&&", "-a"), ("||", "-o")
"""Words that join tests."""
_ASSIGNS = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:(\+\+|--)|([-+*/]?)=(?!=)\s*(.+))\s*", re.S)


@record
class Status:
    """Whether a command succeeds.

    holds     None if unknown
    argument  a script argument or external variable that decides by being set (None) or unset (True); "" if none
    unknown   what is unknown, and why it is: ("", "") if nothing     certain  no external variable could change it
    """

    holds: bool | None
    argument: str = ""
    unknown: tuple[str, str] = ("", "")
    certain: bool = True

    def inverted(self) -> Status:
        if self.argument:
            return replace(self, holds=None if self.holds else True)
        return replace(self, holds=None if self.holds is None else not self.holds)

    def joined(self, other: Status, both: bool) -> Status:
        """Return whether both hold, or one of them."""
        decided = not both  # one that settles it alone
        if decided in (self.holds, other.holds):
            holds: bool | None = decided
        else:
            holds = None if None in (self.holds, other.holds) else both
        unknown = self.unknown if self.unknown[0] else other.unknown
        return Status(holds, self.argument or other.argument, unknown, self.certain and other.certain)


SUCCESS = Status(True)


def is_test(words: Sequence[str]) -> bool:
    """Return whether a command is a test."""
    return words[0] in ("[", "[[", "test") or (words[0].startswith("((") and assignment(words[0][2:-2]) is None)


def tested(words: Sequence[str], variables: Variables) -> Status:
    """Return the result of a test. One for whether a script argument or external variable is empty is followed as if it
    were empty."""
    if words[0].startswith("(("):
        return _arithmetic(words[0][2:-2], variables)
    raw = [word for word in words if word not in _BRACKETS]
    return _joined(raw, OR, lambda part: _joined(part, AND, lambda one: _single(one, variables)))


def _joined(words: Sequence[str], joints: Collection[str], status: Callable[[Sequence[str]], Status]) -> Status:
    """Return the result of tests joined by these words, each of which has a status: all of them hold for AND, one of
    them for OR, which binds more loosely."""
    ends = [at for at, word in enumerate(words) if word in joints]
    starts = [0, *(at + 1 for at in ends)]
    found = [status(words[start:end]) for start, end in zip(starts, [*ends, len(words)], strict=True)]
    return reduce(lambda one, other: one.joined(other, both=joints is AND), found)


def _single(raw: Sequence[str], variables: Variables) -> Status:
    if raw and raw[0] == "!":
        return _single(raw[1:], variables).inverted()
    texts = [variables.text(word) for word in raw]
    empty, name = _asks_if_empty(texts)
    if name and name not in variables.texts:
        said = (f"${name}", "is assumed unset, so the script's defaults apply")
        return Status(True if empty else None, f"${name}" if name.isdigit() else name, said, certain=False)
    read = [marks(text) for text in texts]
    unknown = next((what for _, _, what in read if what), "")
    if unknown:
        return Status(None, "", (unknown, "decides a branch of the script but is unknown"))
    found = compared([text for text, _, _ in read])
    if found is None:
        return Status(None, "", (" ".join(raw)[:60], "is a condition that napkin does not follow"))
    return Status(found, certain=not any(names for _, names, _ in read))


def _asks_if_empty(texts: Sequence[str]) -> tuple[bool, str]:
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
        return _ordered(a, numbers[sign], b)
    return None


def _ordered(a: float, sign: str, b: float) -> bool:
    return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def _arithmetic(inner: str, variables: Variables) -> Status:
    """Return the result of `((inner))`: whether its number is not 0."""
    number, names, unknown = marks(variables.expand(f"$(({inner}))"))
    if unknown:
        return Status(None, "", (unknown, "decides a branch of the script but is unknown"))
    return Status(int(number) != 0, certain=not names)


def assignment(arithmetic: str) -> str | None:
    """Return `NAME=1`, `NAME+=1` or `NAME++` of arithmetic as a statement, `NAME=$((…))`; None for any other."""
    found = _ASSIGNS.fullmatch(arithmetic)
    if found is None:
        return None
    name, step, sign, value = found.groups()
    sign, value = (step[0], "1") if step else (sign, value)
    return f"{name}=$(({name} {sign} ({value})))" if sign else f"{name}=$(({value}))"

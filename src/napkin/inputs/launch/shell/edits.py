"""The ways in which `${NAME…}` edits a text: prefixes and suffixes removed, parts replaced, substrings, letter case."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from napkin.inputs.launch.shell.marks import SLASH

LONGEST = 1_000
"""Longest text that is edited, in characters."""
_SUBSTRING = re.compile(r":\s*(-?\d+)\s*(?::\s*(-?\d+)\s*)?")
_CASES: Mapping[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}


def edited(text: str, how: str) -> str | None:
    """Return a text edited as bash does for `${NAME<how>}`, or None for an edit that napkin does not know."""
    if len(text) > LONGEST:
        return None
    if how in _CASES:
        return _CASES[how](text)
    if found := _SUBSTRING.fullmatch(how):
        start, length = int(found[1]), found[2]
        part = text[start:]
        return part if length is None else part[: int(length)]
    if how[:1] in ("#", "%"):
        double = how[:2] in ("##", "%%")
        return _cut(text, how[2:] if double else how[1:], how[0] == "#", double)
    if how[:1] == "/":
        return _replaced(text, how)
    return None


def _cut(text: str, pattern: str, front: bool, longest: bool) -> str:
    """Return a text without the shortest or the longest part at one end that a pattern matches."""
    ends = range(len(text) + 1) if front is not longest else range(len(text), -1, -1)
    for at in ends:
        if fnmatchcase(text[:at] if front else text[at:], pattern):
            return text[at:] if front else text[:at]
    return text


def _replaced(text: str, how: str) -> str | None:
    """Return a text with a plain text replaced: once, everywhere (`//`), at its start (`/#`) or at its end (`/%`); None
    for a pattern."""
    place = how[1:2] if how[1:2] in ("/", "#", "%") else ""
    written = how[1 + len(place) :].replace("\\/", SLASH)
    old, _, new = (re.sub(r"\\(.)", r"\1", part) for part in written.partition("/"))
    old, new = old.replace(SLASH, "/"), new.replace(SLASH, "/")
    if not old or any(sign in old for sign in "*?["):
        return None
    if place == "#":
        return new + text.removeprefix(old) if text.startswith(old) else text
    if place == "%":
        return text.removesuffix(old) + new if text.endswith(old) else text
    return text.replace(old, new) if place else text.replace(old, new, 1)

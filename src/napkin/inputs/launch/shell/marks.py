"""Marks of where a shell script's values are from, inside the texts.

The origin of a value is marked with characters that no file contains: DEFAULTED name END before a value that an
environment variable would override, OPENED what END in place of an unknown value; BLANK in what, which is one word;
SLASH in place of an escaped slash, which does not end a pattern.
"""

from __future__ import annotations

import re

DEFAULTED, OPENED, END = "\ue000", "\ue001", "\ue002"
SLASH, BLANK = "\ue003", "\ue004"
_MARK = re.compile(f"[{DEFAULTED}{OPENED}]([^{END}]*){END}")


def clean(text: str) -> str:
    """Return a text without origin marks."""
    return text.translate({ord(one): None for one in (DEFAULTED, OPENED, END, SLASH, BLANK)})


def marks(text: str) -> tuple[str, tuple[str, ...], str]:
    """Return a text without marks, the variables that override its defaults, and its unknown part ("" if none)."""
    defaulted = tuple(dict.fromkeys(one[1:-1] for one in _each(text, DEFAULTED)))
    unknown = ", ".join(dict.fromkeys(one[1:-1] for one in _each(text, OPENED)))
    return _MARK.sub("", text), defaulted, unknown.replace(BLANK, " ")


def _each(text: str, sign: str) -> list[str]:
    return [found[0] for found in _MARK.finditer(text) if found[0][0] == sign]


def opened(what: str) -> str:
    """Return the mark of an unknown value."""
    return f"{OPENED}{BLANK.join(clean(what).split())[:60]}{END}"  # texts are split at blanks


def defaulted(name: str, text: str) -> str:
    """Return a text marked as a default that an argument or external variable `name` would override ("" for none)."""
    return f"{DEFAULTED}{name}{END}{text}" if name and name not in marks(text)[1] else text

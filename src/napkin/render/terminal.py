"""Properties of the output stream: width, color, and supported characters."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import TextIO

PIPED = 80
"""Width if the stream is not a terminal and COLUMNS is not set."""
PLAIN = str.maketrans(
    {"█": "#", "▌": "#", "▒": "%", "·": ".", "×": "x", "–": "-", "—": "-", "−": "-", "…": "...", "µ": "u"}
)
"""Replacement characters for an ASCII stream."""


def width_of(stream: TextIO) -> int:
    """Return the width of a terminal; for other streams COLUMNS, else 80."""
    if stream.isatty():
        try:
            columns = os.get_terminal_size(stream.fileno()).columns
        except OSError:
            columns = 0
        if columns > 0:
            return columns
    stated = os.environ.get("COLUMNS", "")
    return int(stated) if stated.isdecimal() and 0 < int(stated) < 10_000 else PIPED


def wants_color(stream: TextIO) -> bool:
    """Return whether an answer is colored: on a terminal, unless NO_COLOR or TERM=dumb says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def readable(text: str, stream: TextIO) -> str:
    """Return a text in characters that the stream supports."""
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.translate(PLAIN)
    return text

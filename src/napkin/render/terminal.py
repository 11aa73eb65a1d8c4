"""What the stream is that an answer goes to: how wide, in color or not, and which characters it takes."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import TextIO

PIPED = 80
"""Columns if the stream is not a terminal and COLUMNS does not say."""
PLAIN = str.maketrans(
    {"█": "#", "▌": "#", "▒": "%", "·": ".", "×": "x", "–": "-", "—": "-", "−": "-", "…": "...", "µ": "u"}
)
"""Characters for a stream that has ASCII only."""


def width_of(stream: TextIO) -> int:
    """Return the columns of a terminal; COLUMNS, else 80, if the stream is none."""
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
    """Return a text in characters that the stream has."""
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.translate(PLAIN)
    return text

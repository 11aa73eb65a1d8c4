"""A status line on the terminal for a run in progress."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from napkin.render.progress import CLEAR
from napkin.render.terminal import readable, width_of
from napkin.units import human

QUIET_FROM = 60.0
"""Seconds without a new line after which the silence is shown."""


class LiveLine:
    """A line on standard error that is overwritten; nothing without a terminal or with --quiet."""

    def __init__(self, quiet: bool) -> None:
        self._shows = not quiet and sys.stderr.isatty()
        self._parts: Sequence[str] = ("waiting for a line with figures",)
        self._written = ""

    def show(self, parts: Sequence[str], silence: float) -> None:
        """Show these parts; silence: seconds since the last line of the log."""
        self._parts = parts or self._parts
        more = [f"no line for {human(float(round(silence, -1)), 'second', 2)}"] if silence >= QUIET_FROM else []
        if self._shows:
            text = "   ".join((*self._parts, *more))[: width_of(sys.stderr) - 1]
            if text != self._written:
                sys.stderr.write(CLEAR + readable(text, sys.stderr))
                sys.stderr.flush()
                self._written = text

    def erase(self) -> None:
        """Erase the line before other output."""
        if self._written:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
            self._written = ""

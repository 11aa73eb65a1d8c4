"""A progress line on the terminal for answers that take longer than a second; nothing if stderr is not a terminal."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from threading import Event, Thread

CLEAR = "\r\033[K"
"""Escape code that returns to the first column and erases the line."""


class Progress:
    """Context manager for a long computation: writes what is being done, and for how long, to stderr once a second."""

    def __init__(self, what: str, every: float = 1.0) -> None:
        self.what, self.every = what, every
        self._told: tuple[Event, Thread] | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from threading import Event, Thread  # only where someone looks

            over = Event()
            self._told = over, Thread(target=self._tell, args=(over,), daemon=True)
            self._told[1].start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._told is not None:
            over, thread = self._told
            over.set()
            thread.join()

    def _tell(self, over: Event) -> None:
        """Update the line periodically until the end, then erase it."""
        rounds = 0
        while not over.wait(self.every):
            rounds += 1
            sys.stderr.write(f"{CLEAR}{self.what}: {rounds * self.every:.0f} s")
            sys.stderr.flush()
        if rounds:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

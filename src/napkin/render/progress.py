"""What a person sees on the terminal while an answer takes longer than a second; nothing where stderr is a file."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from threading import Timer

CLEAR = "\r\033[K"
"""Back to the first column, and the line erased."""


class Progress:
    """A block that takes long: what is being done, and for how long, on stderr once a second."""

    def __init__(self, what: str, every: float = 1.0) -> None:
        self.what, self.every = what, every
        self._seconds = 0
        self._timer: Timer | None = None
        self._over = False

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._wait()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._seconds:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def _wait(self) -> None:
        from threading import Timer  # only where someone looks

        self._timer = Timer(self.every, self._tell)
        self._timer.daemon = True
        self._timer.start()

    def _tell(self) -> None:
        self._seconds += 1
        if not self._over:
            sys.stderr.write(f"{CLEAR}{self.what}: {self._seconds * self.every:.0f} s")
            sys.stderr.flush()
            self._wait()

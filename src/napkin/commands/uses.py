"""What of the given options an answer depends on, and what it says of them."""

from __future__ import annotations

from collections.abc import Iterable

Reason = tuple[str, str]
"""Why an option has no effect, and a hint on what would give it one."""


class Uses:
    """What was read in answering one question.

    repeats  options that give a figure the value that it has
    minor    options that are noted, and not refused, if they change nothing
    notes    remarks for --verbose and JSON        assumed  words for the line `assumed:`
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.assumed: list[str] = []
        self.repeats: set[str] = set()
        self.minor: set[str] = set()
        self._seen: set[str] = set()
        self._matter: set[str] = set()
        self._idle: set[str] = set()
        self._guessed: set[str] = set()
        self._reasons: dict[str, Reason] = {}
        self._defaults: dict[str, str | bool] = {}

    def adopt(self, chosen: Uses) -> None:
        """Mark as read here the options that were read in answering the same question with some options changed."""
        self._seen |= chosen._seen
        self._matter |= chosen._matter
        self._idle |= chosen._idle
        self._guessed |= chosen._guessed
        self._reasons = {**self._reasons, **chosen._reasons}
        self._defaults = {**chosen._defaults, **self._defaults}
        self.minor |= chosen.minor
        self.repeats |= chosen.repeats
        self.assumed += [words for words in chosen.assumed if words not in self.assumed]

    def guesses(self, name: str) -> None:
        """Record that an option's default is an assumption: to state it says more than to leave it out."""
        self._guessed.add(name)

    def depends(self, names: Iterable[str], holds: bool, why: str = "", hint: str = "leave it out") -> None:
        """Record whether the answer depends on options. If not, those that were given are rejected with `why`, unless
        another pass (for another shape that is tried) depended on them."""
        if holds:
            self._seen.update(names)
            self._matter.update(names)
        else:
            self._idle.update(names)
            self.because(names, why, hint)

    def because(self, names: Iterable[str], why: str, hint: str = "leave it out") -> None:
        """Record why options have no effect, for those that were given and are never read."""
        for name in names:
            self._reasons.setdefault(name, (why, hint))

    def note(self, text: str) -> None:
        """Add a remark for --verbose and for the JSON's notes."""
        if text not in self.notes:
            self.notes.append(text)

    def assume(self, text: str) -> None:
        """Add an assumption, in a few words, to the line `assumed:`."""
        if text not in self.assumed:
            self.assumed.append(text)

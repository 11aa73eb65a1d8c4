"""The exception for every user-visible error: a message, a hint and an exit status. Only the CLI prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

OK, BROKEN, USAGE, REFUSED, CLOSE, ABSENT = 0, 1, 2, 3, 4, 5
"""Exit statuses: answered · a limit is broken or it does not fit · bad usage or input · no truthful answer · too close
to call · what must be measured is not here."""
WRITE_FAILED = 74
"""The answer, its plot or its report could not be written."""
IMPOSSIBLE = "impossible"
"""The verdict of an answer that no machine can give, with status BROKEN."""
DOES_NOT_FIT = "does not fit"
"""The verdict on memory that is too large."""
UNDECIDED = "too close to call"
"""The verdict with status CLOSE: whether a limit holds is open."""
HELD = {OK: "holds", BROKEN: "broken", CLOSE: UNDECIDED}
"""Exit status → the verdict on a deadline or a budget."""


PRINTED = 10
"""Problems that are printed; of more, only the number."""


def escaped(text: str, kept: Callable[[str], bool] = str.isprintable) -> str:
    """Return text with control characters replaced by Python escapes, except for those in `kept`."""
    if kept is str.isprintable and text.isprintable():
        return text
    return "".join(c if kept(c) else c.encode("unicode_escape").decode("ascii") for c in text)


class NapkinError(Exception):
    """A problem that the user can act on.

    `message` is one line: where (file:line, field or option) and what; `hint` is one line: what to do.
    """

    status = USAGE

    def __init__(self, message: str, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if status is not None:
            self.status = status

    @property
    def errors(self) -> tuple[NapkinError, ...]:
        """Each problem found, with its own hint and status."""
        return (self,)

    def __str__(self) -> str:
        return "\n".join(f"{one.message}\nhint: {one.hint}" if one.hint else one.message for one in self.errors)

    def at(self, where: str, file: str = "") -> NapkinError:
        """Return the same problem with its location in front of the message, unless that begins with the `file`."""
        if file and self.message.startswith(f"{file}:"):
            return self
        return type(self)(f"{where}: {self.message}", self.hint, self.status)


class Refused(NapkinError):
    """napkin does not know something that could change the answer (exit status 3)."""

    status = REFUSED


class Problems(NapkinError):
    """Several problems at once; the highest status wins, and at most ten are printed."""

    def __init__(self, problems: Sequence[NapkinError]) -> None:
        super().__init__("; ".join(p.message for p in problems), None, max(p.status for p in problems))
        self.problems = tuple(problems)

    @property
    def errors(self) -> tuple[NapkinError, ...]:
        return tuple(one for problem in self.problems for one in problem.errors)

    def at(self, where: str, file: str = "") -> NapkinError:
        return Problems([problem.at(where, file) for problem in self.problems])


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names closest to `name`, best first; none for a name under two letters."""
    import difflib  # loaded only if something is wrong already

    wanted = name.strip().lower()
    if len(wanted) < 2:
        return []
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(wanted, by_lower, n=count, cutoff=0.6)
    close += [k for k in by_lower if k not in close and (wanted in k or (len(k) > 2 and k in wanted))]
    close.sort(key=lambda k: not k.startswith(wanted))  # what begins with it, then by likeness
    return [by_lower[k] for k in close[:count]]


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known names, or None if nothing is near."""
    close = nearest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else None

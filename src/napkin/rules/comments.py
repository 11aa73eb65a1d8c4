"""Rules that comments in a file disable: `# napkin: ignore N101`, at the end of a line for that line, on a separate
line for the file."""

from __future__ import annotations

import re

from napkin.rules.registry import prefixes
from napkin.rules.rule import Law

_COMMENT = re.compile(r"(?P<before>.*?)(?:#|//)\s*napkin:\s*ignore\b[:\s]*(?P<rules>[A-Za-z0-9,\s-]*)$")


class Ignores:
    """The rules that the comments of one file disable. lines: line → prefixes of rule numbers; everywhere: those for
    the file."""

    def __init__(self, text: str, name: str) -> None:
        self.lines: dict[int, tuple[str, ...]] = {}
        self.everywhere: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), 1):
            found = _COMMENT.match(line) if "napkin" in line else None
            if found is None:
                continue
            words = ",".join(found["rules"].replace(",", " ").split()) or "all"
            rules = prefixes(words, f"{name}:{number}: napkin: ignore")
            if found["before"].strip():
                self.lines[number] = rules
            else:
                self.everywhere += rules

    def covers(self, rule: Law, line: int | None) -> bool:
        """Return whether the file ignores a rule at a line."""
        here = self.lines.get(line, ()) if line is not None else ()
        return any(rule.number.startswith(one) for one in (*self.everywhere, *here))

"""Findings of `lint` in one configuration, as rows of JSON and for CI reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.commands.lint.files import ReadTarget
from napkin.commands.lint.question import pinned
from napkin.errors import BROKEN, CLOSE, OK
from napkin.inputs.limits import BROKEN_WORD, HOLDS
from napkin.options.command_line import Text, option_piece, pieces_of, quoted
from napkin.record import record, replace
from napkin.render.answer import Row
from napkin.render.figures import share, size
from napkin.render.findings import Finding as Mark
from napkin.rules.case import Configuration, Options, Stated
from napkin.rules.rule import ERROR, BrokenRule


@record
class Linted:
    """A configuration and its findings. stated: None if its files contradict each other; case: None if it cannot be
    run; typed: the options of the command line; together: all helpful changes combined, as one finding."""

    read: ReadTarget
    stated: Stated | None
    findings: tuple[BrokenRule, ...]
    case: Configuration | None
    typed: Mapping[str, Text]
    seconds: float = 0.0
    together: BrokenRule | None = None

    @property
    def status(self) -> int:
        """Exit status: 1 for an error, 4 if an error is possible."""
        if any(one.rule.severity == ERROR for one in self.findings):
            return BROKEN
        return CLOSE if any(one.rule.close for one in self.findings) else OK

    @property
    def notes(self) -> list[str]:
        """What was not checked, and why."""
        found = list(self.read.notes)
        if self.case is None:
            found.append("only contradictions are reported: there is no step to price")
        elif self.case.untimed:
            found.append(f"nothing is priced in time: {self.case.untimed}")
        if self.case is not None and self.case.fit is None:
            found.append("nothing is priced in memory: the memory model does not know this architecture")
        return found

    @property
    def marks(self) -> list[Mark]:
        """Test cases for CI reports: errors fail, other findings pass with their text; one case if nothing was
        found."""
        found = [self.mark(one) for one in self.findings]
        kept = [replace(one, status=BROKEN_WORD if one.status == ERROR else HOLDS) for one in found]
        return kept or [Mark(f"no findings{self._phase}", HOLDS, "no rule is broken", self.read.target.name)]

    @property
    def _phase(self) -> str:
        """Suffix that distinguishes the phases of one file."""
        return f" ({self.read.phase})" if self.read.phase else ""

    def command(self, change: Options) -> str:
        """Return the command line that lints the configuration with a change."""
        target = self.read.target
        model = str(change.get("model") or target.model or self.typed.get("model") or "")
        typed = {name: text for name, text in self.typed.items() if name != "model"}
        texts = {**typed, "configs": [model] if model else list(target.files[:1])}
        change = {name: text for name, text in change.items() if name != "model"}
        full = change if self.case is None or "zero" not in change else pinned(self.case, change)
        first, *pieces = pieces_of("lint", {name: text for name, text in texts.items() if text}, full)
        others = target.files if model else target.files[1:]
        return " ".join([first, *(f"--from {quoted(path)}" for path in others), *pieces])

    def _line(self, change: Options) -> str | None:
        """Return the command line for JSON; none if nothing changes, or one phase of several does: in the file."""
        return self.command(change) if change and not self.read.phase else None

    def row(self, finding: BrokenRule) -> Row:
        """Return a finding for JSON."""
        place, price = self.read.place(finding), finding.price
        return {
            "rule": finding.rule.number,
            "name": finding.rule.name,
            "severity": finding.rule.severity,
            "message": finding.hit.says,
            "file": place.file or None,
            "line": place.line,
            "phase": self.read.phase or None,
            "option": finding.hit.option,
            "key": place.key or None,
            "time": price.time,
            "memory": price.memory,
            "cost": price.cost,
            "change": change_of(finding) or None,
            "command": self._line(finding.change),
        }

    @property
    def extra(self) -> Row | None:
        """The effect of all helpful changes combined, for JSON."""
        one = self.together
        if one is None:
            return None
        price = {"time": one.price.time, "memory": one.price.memory, "cost": one.price.cost}
        return {
            "file": self.read.target.name or None,
            "phase": self.read.phase or None,
            **price,
            "change": change_of(one),
            "command": self._line(one.change),
        }

    def mark(self, finding: BrokenRule) -> Mark:
        """Return a finding for CI reports."""
        place = self.read.place(finding)
        said = "; ".join(part for part in (finding.hit.says, *prices_of(finding), change_of(finding)) if part)
        name = f"{finding.rule.number} {finding.rule.name}{self._phase}"
        return Mark(name, finding.rule.severity, said, place.file, place.line)


def change_of(finding: BrokenRule) -> str:
    """Return the fix of a finding: options to type, or an edit."""
    if finding.hit.edit:
        return finding.hit.edit
    pieces = [option_piece(name, text) for name, text in finding.change.items() if text is not None]
    left = [f"without --{name}" for name, text in finding.change.items() if text is None]
    return " ".join([*pieces, *left])


def prices_of(finding: BrokenRule) -> list[str]:
    """Return the cost of a finding in words, that of the rule's resource first: `12%` of a step, `8.1 GiB` of a GPU,
    `$1,200`; and the cost of the fix."""
    price, found = finding.price, []
    if price.time is not None and price.time >= LEAST_SHARE:
        found.append(share(price.time))
    if price.memory is not None and price.memory >= 2**26:
        found.append(size(price.memory))
    if price.cost is not None and price.cost >= 1:
        found.append(f"${price.cost:,.0f}")
    if price.memory is not None and price.memory <= -(2**26):
        found.append(f"takes {size(-price.memory)}")
    return found


LEAST_SHARE = 0.005
"""Share of a step below which a time is not shown."""


def counts(findings: Sequence[BrokenRule]) -> dict[str, int]:
    """Return the number of findings by severity, the worst first."""
    words = [one.rule.severity for one in findings]
    return {word: words.count(word) for word in ("error", "warning", "info") if word in words}

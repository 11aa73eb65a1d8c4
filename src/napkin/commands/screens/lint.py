"""Screen of `lint`: a finding and its cost on one line, the fix below; and the list of rules."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.commands.lint.report import Linted, change_of, counts, prices_of
from napkin.commands.screens.setup import of_setup
from napkin.options.command_line import Texts
from napkin.render.answer import Answer
from napkin.render.screen import Column, Next, Screen, Table
from napkin.rules.registry import GROUPS
from napkin.rules.rule import Law

MOST = 7
"""Number of findings of one configuration on a screen of 24 lines."""
COLUMNS = (Column(), Column(right=True), Column(remark=True, folds=True))


def screen(found: Sequence[Linted], problems: int, whys: bool) -> Screen:
    """Return the screen of all configurations. problems: files that could not be read; whys: include the explanation of
    each rule."""
    rules = {one.rule.number: one.rule.why for each in found for one in each.findings} if whys else {}
    told = [f"{number}: {why}" for number, why in rules.items()]
    if len(found) == 1:
        return _of_one(found[0], told)
    rows: list[tuple[str, str, str]] = []
    for one in found:
        rows.append((one.read.name, "", ""))
        rows += _rows(one, len(one.findings))
    every = [finding for one in found for finding in one.findings]
    said = [f"{len(found)} configurations"] + ([f"{problems} not read"] if problems else [])
    headline = _headline(counts(every)) if found else ("NOT READ",)
    return Screen(said, headline, _tone(counts(every)), Table(COLUMNS, rows), told, listing=True)


def _of_one(one: Linted, told: Sequence[str]) -> Screen:
    """Return the screen of one configuration. told: explanations of its rules."""
    shown = one.findings[:MOST]
    more = len(one.findings) - len(shown)
    remarks = [f"{more} more; --json lists them"] if more else []
    number = counts(one.findings)
    worth = prices_of(one.together) if one.together is not None else []
    return Screen(
        _question(one),
        [*_headline(number), *([f"together: {', '.join(worth)}"] if worth else [])],
        _tone(number),
        Table(COLUMNS, _rows(one, MOST)),
        [*remarks, *told],
        next=_next(one),
    )


def _question(one: Linted) -> Sequence[str]:
    """Return the configuration in clauses, its file first."""
    file = [f"{one.read.name}:"] if one.read.target.files else []
    if one.case is None:
        return [*file, one.stated.model.name] if one.stated is not None else [one.read.name]
    hardware = one.case.stated.hardware
    return [*file, *of_setup(one.case.model, one.case.setup, hardware.name if hardware is not None else "")]


def _headline(number: dict[str, int]) -> Sequence[str]:
    """Return the number of findings: `1 error   2 warnings`."""
    if not number:
        return ("NO FINDINGS",)
    return [f"{count} {word}{'s' * (count > 1)}" for word, count in number.items()]


def _tone(number: dict[str, int]) -> str:
    """Return the word that colors the headline."""
    return "does not fit" if "error" in number else "too close to call" if number else "fits"


def _rows(one: Linted, most: int) -> list[tuple[str, str, str]]:
    """Return two rows for each finding: its cost and text; its fix, the side effects, and the location."""
    rows = []
    for finding in one.findings[:most]:
        place = one.read.place(finding)
        first, *others = prices_of(finding) or [""]
        rows.append((finding.rule.number, first, finding.hit.says))
        said = [change_of(finding), *others, *([f"{place.file}:{place.line}"] if place.line else [])]
        rows.append(("", "", "; ".join(part for part in said if part)))
    return [row for row in rows if any(row)]


def _next(one: Linted) -> Next | str | None:
    """Return the changes that help together, or the first finding's, as a command line."""
    if one.together is not None:
        return one.command(one.together.change)
    change: Texts = next((finding.change for finding in one.findings if finding.change), {})
    return one.command(change) if change else None


def of_rules(rules: Sequence[Law]) -> Answer:
    """Return the list of all rules."""
    answer = Answer(
        "lint",
        rows=[
            {"rule": one.number, "name": one.name, "severity": one.severity, "summary": one.summary, "why": one.why}
            for one in rules
        ],
    )
    columns = (Column("rule"), Column("finds"), Column("severity", drop=1))
    rows = [(one.number, one.summary, one.severity) for one in rules]
    groups = ", ".join(f"{begins} {says.lower()}" for begins, says in GROUPS.items())
    answer.screen = Screen(
        (f"{len(rules)} rules: {groups}",),
        table=Table(columns, rows),
        next="napkin lint --explain N101",
        listing=True,
    )
    return answer


def of_rule(rules: Sequence[Law]) -> Answer:
    """Return the explanation of rules: the law, its sources, and an example that breaks it."""
    answer = of_rules(rules)
    one = rules[0]
    said = [(f"{rule.number} {rule.name}: {rule.summary}.", rule.why, *rule.sources) for rule in rules]
    remarks = [text for texts in said for text in texts][1:]
    following = f"napkin lint {one.example}" if one.example else None
    answer.screen = Screen((f"{one.number} {one.name}",), (one.summary,), remarks=remarks, next=following)
    return answer

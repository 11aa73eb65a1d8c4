"""CI reports of `check` and `lint`: JUnit XML, and GitHub workflow commands, which GitHub shows next to a file's
line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from napkin.errors import NapkinError
from napkin.errors import escaped as keep_legal
from napkin.inputs.limits import BROKEN_WORD, CLOSE_WORD, HOLDS
from napkin.record import record, replace
from napkin.units import plain

PROBLEM = "problem"
LEVELS = {
    BROKEN_WORD: "error",
    CLOSE_WORD: "warning",
    PROBLEM: "error",
    "error": "error",
    "warning": "warning",
    "info": "notice",
}
"""Status of a finding → GitHub level; limits that hold are not shown."""


@record
class Finding:
    """One limit, or an error that prevented a check.

    name     what was checked: `train-time: time <= 150d`; one name once in a file, the same in every run
    status   holds, broken, close or problem      message  the result, in readable units
    file     as it was named; "" for none         line     from 1, or None
    """

    name: str
    status: str
    message: str
    file: str = ""
    line: int | None = None


def of_problem(problem: NapkinError, name: str, file: str) -> Finding:
    """Return an error that prevented the check of a file.

    name: the file's, as the message begins; file: as the finding names it
    """
    line, message = _without_place(problem.message, name)
    said = f"{message} ({problem.hint})" if problem.hint else message
    return Finding("cannot be checked", PROBLEM, said, file, line)


def _without_place(message: str, file: str) -> tuple[int | None, str]:
    """Return the line number in a message that begins with `file:line: ` (None without one), and the rest of the
    message."""
    rest = message.removeprefix(file)
    if rest == message:
        return None, message
    line, colon, after = rest[1:].partition(": ")
    number = plain(line)
    if rest[:1] == ":" and colon and number is not None:
        return number, after
    return None, rest.removeprefix(": ")


def distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with a number appended to names that repeat within a file."""
    found: list[Finding] = []
    taken: set[tuple[str, str]] = set()
    for one in findings:
        name, count = one.name, 1
        while (one.file, name) in taken:
            count += 1
            name = f"{one.name} ({count})"
        taken.add((one.file, name))
        found.append(replace(one, name=name))
    return found


def to_junit(findings: Sequence[Finding], seconds: Mapping[str, float], program: str = "napkin check") -> str:
    """Return JUnit XML as Jenkins, GitLab and GitHub's reporters read it: a suite for each file, a case for each limit.
    seconds: time for each file.

    The elements and attributes are those of Jenkins' junit-10.xsd, with `file` and `line` on a case as pytest's xunit1
    writes them and GitLab reads them. A limit that is too close to call counts as a failure, because the run fails on
    it."""
    files = list(dict.fromkeys(one.file for one in findings))
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(_tag("testsuites", {"name": program, **_counts(findings), "time": _time(seconds.values())}))
    for file in files:
        cases = distinct([one for one in findings if one.file == file])
        taken = seconds.get(file, 0.0)
        name = file or program
        head = {"name": name, **_counts(cases), "skipped": 0, "time": _time([taken])}
        lines.append("  " + _tag("testsuite", {**head, "file": file} if file else head))
        for one in cases:
            lines += _case(one, name, taken / len(cases))
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _case(one: Finding, suite: str, seconds: float) -> list[str]:
    """Return the lines of one case."""
    where: dict[str, object] = {"file": one.file} if one.file else {}
    if one.line is not None:
        where["line"] = one.line
    head = _tag("testcase", {"classname": suite, "name": one.name, **where, "time": _time([seconds])})
    if one.status == HOLDS:
        return [f"    {head}", f"      <system-out>{_text(one.message)}</system-out>", "    </testcase>"]
    kind = "error" if one.status == PROBLEM else "failure"
    place = ":".join(str(part) for part in (one.file, one.line) if part)
    inner = _tag(kind, {"message": one.message, "type": one.status})
    body = _text(f"{place}: {one.name}: {one.message}" if place else one.message)
    return [f"    {head}", f"      {inner}{body}</{kind}>", "    </testcase>"]


def _counts(findings: Sequence[Finding]) -> dict[str, object]:
    wrong = [one.status for one in findings if one.status != HOLDS]
    errors = wrong.count(PROBLEM)
    return {"tests": len(findings), "failures": len(wrong) - errors, "errors": errors}


def _time(seconds: Iterable[float]) -> str:
    return f"{sum(seconds):.3f}"


def _tag(name: str, attributes: Mapping[str, object]) -> str:
    from xml.sax.saxutils import quoteattr

    written = " ".join(f"{key}={quoteattr(_legal(str(value)))}" for key, value in attributes.items())
    return f"<{name} {written}>"


def _text(text: str) -> str:
    from xml.sax.saxutils import escape

    return escape(_legal(text))


def _legal(text: str) -> str:
    """Return text with characters that XML 1.0 cannot contain escaped."""
    return keep_legal(text, lambda character: _is_legal(ord(character)))


def _is_legal(code: int) -> bool:
    return code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def to_annotations(findings: Sequence[Finding], workspace: str = "") -> list[str]:
    """Return a workflow command of GitHub for each finding that does not hold. workspace: the root of the checkout,
    to which file names are made relative, for a step that runs in a folder below it."""
    lines = []
    for one in distinct(findings):
        level = LEVELS.get(one.status)
        if level is None:
            continue
        properties = {"title": one.name}
        if one.line is not None:
            properties = {"line": str(one.line), **properties}
        if one.file:
            properties = {"file": _below(one.file, workspace), **properties}
        written = ",".join(f"{key}={escaped(text, property=True)}" for key, text in properties.items())
        lines.append(f"::{level} {written}::{escaped(one.message)}")
    return lines


def escaped(text: str, property: bool = False) -> str:
    """Return text as a workflow command carries it: percent and line ends; in a property also colon and comma
    (actions/toolkit, packages/core/src/command.ts)."""
    pairs = [("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), *([(":", "%3A"), (",", "%2C")] if property else [])]
    for character, code in pairs:
        text = text.replace(character, code)
    return text


def _below(file: str, workspace: str) -> str:
    """Return a file's path relative to the workspace if it is below it, else unchanged."""
    if not workspace:
        return file
    full, root = os.path.abspath(file), os.path.abspath(workspace)
    return os.path.relpath(full, root).replace(os.sep, "/") if full.startswith(root.rstrip(os.sep) + os.sep) else file

"""`napkin check FILE…`: limits on any path of any answer, for CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from napkin.commands import runfile
from napkin.commands.command import Command, ask, find
from napkin.commands.inputs import Inputs
from napkin.errors import ABSENT, BROKEN, CLOSE, OK, REFUSED, USAGE, NapkinError, Problems
from napkin.inputs import limits as limits_room
from napkin.inputs.limits import BROKEN_WORD, CLOSE_WORD, HOLDS, LimitOutcome
from napkin.inputs.load import Document, printable
from napkin.render.answer import Answer
from napkin.render.figures import between, compact
from napkin.render.screen import Column, Next, Screen, Table

_MOST = 1000
SAID = {HOLDS: "holds", BROKEN_WORD: "broken", CLOSE_WORD: "too close"}
"""Status of a limit → what a person reads."""


def run(inputs: Inputs) -> Answer:
    """Check the limits of run files; status 1 where one is broken."""
    files = inputs.texts("files")
    if not files:
        raise NapkinError("FILE is missing: which run files?", "napkin check configs/runs/lecture-time.yaml")
    checks: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    problems: list[NapkinError] = []
    asked: dict[str, str] = {}
    status = OK
    for path in files:
        try:
            document = runfile.read(path)
            mappings = _mappings(document)
        except NapkinError as problem:
            problems.append(problem)
            continue
        if len(mappings) == 1 and not mappings[0][1]:
            asked[document.name] = str(document.data.get("command"))
        for data, prefix in mappings:
            try:
                status = _worst(status, _one(document, data, prefix, checks, rows, problems))
            except Problems as several:
                problems += several.problems
            except NapkinError as problem:
                problems.append(problem)
    if inputs.has("junit"):
        _write_junit(inputs.text("junit"), checks, problems)
    if problems and not checks:
        raise problems[0] if len(problems) == 1 else Problems(problems)
    answer = Answer("check", rows=checks, rows_name="checks", problems=problems)
    answer.status = _worst(status, *(p.status for p in problems))
    counts = [f"{sum(c['status'] == word for c in checks)} {word}" for word in ("holds", "broken", "close")]
    answer.verdict = ", ".join(counts)
    answer.screen = _screen(files, [c["status"] for c in checks], rows, _next(checks, asked))
    return answer


COLUMNS = (Column("status"), Column("quantity"), Column("value", right=True), Column("limit"))


def _screen(files: Sequence[str], found: Sequence[str], rows: Sequence[tuple[str, ...]], following: Next) -> Screen:
    """Return the screen: how many limits hold, and a line for each."""
    counts = {word: found.count(word) for word in (BROKEN_WORD, CLOSE_WORD, HOLDS) if word in found}
    worst = next(iter(counts))
    said = [f"{SAID[word]}: {count}" for word, count in counts.items()] if len(counts) > 1 else []
    file = (Column("file", drop=1),) if len(files) > 1 else ()
    cells = [(*row[:4], *row[4 : 4 + len(file)], row[5]) for row in rows]
    table = Table((*COLUMNS, *file, Column(remark=True)), cells)
    asked = (f"{len(found)} limit{'s' * (len(found) != 1)} of {', '.join(files)}",)
    headline = (SAID[worst].upper(), *(said or [f"{len(found)} of {len(found)}"]))
    return Screen(asked, headline, worst, table, next=following)


def _next(checks: Sequence[Mapping[str, Any]], asked: Mapping[str, str]) -> Next:
    """Return what to ask next: what would make the first limit hold that does not; asked: file → its command."""
    for one in checks:
        if one["status"] != HOLDS and one["file"] in asked:
            limit = f"{one['path']} {one['limit']}"
            return Next({"run": str(one["file"]), "limit": limit}, f"sensitivity {asked[one['file']]}", keep=())
    return Next({"markdown": True})


def _mappings(document: Document) -> list[tuple[dict[str, Any], tuple[object, ...]]]:
    """Return the checks of a run file: the mapping itself, or each of its `checks:`."""
    data = document.data
    several = data.get("checks")
    if several is None:
        return [(data, ())]
    if not isinstance(several, list) or not several or not all(isinstance(one, dict) for one in several):
        raise NapkinError(f"{document.place('checks')}: is not a list of mappings", "each has command: and limits:")
    if len(several) > _MOST:
        raise NapkinError(f"{document.place('checks')}: has more than {_MOST} entries")
    others = [key for key in data if key not in ("checks", "name")]
    if others:
        raise NapkinError(
            f"{document.place(others[0])}: does not belong next to checks:",
            "each check is a complete mapping with its own options",
        )
    return [(one, ("checks", number)) for number, one in enumerate(several)]


def _one(
    document: Document,
    data: dict[str, Any],
    prefix: tuple[object, ...],
    checks: list[dict[str, Any]],
    rows: list[tuple[str, ...]],
    problems: list[NapkinError],
) -> int:
    """Answer one mapping and hold its limits against the answer."""
    name, limits = data.get("command"), data.get("limits")
    if not isinstance(name, str):
        raise NapkinError(f"{document.place(*prefix, 'command')}: is missing", "add command: train-time, for example")
    if not isinstance(limits, dict) or not limits:
        raise NapkinError(
            f"{document.place(*prefix, 'limits')}: a mapping from path to condition is missing",
            'limits: {time: "<= 150d"}',
        )
    try:
        command = find(name)
    except NapkinError as problem:
        raise problem.at(document.place(*prefix, "command")) from None
    if command.name == "check":
        raise NapkinError(f"{document.place(*prefix, 'command')}: check cannot check itself")
    options = runfile.options_of(document, data, prefix, command)
    for shown in ("output", "plot", "run"):
        if shown in options:
            raise NapkinError(f"{document.place(*prefix, shown)}: is not for check", f"leave out {shown}")
    try:
        answer = ask(command, options)
    except NapkinError as problem:
        if problem.message.startswith(document.name):
            raise
        raise problem.at(document.place(*prefix)) from None
    place = {path: document.place(*prefix, "limits", path) for path in limits}
    outcomes, wrong = limits_room.check(limits, answer.quantities(), answer.intervals, place)
    problems += wrong
    for outcome in outcomes:
        row = {"file": document.name, "path": outcome.path, "limit": outcome.limit, "value": outcome.value}
        checks.append({**row, "low": outcome.low, "high": outcome.high, "status": outcome.status})
        value = compact(outcome.value, outcome.unit)
        rows.append((SAID[outcome.status], outcome.path, value, outcome.limit, document.name, _beside(outcome)))
    return _worst(answer.status, limits_room.status_of(outcomes))


def _beside(outcome: LimitOutcome) -> str:
    """Return the text next to a limit: by how much it is broken, or the interval that makes it too close."""
    if outcome.low is not None and outcome.high is not None and outcome.status == CLOSE_WORD:
        return f"may be {between(outcome.low, outcome.high, outcome.unit)}"
    if outcome.status == BROKEN_WORD:
        part = f" ({outcome.beyond / abs(outcome.value):.1%})" if outcome.value else ""
        return f"by {compact(outcome.beyond, outcome.unit)}{part}"
    return ""


def _worst(*statuses: int) -> int:
    """Return the status that wins: 3 over 2, 2 over 1, 1 over 4, 4 over 0; 5 over all."""
    return max(statuses, key=(OK, CLOSE, BROKEN, USAGE, REFUSED, ABSENT).index)


def _write_junit(path: str, checks: list[dict[str, Any]], problems: list[NapkinError]) -> None:
    from xml.sax.saxutils import quoteattr

    from napkin.render.files import write_whole

    failed = sum(c["status"] != "holds" for c in checks)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="napkin check" tests="{len(checks) + len(problems)}" '
        f'failures="{failed}" errors="{len(problems)}">',
    ]
    for c in checks:
        case = f"<testcase classname={quoteattr(c['file'])} name={quoteattr(c['path'] + ' ' + c['limit'])}"
        if c["status"] == "holds":
            lines.append(f"  {case}/>")
        else:
            message = quoteattr(f"{c['status']}: {c['path']} is {c['value']}")
            lines.append(f"  {case}><failure message={message}/></testcase>")
    for p in problems:
        lines.append(
            f'  <testcase classname="napkin check" name="input"><error message={quoteattr(p.message)}/></testcase>'
        )
    try:
        write_whole(path, ("\n".join([*lines, "</testsuite>"]) + "\n").encode("utf-8"))
    except OSError as problem:
        raise NapkinError(
            f"--junit: {printable(path)}: {problem.strerror}", "name a file in a folder that exists"
        ) from None


COMMAND = Command(
    "check",
    "Limits on any path of any answer: a line each, and an exit status for CI",
    run,
    brief="Limits on any answer, for CI",
    options=("junit",),
    arguments=("files",),
    examples=("check configs/runs/lecture-time.yaml configs/runs/lecture-memory.yaml",),
)

"""`napkin check FILE…`: limits on any path of any answer, for CI."""

from __future__ import annotations

from typing import Any

from napkin.commands import runfile
from napkin.commands.command import Command, ask, find
from napkin.commands.inputs import Inputs
from napkin.errors import ABSENT, BROKEN, CLOSE, OK, REFUSED, USAGE, NapkinError, Problems
from napkin.inputs import limits as limits_room
from napkin.inputs.load import Document, printable
from napkin.render.answer import Answer
from napkin.units import human

_MOST = 1000


def run(inputs: Inputs) -> Answer:
    """Check the limits of run files; status 1 where one is broken."""
    files = inputs.texts("files")
    if not files:
        raise NapkinError("FILE is missing: which run files?", "napkin check configs/runs/lecture-time.yaml")
    checks: list[dict[str, Any]] = []
    display: list[dict[str, str]] = []
    problems: list[NapkinError] = []
    status = OK
    for path in files:
        try:
            document = runfile.read(path)
            mappings = _mappings(document)
        except NapkinError as problem:
            problems.append(problem)
            continue
        for data, prefix in mappings:
            try:
                status = _worst(status, _one(document, data, prefix, checks, display, problems))
            except Problems as several:
                problems += several.problems
            except NapkinError as problem:
                problems.append(problem)
    if inputs.has("junit"):
        _write_junit(inputs.text("junit"), checks, problems)
    if problems and not checks:
        raise problems[0] if len(problems) == 1 else Problems(problems)
    answer = Answer("check", rows=checks, rows_name="checks", display=display, problems=problems)
    answer.status = _worst(status, *(p.status for p in problems))
    counts = [f"{sum(c['status'] == word for c in checks)} {word}" for word in ("holds", "broken", "close")]
    answer.verdict = ", ".join(counts)
    return answer


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
    display: list[dict[str, str]],
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
        display.append(
            {
                "status": outcome.status,
                "path": outcome.path,
                "value": human(outcome.value, outcome.unit),
                "limit": outcome.limit,
                "": limits_room.described(outcome),
                "file": document.name,
            }
        )
    return _worst(answer.status, limits_room.status_of(outcomes))


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

"""`napkin check FILE…`: limits on any path of any answer, for CI."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from napkin.commands import runfile
from napkin.commands.check import files as check_files
from napkin.commands.command import WRITTEN, Command, ask, find
from napkin.commands.first_file import read_whether_free, write_first
from napkin.commands.inputs import Inputs
from napkin.commands.screens.check import screen, shown, words_of
from napkin.errors import ABSENT, BROKEN, CLOSE, IMPOSSIBLE, OK, REFUSED, USAGE, NapkinError, Problems
from napkin.inputs.file_roles import other_role
from napkin.inputs.limits import BROKEN_WORD, CLOSE_WORD, HOLDS, VERDICT, LimitOutcome, hold, status_of
from napkin.inputs.load import STDIN, Document, name_of, printable
from napkin.record import record
from napkin.render.answer import Answer
from napkin.render.findings import Finding, of_problem, to_annotations

_MOST = 1000
POSSIBLE = "possible"
"""The condition on a verdict by default."""


@record
class HeldLimit:
    """One limit of a file and its outcome. label: the check's name or command; line: None if the file has no lines."""

    file: str
    line: int | None
    label: str
    outcome: LimitOutcome

    def row(self) -> dict[str, Any]:
        """Return the limit for JSON."""
        one = self.outcome
        where = {"file": self.file, "line": self.line, "path": one.path, "limit": one.limit, "value": one.value}
        return {**where, "low": one.low, "high": one.high, "status": one.status}

    def finding(self) -> Finding:
        """Return the limit for CI reports."""
        one = self.outcome
        return Finding(f"{self.label}: {one.path} {one.limit}", one.status, words_of(one), _path(self.file), self.line)


class Checked:
    """The results for all files, in order."""

    def __init__(self) -> None:
        self.held: list[HeldLimit] = []
        self.findings: list[Finding] = []
        self.problems: list[NapkinError] = []
        self.status = OK
        self.seconds: dict[str, float] = {}
        self.skipped: list[str] = []
        self.unread: list[str] = []
        self.asked: dict[str, str] = {}
        """File of one check → its command."""

    def fail(self, problem: NapkinError, file: str) -> None:
        """Add the error that prevented the check of a file's limits."""
        for one in problem.problems if isinstance(problem, Problems) else (problem,):
            self.problems.append(one)
            self.findings.append(of_problem(one, file, _path(file)))

    def add(self, held: HeldLimit) -> None:
        """Add a limit that was checked."""
        self.held.append(held)
        self.findings.append(held.finding())


def _path(name: str) -> str:
    """Return the path of a file for CI; "" for standard input."""
    return "" if name == STDIN else name


def run(inputs: Inputs) -> Answer:
    """Check the limits of run files; status 1 if one is broken."""
    named = inputs.texts("files")
    if inputs.flag("init"):
        read_whether_free(inputs)
        if len(named) > 1:
            raise NapkinError("--init writes one file", f"napkin check --init {printable(named[0])}")
        named = (write_first(named[0] if named else None, "check", check_files.NAME, check_files.FIRST),)
    if not named:
        raise NapkinError("FILE is missing: which run files?", "napkin check --init writes a first one, napkin.yaml")
    found = Checked()
    files = check_files.files_of(named)
    for path, below in files:
        started = time.perf_counter()
        name = _add_file(path, below, found)
        found.seconds[_path(name)] = time.perf_counter() - started
    if inputs.has("junit"):
        from napkin.commands.junit_file import write_junit

        write_junit(inputs.text("junit"), found.findings, found.seconds, "napkin check")
    marks = inputs.has("annotations") and inputs.text("annotations")
    if not found.held and not marks:
        raise _nothing(found, named)
    answer = Answer("check", rows=[one.row() for one in found.held], problems=found.problems)
    answer.rows_name = "checks"
    answer.status = _worst(found.status, *(p.status for p in found.problems))
    statuses = [one.outcome.status for one in found.held]
    answer.verdict = ", ".join(f"{statuses.count(word)} {word}" for word in (HOLDS, BROKEN_WORD, CLOSE_WORD))
    if found.skipped:
        answer.notes.append(f"no run files, and skipped: {', '.join(found.skipped)}")
    answer.notes += found.unread
    if marks:
        answer.trailer = to_annotations(found.findings, os.environ.get("GITHUB_WORKSPACE", ""))
    rows = [shown(one.outcome, one.file) for one in found.held]
    written = named[0] if inputs.flag("init") else ""
    answer.screen = screen(named, rows, found.skipped, len(found.problems), written, found.asked)
    return answer


def _nothing(found: Checked, named: Sequence[str]) -> NapkinError:
    """Return the error that no limit was checked."""
    if not found.problems:
        return NapkinError(
            f"{printable(', '.join(named))}: holds no run file with command: and limits:",
            "napkin check --init writes one",
        )
    return found.problems[0] if len(found.problems) == 1 else Problems(found.problems)


def _add_file(path: str, below: bool, found: Checked) -> str:
    """Check the limits of one file and return its name. below: it was found in a folder, which may hold other files."""
    name = name_of(path)
    try:
        document = check_files.read_found(path) if below else runfile.read(path)
        if document is None:
            found.skipped.append(name)
            return name
        mappings = _mappings(document)
    except NapkinError as problem:
        found.fail(problem, name)
        return name
    if len(mappings) == 1 and not mappings[0][1] and path != "-":
        found.asked[document.name] = str(document.data.get("command"))
    for data, prefix in mappings:
        try:
            _add_check(document, data, prefix, found)
        except NapkinError as problem:
            found.fail(problem, name)
    return name


def _mappings(document: Document) -> list[tuple[dict[str, Any], tuple[object, ...]]]:
    """Return the checks of a run file: the mapping itself, or each of its `checks:`."""
    data = document.data
    several = data.get("checks")
    if several is None:
        return [(data, ())]
    if not isinstance(several, list) or not several or not all(isinstance(one, dict) for one in several):
        raise NapkinError(f"{document.place('checks')}: is not a list of mappings", "each has command: and limits:")
    if len(several) > _MOST:
        raise NapkinError(f"{document.place('checks')}: has more than {_MOST} entries", "use several files")
    others = [key for key in data if key not in ("checks", "name")]
    if others:
        raise NapkinError(
            f"{document.place(others[0])}: does not belong next to checks:",
            "each check is a complete mapping with its own options",
        )
    return [(one, ("checks", number)) for number, one in enumerate(several)]


def _command_of(document: Document, data: dict[str, Any], prefix: tuple[object, ...]) -> Command:
    """Return the command that one mapping checks."""
    name, place = data.get("command"), document.place(*prefix, "command")
    if not isinstance(name, str):
        if name is not None:
            raise NapkinError(f"{place}: is not the name of a command", "for example command: train-time")
        told = other_role(data, ("model",)) or "add command: train-time, for example"
        raise NapkinError(f"{place}: is missing", told)
    try:
        command = find(name)
    except NapkinError as problem:
        raise problem.at(place) from None
    if command.name == "check":
        raise NapkinError(f"{place}: check cannot check itself", "name its files on one command line")
    return command


def _without_limits(document: Document, data: dict[str, Any], prefix: tuple[object, ...]) -> NapkinError | None:
    """Return the error that one mapping has no limits; None if it has some: path → condition."""
    limits = data.get("limits")
    if isinstance(limits, dict) and limits:
        return None
    where = f"{document.place(*prefix, 'limits')}: a mapping from path to condition is missing"
    return NapkinError(where, 'limits: {time: "<= 150d"}')


def _add_check(document: Document, data: dict[str, Any], prefix: tuple[object, ...], found: Checked) -> None:
    """Answer one mapping and check its limits against the answer."""
    command = _command_of(document, data, prefix)
    missing = _without_limits(document, data, prefix)
    title = data.get("name")
    if isinstance(title, (dict, list)):
        raise NapkinError(f"{document.place(*prefix, 'name')}: is not a text", "name: what this checks")
    try:
        options = runfile.options_of(document, data, prefix, command)
    except NapkinError as problem:
        raise problem if missing is None else Problems([missing, *problem.errors]) from None
    if missing is not None:
        raise missing
    limits = data["limits"]
    for writes in ("output", "plot", "run"):
        if writes in options:
            raise NapkinError(f"{document.place(*prefix, writes)}: is not for check", f"leave out {writes}")
    for name in (WRITTEN - {"from"}) & set(options):
        del options[name]
        found.unread.append(f"{document.place(*prefix, name)} is not used: check writes one answer for all files")
    try:
        launch = None
        if "from" in options:
            from napkin.commands.launchfile import with_launch

            options, launch = with_launch(command, options)
        answer = ask(command, options)
        if launch is not None:
            launch.add_to(answer)
    except NapkinError as problem:
        raise problem.at(document.place(*prefix), document.name) from None
    place = {path: document.place(*prefix, "limits", path) for path in limits}
    outcomes, wrong = hold(limits, answer.quantities(), answer.intervals, place, answer.verdict, command.verdicts)
    label = printable(str(title)) if title not in (None, "") else str(data["command"])
    for outcome in outcomes:
        found.add(HeldLimit(document.name, document.lines.get((*prefix, "limits", outcome.path)), label, outcome))
    if wrong:
        found.fail(Problems(wrong), document.name)
    status = answer.status
    if VERDICT in limits and status in (BROKEN, CLOSE):
        status = OK  # the limit on the verdict judges it
    elif status in (BROKEN, CLOSE):
        found.add(HeldLimit(document.name, document.lines.get((*prefix, "command")), label, _implied(answer, command)))
    found.status = _worst(found.status, status, status_of(outcomes))


def _implied(answer: Answer, command: Command) -> LimitOutcome:
    """Return the outcome of a condition of the question itself (--must-fit, a deadline) that is not met."""
    word = str(answer.verdict)
    status = BROKEN_WORD if answer.status == BROKEN else CLOSE_WORD
    asked = command.success if command.success and word != IMPOSSIBLE else POSSIBLE
    return LimitOutcome(VERDICT, asked, word, "", None, None, status, 0.0)


def _worst(*statuses: int) -> int:
    """Return the status that wins: 3 over 2, 2 over 1, 1 over 4, 4 over 0; 5 over all."""
    return max(statuses, key=(OK, CLOSE, BROKEN, USAGE, REFUSED, ABSENT).index)


COMMAND = Command(
    "check",
    "Check limits on any quantity of any answer, with an exit status for CI",
    run,
    brief="Check limits on any answer, for CI",
    options=("junit", "annotations", "init"),
    arguments=("files",),
    examples=(
        "check configs/runs/lecture-time.yaml configs/runs/lecture-memory.yaml",
        "check configs/runs",
    ),
)

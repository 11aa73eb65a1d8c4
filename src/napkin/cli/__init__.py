"""The command line: it parses the options of the registry, loads the module of one command, and prints errors in one
place."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from napkin import __version__
from napkin.errors import BROKEN, IMPOSSIBLE, PRINTED, WRITE_FAILED, NapkinError, Problems, escaped
from napkin.options.output import WRITTEN_FILES

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from napkin.cli.reader import Line
    from napkin.commands.command import Command
    from napkin.commands.launchfile import Launch
    from napkin.commands.signature import OptionText
    from napkin.render.answer import Answer

OUT_OF_RANGE = (
    "the answer is out of range: an intermediate quantity exceeds 1e308",
    "check the inputs for a number with too many zeros",
)
INTERRUPTED, PIPE_CLOSED, DEFECT = 130, 141, 70


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status. Never raises."""
    _reserve()
    try:
        status = _main(argv)
        sys.stdout.flush()
    except NapkinError as problem:
        status = _complain(problem)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        status = _abandon_stdout()
    except _WriteFailed as problem:
        _say(f"error: {problem}")
        _say("hint: name a file that can be written, on a disk with room")
        status = WRITE_FAILED
    except OSError as problem:
        _abandon_stdout()
        _say(f"error: cannot write the answer: {problem.strerror or problem}")
        _say("hint: -o FILE writes it to a file")
        status = WRITE_FAILED
    except OverflowError:
        status = _complain(NapkinError(*OUT_OF_RANGE))
    except Exception as problem:
        if os.environ.get("NAPKIN_DEBUG"):
            raise
        _say(f"error: a defect of napkin, not of your input: {type(problem).__name__}: {problem}"[:500])
        _say("hint: please report it with the command; NAPKIN_DEBUG=1 shows the traceback")
        status = DEFECT
    return status


def _reserve() -> None:
    """Reopen standard streams that the caller closed, so that no other file takes their descriptors: reading standard
    input returns nothing, and writing to standard output or standard error fails."""
    for number, name, how in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, how)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


class _WriteFailed(Exception):
    """The answer could not be written to the given file."""


def _abandon_stdout() -> int:
    """Redirect stdout to the null device after its reader is gone, so that the interpreter reports no error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        print(escaped(line)[:4000], file=sys.stderr)


def _complain(problem: NapkinError) -> int:
    every = problem.problems if isinstance(problem, Problems) else (problem,)
    problems = list({one.message: one for one in every}.values())
    for one in problems[:PRINTED]:
        _say(f"error: {one.message}")
        if one.hint:
            _say(f"hint: {one.hint}")
    if len(problems) > PRINTED:
        _say(f"error: and {len(problems) - PRINTED} more")
    return problem.status


def _main(argv: list[str]) -> int:
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)  # a terminal without × still gets the answer
    if not argv and os.environ.get("_NAPKIN_COMPLETE", "").startswith(("source_", "complete_")):
        from napkin.cli.completion import answer

        print(answer(os.environ["_NAPKIN_COMPLETE"]), end="")
        return 0
    if not argv:
        from napkin.cli.overview import overview

        with contextlib.suppress(OSError, ValueError):  # stderr may be closed or full
            print(overview(), end="", file=sys.stderr)
        return 2
    if argv[0] == "help" and len(argv) > 1:
        argv = [*argv[1:], "--help"]
    elif len(argv) > 1 and argv[1:] == ["help"]:
        argv = [argv[0], "--help"]
    word = argv[0]
    if word in ("--help", "-h", "help", "--help-all"):
        from napkin.cli.overview import overview

        print(overview(), end="")
        return 0
    if word in ("--version", "-V", "version"):
        print(f"napkin {__version__}")
        return 0
    if word in ("--install-completion", "--show-completion"):
        from napkin.cli.shells import run

        return run(argv)
    from napkin.commands.command import MODULES, named

    if word not in MODULES:
        from napkin.cli.verbs import command_of

        argv = command_of(argv)
    command, words = named(argv)
    from napkin.cli.reader import read

    line = read(command, words)
    if line.help:
        from napkin.cli.help import show

        show(command, line.help == "help-all")
        return 0
    return _answer(command, line)


def _answer(command: Command, line: Line) -> int:
    given, launch = options_of(command, line)
    if any(name in given for name in WRITTEN_FILES):
        from napkin.cli.outputs import refuse_overwriting

        refuse_overwriting(given)
    target = str(given["output"].text) if "output" in given and not command.keeps else "-"
    forms = _forms(line.given) or _forms(given) or _forms_by_name(target, given)  # the command line wins
    clash = _clash(given, forms)
    if clash:
        raise NapkinError(f"--{clash[0]} and --{clash[1]} cannot be combined", "choose one")
    answer = answer_of(command, given, launch, line.unused, forms[:1] == ["json"])
    if "plot" in given:
        from napkin.render.plot import draw

        draw(answer, str(given["plot"].text), str(given["theme"].text).lower() if "theme" in given else "light")
    _show(answer, forms[0] if forms else "text", given, target)
    return answer.status


def options_of(command: Command, line: Line) -> tuple[dict[str, OptionText], Launch | None]:
    """Return the options of a command line and of the files that it names (the command line wins), and what else the
    launch files state."""
    given = line.given
    if "run" in given:
        from napkin.commands.runfile import options_of_file

        given = {**options_of_file(str(given["run"].text), command), **given}
    if "from" not in given or command.opens:
        return given, None
    from napkin.commands.launchfile import with_launch

    return with_launch(command, given)


def answer_of(
    command: Command,
    given: dict[str, OptionText],
    launch: Launch | None,
    idle: Sequence[str],
    as_object: bool,
    only: Container[str] | None = None,
) -> Answer:
    """Return the answer to a question.

    idle       options of a pasted line that do not change the answer, for a note
    as_object  return an answer with the verdict `impossible` instead of raising an error with status 1
    only       the quantities that will be read; None: all
    """
    from napkin.commands.command import ask

    try:
        answer = ask(command, given, only)
    except NapkinError as problem:
        if problem.status != BROKEN or not as_object:
            raise
        answer = _impossible(command, given, problem)
    if launch is not None:
        launch.add_to(answer)
    if idle:
        unused = " ".join(dict.fromkeys(idle))
        answer.notes.append(f"options of the pasted line that do not change the answer: {unused}")
    return answer


def _impossible(command: Command, given: dict[str, OptionText], problem: NapkinError) -> Answer:
    """Return an answer with the verdict `impossible`, for JSON readers."""
    from napkin.commands.inputs import Inputs
    from napkin.render.answer import Answer

    notes = [text for text in (problem.message, problem.hint) if text]
    shown = Inputs(command, given).shown
    return Answer(command.name, inputs=shown, verdict=IMPOSSIBLE, status=BROKEN, notes=notes, problems=(problem,))


_SEEN = ("verbose", "quiet", "paths")
"""Options of the text output."""
_ENDS = {".json": "json", ".csv": "csv", ".md": "markdown"}
"""File name endings and the output form that they select."""


def _forms(given: dict[str, OptionText]) -> list[str]:
    """Return the requested output forms other than text."""
    return [form for form in ("json", "csv", "markdown") if form in given and given[form].text]


def _forms_by_name(target: str, given: dict[str, OptionText]) -> list[str]:
    """Return the form that the output file's name selects, unless an option of the text output is given."""
    if any(name in given and given[name].text for name in _SEEN):
        return []
    return [form for end, form in _ENDS.items() if target.lower().endswith(end)]


def _clash(given: dict[str, OptionText], forms: list[str]) -> tuple[str, str] | None:
    """Return two options that cannot be combined: two forms, a form and an option of the text output, or --quiet and an
    option that shows more."""
    more = [name for name in ("verbose", "paths", "explain") if name in given and given[name].text]
    quiet = "quiet" in given and bool(given["quiet"].text)
    text = [name for name in more if name != "explain"]
    marks = ["annotations"] if "annotations" in given and "output" not in given else []  # both would be on stdout
    pairs = [forms, [*forms[:1], *text[:1]], [*forms[:1], *marks], ["quiet", *more[:1]] if quiet else []]
    return next(((pair[0], pair[1]) for pair in pairs if len(pair) > 1), None)


def _show(answer: Answer, form: str, given: dict[str, OptionText], target: str) -> None:
    from napkin.render import render
    from napkin.render.screen import Display
    from napkin.render.terminal import PIPED, readable, wants_color, width_of

    asked = {name: name in given and bool(given[name].text) for name in ("explain", *_SEEN)}
    here = target == "-"
    view = Display(width_of(sys.stdout) if here else PIPED, here and wants_color(sys.stdout), **asked)
    text = render(answer, form, view)
    if form == "json":
        from napkin.render.json import within

        text = within((sys.stdout.encoding or "utf-8") if here else "utf-8", text)
    if here:
        sys.stdout.write(readable(text, sys.stdout) if form in ("text", "markdown") else text)
    sys.stdout.writelines(f"{line}\n" for line in answer.trailer)
    sys.stdout.flush()
    if answer.problems:
        _complain(Problems(answer.problems))
    if here:
        return
    from napkin.render.files import write_text

    try:
        write_text(target, text)
    except OSError as problem:
        from napkin.inputs.load import printable

        raise _WriteFailed(f"{printable(target)}: {problem.strerror or 'cannot be written'}") from None

"""The API of `import napkin`: every command as a function that takes the same options.

`napkin.memory("llama3-8b", gpus=8)` is translated into the words of `napkin memory --gpus=8 -- llama3-8b` and parsed by
the command-line parser, so spellings, values, defaults, errors and hints are the same. The signatures that type
checkers and editors read are in napkin/__init__.pyi, written by tools/stubs.py from the registry of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from napkin._tables.commands import FUNCTIONS
from napkin.api.result import Result
from napkin.api.words import words_of
from napkin.cli import OUT_OF_RANGE, answer_of, options_of
from napkin.commands.command import MODULES, WRAPPERS, WRITTEN, Command, find, named
from napkin.errors import NapkinError
from napkin.options.option import Option
from napkin.options.registry import OPTIONS

AS_WRITTEN = WRITTEN - {"run", "from"} | {"theme", "annotations"}
"""Options that select the form of the output; in Python, methods of the answer do that."""


def function(word: str) -> Callable[..., Result]:
    """Return the API function of a command."""

    def asked(*arguments: object, **options: object) -> Result:
        return ask(word, arguments, options)

    command = find(word)
    asked.__name__ = asked.__qualname__ = word.replace("-", "_")
    asked.__module__ = "napkin"
    asked.__doc__ = _described(command)
    return asked


def ask(name: str, arguments: Sequence[object], options: Mapping[str, object]) -> Result:
    """Answer a command's question from Python values. Raises NapkinError, with status and hint, if there is no answer.
    An answer that is impossible or breaks a limit is returned with status 1."""
    from napkin.cli.reader import read

    target = [str(arguments[0]).replace("_", "-")] if name in WRAPPERS and arguments else []
    first = [name, *(word for word in target if word in MODULES)]
    command, _ = named(first)
    asked, loose = words_of(command, arguments[len(first) - 1 :], options, AS_WRITTEN)
    try:
        line = read(command, [*asked, *(["--", *loose] if loose else [])])
        given, launch = options_of(command, line)
        found = answer_of(command, given, launch, line.unused, as_object=True)
    except NapkinError as problem:
        raise problem from None
    except OverflowError:
        raise NapkinError(*OUT_OF_RANGE) from None
    return Result(found, line_of([*first, *loose], asked))


def line_of(words: Sequence[str], options: Sequence[str]) -> str:
    """Return the command line that asks the same question, to paste into a shell."""
    from napkin.options.command_line import quoted

    parts = [part for option in options for part in option.split("=", 1)]
    if any(part.startswith("-") for part in (*words, *(option.partition("=")[2] for option in options))):
        return " ".join(quoted(word) for word in ("napkin", words[0], *options, "--", *words[1:]))
    return " ".join(quoted(word) for word in ("napkin", *words, *parts))


def asked_about() -> tuple[str, ...]:
    """Return the commands that a wrapper such as sweep can run."""
    return tuple(name for name in FUNCTIONS.values() if name not in WRAPPERS)


def parameters_of(command: Command) -> tuple[tuple[Option, ...], tuple[Option, ...]]:
    """Return the positional and the keyword parameters of a command's function."""
    names = dict.fromkeys((*command.takes, *command.figures))
    if command.name in WRAPPERS:
        names |= dict.fromkeys(other for one in asked_about() for other in find(one).names)
    arguments = tuple(OPTIONS[name] for name in command.arguments)
    kept = (OPTIONS[name] for name in names if name not in AS_WRITTEN and name not in command.arguments)
    return arguments, tuple(kept)


def _described(command: Command) -> str:
    """Return the text that help() shows for a function."""
    arguments, options = ((), ()) if command.name in WRAPPERS else parameters_of(command)
    lines = [f"{command.summary}.", "", f"Asks what `napkin {command.name}` does, with the same options:", ""]
    lines += [f"  {option.key:<24} {option.help}" for option in (*arguments, *options)]
    if command.name in WRAPPERS:
        lines += [
            f"  {OPTIONS[name].key:<24} {OPTIONS[name].help}" for name in command.options if name not in AS_WRITTEN
        ]
        lines += ["", f"and those of the command that is asked: {', '.join(asked_about())}"]
    return "\n".join(lines)

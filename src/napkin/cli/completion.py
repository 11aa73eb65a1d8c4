"""What a shell offers after <Tab>: commands, options, and the names that an option's value may be.

The scripts pass the words before the cursor and the word under it. Candidates come from the registry of options, one
per line, each followed by a tab and a description. typer is not used: it would load every command and, from 0.29 on,
pydantic at every key press."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from napkin.cli.known import offered
from napkin.commands.command import MODULES, WRAPPERS, Command, named
from napkin.errors import NapkinError
from napkin.options.option import Option
from napkin.options.registry import OPTIONS

TOP = {
    "--help": "What napkin answers",
    "--version": "The version",
    "--install-completion": "Complete napkin commands and options in this shell",
    "--show-completion": "Print the shell's script",
}
HELP = {"--help": "The most used options", "--help-all": "All options"}
PAIRS = ("over", "by", "against", "vary")
"""Options whose value begins with the name of another option."""

Candidate = tuple[str, str]
"""A completion and its description."""


def answer(task: str) -> str:
    """Return what a shell's script requests: `source_bash` is the script, `complete_bash` the candidates."""
    what, _, shell = task.partition("_")
    if what == "source":
        from napkin.cli.shells import script

        return script(shell)
    before, word = _words(os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", ""), shell)
    try:
        found = candidates(before[1:], word, splits=shell == "bash")
    except NapkinError:
        found = []
    shown = (value if shell == "bash" else f"{value}\t{says}" for value, says in found)
    return "".join(f"{line}\n" for line in shown)


def _words(line: str, cursor: str, shell: str) -> tuple[list[str], str]:
    """Return the words before the cursor and the word under it. cursor: the index of that word; in fish the word
    itself."""
    words = line.split("\n") if "\n" in line else line.split(" ")
    if shell == "fish":
        return (words[:-1] if words[-1] == cursor else words), cursor
    number = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else len(words) - 1
    return words[:number], words[number] if number < len(words) else ""


def candidates(before: Sequence[str], word: str, splits: bool = False) -> list[Candidate]:
    """Return what can replace `word` after the words before it (without the program's name). splits: the shell passes
    `--x=v` as three words."""
    if not before:
        found: Iterable[Candidate] = TOP.items() if word[:1] == "-" else [(n, s) for n, (_, s) in MODULES.items()]
        return _starting(found, word)
    if before[0] == "help":
        return _starting([(name, says) for name, (_, says) in MODULES.items()], word)
    if before[0] not in MODULES:
        from napkin.cli.verbs import command_of

        before = command_of(before)
    command, words = named(before)
    asks = before[0] in WRAPPERS and not command.target and not words
    found = [(name, says) for name, (_, says) in MODULES.items() if name not in WRAPPERS] if asks else []
    return _starting(found, word) + _of_command(command, words, word, splits)


def _of_command(command: Command, before: list[str], word: str, splits: bool) -> list[Candidate]:
    """Return the options of a command, the values of the option before, or the words of its next argument."""
    if splits and word == "=" and before:
        before, word = [*before, "="], ""
    if splits and len(before) > 1 and before[-1] == "=":
        before = before[:-1]
    last = _option(command, before[-1]) if before else None
    if last is not None and not last.flag:
        return _values(last, command, word)
    head, equals, text = word.partition("=")
    if equals and not splits and (option := _option(command, head)) is not None:
        return [(f"{head}={value}", says) for value, says in _values(option, command, text)]
    if word.startswith("-"):
        return _starting(_options(command, before), word)
    arguments = [OPTIONS[name] for name in command.arguments]
    place = len(_loose(command, before))
    if place >= len(arguments) and not (arguments and arguments[-1].many):
        return _starting(_options(command, before), word) if not word else []
    return _values(arguments[min(place, len(arguments) - 1)], command, word)


def _option(command: Command, word: str) -> Option | None:
    if not word.startswith("-"):
        return None
    name = word[2:].replace("_", "-")
    if word.startswith("--") and (name in command.names or name in command.figures):
        return OPTIONS[name]
    return next((OPTIONS[one] for one in command.takes if OPTIONS[one].short == word), None)


def _loose(command: Command, words: Sequence[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    found: list[str] = []
    is_value = False
    for word in words:
        option = _option(command, word)
        if not is_value and not word.startswith("-") and word != "=":
            found.append(word)
        is_value = option is not None and not option.flag and "=" not in word
    return found


def _options(command: Command, before: Sequence[str]) -> list[Candidate]:
    """Return the options that were not given yet."""
    given = {word.partition("=")[0] for word in before}
    names = [name for name in (*command.takes, *command.figures) if name not in command.arguments]
    return [(f"--{name}", OPTIONS[name].help) for name in names if f"--{name}" not in given] + list(HELP.items())


def _values(option: Option, command: Command, word: str) -> list[Candidate]:
    """Return the names that an option accepts as its value; after a comma, those for the next item of the list."""
    if option.name in PAIRS:
        ends = "" if option.name == "vary" else "="
        names = [n for n in (*command.takes, *command.figures) if not OPTIONS[n].flag and n not in option.name]
        return _starting([(f"{name}{ends}", OPTIONS[name].help) for name in names], word)
    done, comma, rest = word.rpartition(",")
    if comma:
        return [(f"{done},{value}", says) for value, says in _starting([(v, "") for v in offered(option.name)], rest)]
    return _starting([(value, "") for value in offered(option.name)], word)


def _starting(found: Iterable[Candidate], word: str) -> list[Candidate]:
    """Return the candidates that begin with the word; letter case is ignored if none matches exactly."""
    exact = [(value, says) for value, says in found if value.startswith(word)]
    return exact or [(value, says) for value, says in found if value.lower().startswith(word.lower())]

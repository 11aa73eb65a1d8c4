"""Python values as the words of a command line."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence

from napkin.api.quantity import Count, Measure
from napkin.commands.command import Command
from napkin.errors import NapkinError, Problems
from napkin.options.option import Option
from napkin.options.registry import OPTIONS, spelled

HELD = ("help", "h", "help-all")
"""Options that print a command's help; they are not part of a question."""


def words_of(
    command: Command, arguments: Sequence[object], options: Mapping[str, object], written: Container[str]
) -> tuple[list[str], list[str]]:
    """Return the command-line words for Python arguments: options (`--gpus=8`) and positional arguments.

    None omits an option; True and False set a flag. written: options that select the form of the output, which are
    rejected. Raises NapkinError (2) for values that cannot be written as text."""
    words: list[str] = []
    loose: list[str] = []
    problems: list[NapkinError] = []
    for key, value in options.items():
        name = key.rstrip("_").replace("_", "-")
        taken = spelled(name, {*command.names, *command.figures})
        option = OPTIONS.get(taken or name)
        try:
            if name in HELD or (option is not None and option.name in written):
                raise NapkinError(f"{key}: how an answer is written is not part of the question", _instead(name))
            if value is None:
                continue
            if option is not None and option.positional and option.many:
                loose += _several(option, value)
            else:
                words += _option_words(name, option, value)
        except NapkinError as problem:
            problems.append(problem)
    for at, value in enumerate(arguments):
        own = command.arguments[min(at, len(command.arguments) - 1)] if command.arguments else ""
        try:
            if value is None:
                raise NapkinError(f"argument {at + 1} is None", "leave it out, or name it")
            several = bool(own) and OPTIONS[own].many
            loose += _several(OPTIONS[own], value) if several else [_argument(own, value)]
        except NapkinError as problem:
            problems.append(problem)
    if problems:
        raise problems[0] if len(problems) == 1 else Problems(problems)
    return words, loose


def _instead(name: str) -> str:
    """Return the Python equivalent of an output option."""
    methods = {
        "json": "answer.to_dict() or answer.to_json()", "csv": "answer.to_frame().to_csv()",
        "explain": "answer.explain()", "plot": "answer.plot(FILE)", "theme": "answer.plot(FILE, theme='dark')",
        "paths": "answer.values", "help": "help(napkin.memory)",
    }  # fmt: skip
    return methods.get(name, "str(answer), answer.to_dict() and answer.to_frame() write it")


def _option_words(name: str, option: Option | None, value: object) -> list[str]:
    """Return the words of one option."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if option is not None and option.many:
        return [f"--{name}={one}" for one in _several(option, value)]
    if isinstance(value, Mapping):
        pairs = (f"{str(key).rstrip('_').replace('_', '-')}={text_of(name, one)}" for key, one in value.items())
        return [f"--{name}={_config(value) if option is not None and option.positional else ','.join(pairs)}"]
    return [f"--{name}={text_of(name, value)}"]


def _several(option: Option, value: object) -> list[str]:
    """Return the words of an option that takes several values."""
    if isinstance(value, (list, tuple)):
        return [text_of(option.key, one) for one in value]
    return [text_of(option.key, value)]


def _argument(name: str, value: object) -> str:
    """Return the word of a positional argument. A mapping, or an object with to_dict() such as a transformers config,
    becomes a config.json."""
    if isinstance(value, Mapping):
        return _config(value)
    return text_of(name, value)


def _config(value: Mapping[object, object]) -> str:
    import json  # only for a model that is given as its fields

    try:
        return json.dumps(value)
    except Exception as problem:  # also of a value's own methods
        raise NapkinError(
            f"model: its fields cannot be written as JSON ({type(problem).__name__})",
            "give numbers, texts, lists and mappings",
        ) from None


def text_of(name: str, value: object) -> str:
    """Return a value as it is typed: `70B`, `7e+10`, `256,512` for a list. Raises NapkinError (2) if it cannot be
    written as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, (list, tuple)):
        try:
            return ",".join(text_of(name, one) for one in value)
        except RecursionError:
            raise NapkinError(f"{name}: the list contains itself", "give a flat list") from None
    try:
        found = _number_text(value)
    except Exception:  # a value's own methods may raise anything: an array of two, a class
        found = None
    if found is None:
        raise NapkinError(
            f"{name}: {type(value).__name__} is neither a number nor a text",
            OPTIONS[name].usage if name in OPTIONS else "write it as in the shell",
        )
    return found


def _number_text(value: object) -> str | None:
    """Return a number or duration as it is typed; None for other values."""
    unit = "s" if isinstance(value, (Count, Measure)) and value.unit == "second" else ""
    if hasattr(value, "__index__"):
        return f"{value.__index__()}{unit}"
    if hasattr(value, "__float__"):
        return f"{float(value)!r}{unit}"
    if hasattr(value, "total_seconds"):
        return f"{value.total_seconds()}s"
    return None

"""What help, the reference and the page in a browser say about an option of a command."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.options.option import Choice, Option
from napkin.options.training import SETUP_WORDS


def said(option: Option, command: Command) -> str:
    """Return what an option is, and the value that holds if it is left out."""
    default = default_of(option, command)
    return f"{what(option, command)} (default: {default})" if default else what(option, command)


def what(option: Option, command: Command) -> str:
    """Return what an option is in this command."""
    read = command.reads.get(option.name)
    verb = option.help.partition(":")[0]
    return f"{verb}: {', '.join(read.words)}" if isinstance(read, Choice) else option.help


def default_of(option: Option, command: Command) -> str:
    """Return the value that holds if an option is left out, in words; "" if none does."""
    stated = command.defaults.get(option.name)
    if isinstance(stated, bool):
        return "on" if stated else "off"
    words = SETUP_WORDS.get(option.name, option.default) if "micro-batch" in command.defaults else option.default
    return stated if stated is not None else words

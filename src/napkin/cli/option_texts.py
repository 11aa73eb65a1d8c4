"""Descriptions of a command's options, for help, the reference and the browser page."""

from __future__ import annotations

from napkin.commands.command import Command
from napkin.options.option import Choice, Option
from napkin.options.training import SETUP_WORDS


def said(option: Option, command: Command) -> str:
    """Return the description of an option with its default."""
    default = default_of(option, command)
    return f"{what(option, command)} (default: {default})" if default else what(option, command)


def what(option: Option, command: Command) -> str:
    """Return the description of an option in this command."""
    read = command.reads.get(option.name)
    verb = option.help.partition(":")[0]
    return f"{verb}: {', '.join(read.words)}" if isinstance(read, Choice) else option.help


def default_of(option: Option, command: Command) -> str:
    """Return the default of an option in words; "" if it has none."""
    stated = command.defaults.get(option.name)
    if stated is None and option.name == "dtype" and "hardware" not in command.takes:
        return ""  # an accelerator has a usual format; a command without one has none
    if isinstance(stated, bool):
        return "on" if stated else "off"
    words = SETUP_WORDS.get(option.name, option.default) if "micro-batch" in command.defaults else option.default
    return stated if stated is not None else words

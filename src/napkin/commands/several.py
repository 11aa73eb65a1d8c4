"""A list or a range in a file, where a command takes one value."""

from __future__ import annotations

from collections.abc import Callable

from napkin.commands.signature import Signature
from napkin.options.option import Option
from napkin.units import Unreadable

LONGEST = 200
"""Characters of a list that is read as one."""


def several(command: Signature, option: Option, text: str) -> Unreadable | None:
    """Return what to say of a text that is a range, or a list of values that the option takes one of; None of any
    other."""
    parts = text.split("..") if ".." in text else text.split(",")
    grouped = ".." not in text and all(len(part.strip()) == 3 for part in parts[1:])  # the commas of one number
    if len(parts) < 2 or not all(map(str.strip, parts)) or grouped or len(text) > LONGEST:
        return None
    parse = command.reads.get(option.name, option.parse)
    if not all(_reads(parse, part) for part in parts):
        return None
    if _reads(parse, ",".join(parts)):  # the command takes several values: something else is wrong with these
        return None
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    return Unreadable(
        f"{shown!r} is several values", f"napkin sweep {command.name} --over {option.name}={shown} asks for each"
    )


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except Unreadable:
        return False
    return True

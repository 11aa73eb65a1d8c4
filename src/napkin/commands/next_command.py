"""The next command to suggest: the same question to another command, with the options that it takes."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from napkin._tables.takes import TAKES
from napkin.options.command_line import Texts
from napkin.options.layout import SEARCHED
from napkin.render.screen import Next

FREE = (*SEARCHED, "sp", "recompute")
"""Options that `plan` searches, omitted from a suggested `plan`."""


def under(command: str, changes: Texts = MappingProxyType({}), less: Iterable[str] = ()) -> Next:
    """Return the same question to another command: the options that it takes, except `less`, with `changes`."""
    dropped = frozenset(less)
    return Next(changes, command, frozenset(name for name in TAKES[command] if name not in dropped))

"""The next question under another command: the same question, as far as that command takes its options."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from napkin._tables.takes import TAKES
from napkin.options.command_line import Texts
from napkin.options.layout import SEARCHED
from napkin.render.screen import Next

FREE = (*SEARCHED, "sp", "recompute")
"""What `plan` searches: the question of the best layout leaves it out."""


def under(command: str, changes: Texts = MappingProxyType({}), less: Iterable[str] = ()) -> Next:
    """Return the same question under another command: every option that it takes, less some, and changes to them."""
    dropped = frozenset(less)
    return Next(changes, command, frozenset(name for name in TAKES[command] if name not in dropped))

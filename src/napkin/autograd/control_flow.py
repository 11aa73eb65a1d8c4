"""Branches of the tape that depend on the layout, such as which of two tensors an operation reads or whether a
gradient is propagated. Layouts that share one tape (an array with one entry per layout) may take different branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from napkin.elementwise import Flag, is_array


class BranchesDifferError(Exception):
    """Layouts that share a tape would take different branches on separate tapes."""


_PARTS: list[object] = []
"""Indices of groups of layouts; each group must take the branches that it would take on its own tape."""


@contextmanager
def same_branches(*parts: object) -> Iterator[None]:
    """Within this context, raise BranchesDifferError if a group of layouts would branch differently on its own tape.

    parts: the indices of each group.
    """
    _PARTS[:] = parts
    try:
        yield
    finally:
        _PARTS.clear()


@contextmanager
def on_another_tape(*parts: object) -> Iterator[None]:
    """Within this context, groups of layouts that are compared are these; nothing changes where none are compared.

    parts: the indices of each group among the layouts of the other tape, which may be fewer.
    """
    outer = tuple(_PARTS)
    _PARTS[:] = parts if outer else ()
    try:
        yield
    finally:
        _PARTS[:] = outer


def holds_for_all(condition: Flag) -> bool:
    """Return whether a condition is true for all layouts."""
    if not is_array(condition):
        return bool(condition)
    every = bool(condition.all())
    if not every and any(condition[part].all() for part in _PARTS):
        raise BranchesDifferError
    return every


def differs(condition: Flag) -> bool:
    """Return whether a condition is true for some layouts and false for others."""
    if not is_array(condition) or condition.all() or not condition.any():
        return False
    if any(condition[part].all() or not condition[part].any() for part in _PARTS):
        raise BranchesDifferError
    return True

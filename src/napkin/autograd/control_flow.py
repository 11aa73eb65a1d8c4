"""Branches of the tape that depend on the layout, such as which of two tensors an operation reads or whether a
gradient is propagated. Layouts that share one tape (an array with one entry per layout) may take different branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from napkin.elementwise import Flag, is_array


class BranchesDifferError(Exception):
    """Layouts that share a tape would take different branches on separate tapes."""


_PARTS: list[object] = []
"""Indices of groups of layouts; each group must take the branches that it would take on its own tape."""


@contextmanager
def same_branches(*parts: object) -> Iterator[None]:
    """Within this context, raise BranchesDifferError if a group of layouts would branch differently on its own tape.

    parts: the indices of each group, none of which is empty.
    """
    outer = tuple(_PARTS)
    _PARTS[:] = parts
    try:
        yield
    finally:
        _PARTS[:] = outer


def on_another_tape(*parts: object) -> AbstractContextManager[None]:
    """Compare, within this context, these groups in place of those that are compared outside it, if any are.

    parts: the indices of each group among the layouts of the other tape, which may be fewer.
    """
    return same_branches(*parts) if _PARTS else same_branches()


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

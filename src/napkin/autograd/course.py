"""Conditions on which the course of a tape depends: which of two tensors an operation reads, whether a gradient is
handed on. Layouts that run on one tape may differ in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from napkin.elementwise import Flag, is_array


class CoursesDifferError(Exception):
    """Layouts that run on one tape would take another course on tapes of their own."""


_PARTS: list[object] = []
"""Indices of layouts that have to take the course that they would take on a tape of their own."""


@contextmanager
def together(*parts: object) -> Iterator[None]:
    """Run parts of the layouts on one tape, as long as this lasts, only where each takes the course that it would take
    on a tape of its own; parts: their indices."""
    _PARTS[:] = parts
    try:
        yield
    finally:
        _PARTS.clear()


def holds(condition: Flag) -> bool:
    """Return whether a condition holds for all layouts."""
    if not is_array(condition):
        return bool(condition)
    found = bool(condition.all())
    if not found and any(condition[part].all() for part in _PARTS):
        raise CoursesDifferError
    return found


def differs(condition: Flag) -> bool:
    """Return whether a condition holds for some layouts only."""
    if not is_array(condition) or condition.all() or not condition.any():
        return False
    if any(condition[part].all() or not condition[part].any() for part in _PARTS):
        raise CoursesDifferError
    return True

"""Versions of software that a run states: `trl 0.19.1, transformers 4.53, torch 2.6`."""

from __future__ import annotations

Release = tuple[int, int]
"""The first two numbers of a version."""


def version_of(name: str, versions: str) -> Release | None:
    """Return a library's version among those that a run states, None if it does not."""
    if not versions:
        return None
    import re  # slow to load, and read from rows alone

    found = re.search(rf"\b{re.escape(name)}[ =v]*(\d{{1,9}})\.(\d{{1,9}})", versions)
    return None if found is None else (int(found[1]), int(found[2]))


def is_since(name: str, versions: str, release: Release) -> bool:
    """Return whether a run states a version of a library that is a release or newer."""
    stated = version_of(name, versions)
    return stated is not None and stated >= release


def is_before(name: str, versions: str, release: Release) -> bool:
    """Return whether a run states a version of a library that is older than a release."""
    stated = version_of(name, versions)
    return stated is not None and stated < release

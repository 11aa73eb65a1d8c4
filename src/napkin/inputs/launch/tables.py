"""Patterns of a format's keys that have no option, each with a remark."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.record import record


@record
class Tables:
    """A format's patterns for keys without an option.

    name, says  the format's       looked  keys that the format's rules read; ignored if no rule uses them
    """

    name: str
    says: str
    ignored: str
    not_modelled: Mapping[str, str]
    refused: Mapping[str, str]
    looked: frozenset[str]


def within(block: str, names: str) -> str:
    """Return patterns of keys of a block: `within("trainer", "seed val_*")` is `trainer.seed trainer.val_*`."""
    return " ".join(f"{block}.{one}" for one in names.split())


def is_named(key: str, patterns: Mapping[str, str] | str) -> str | None:
    """Return the remark of the first pattern that matches a key or an enclosing block; "" in a list without remarks."""
    from fnmatch import fnmatchcase

    table = dict.fromkeys(patterns.split(), "") if isinstance(patterns, str) else patterns
    for words, why in table.items():
        for pattern in words.split():
            if key == pattern or key.startswith(f"{pattern}.") or ("*" in pattern and fnmatchcase(key, pattern)):
                return why
    return None

"""Keys of a format that mean no option: patterns with what is said about them."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.record import record


@record
class Tables:
    """What a format says of keys without an option. name and says: the format's; looked: keys that its meanings look
    at, which change nothing where no meaning names them."""

    name: str
    says: str
    ignored: str
    not_modelled: Mapping[str, str]
    refused: Mapping[str, str]
    looked: frozenset[str]


def is_named(key: str, patterns: Mapping[str, str] | str) -> str | None:
    """Return the remark of the first pattern that a key or a block around it matches; "" in a list without remarks."""
    from fnmatch import fnmatchcase

    table = dict.fromkeys(patterns.split(), "") if isinstance(patterns, str) else patterns
    for words, why in table.items():
        for pattern in words.split():
            if key == pattern or key.startswith(f"{pattern}.") or ("*" in pattern and fnmatchcase(key, pattern)):
                return why
    return None

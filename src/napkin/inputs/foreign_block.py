"""A mapping from another project's file that records which of its fields were read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

Fields = dict[str, Any]
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
"""OmegaConf's `${variables.max_seq_len}`."""


class ForeignBlock:
    """A mapping that records which of its fields were read. Dashes in names count as underscores.

    whole  the file that it is in, whose values references name
    notes  what to say about the reading
    """

    def __init__(self, fields: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
        self.fields = {str(field).replace("-", "_"): value for field, value in fields.items()}
        self.whole = whole
        self.notes: list[str] = []
        self.read: set[str] = set()
        self.children: list[ForeignBlock] = []

    def __contains__(self, field: str) -> bool:
        return field in self.fields

    def __getitem__(self, field: str) -> Any:
        if self.fields.get(field) is None:
            raise KeyError(field)
        return self.get(field)

    def get(self, field: str, default: Any = None) -> Any:
        """Return a field's value; null and a missing one are the default."""
        self.read.add(field)
        value = self.fields.get(field)
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference:
            value = self.whole.get("parameters", self.whole)  # MosaicML's job files hold the training YAML there
            for key in reference[1].split("."):
                value = value.get(key) if isinstance(value, dict) else None
        return default if value is None else value

    def whole_number(self, field: str, default: int | None = None) -> int:
        """Return a field's whole number."""
        value = self[field] if default is None else self.get(field, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            raise ValueError(f"{field} {value!r} is not a whole number")
        return int(value)

    def number(self, field: str) -> float:
        """Return a field's number."""
        value = self[field]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{field} is not a number")
        return value

    def inner(self, field: str) -> ForeignBlock:
        """Return the mapping in a field; an empty one if it is missing."""
        value = self.get(field, {})
        if not isinstance(value, dict):
            raise ValueError(f"{field} is not a mapping")
        self.children.append(ForeignBlock(value, self.whole))
        return self.children[-1]

    def must_be(self, field: str, *values: object, default: object = None) -> None:
        """Raise ValueError unless the field has one of these values."""
        value = self.get(field, default)
        if value not in values:
            raise ValueError(f"{field} {value!r}")

    def left(self, known: Collection[str]) -> list[str]:
        """Return the fields that were not read and are not in `known`, except those that are off."""
        own = [
            field
            for field, value in self.fields.items()
            if field not in self.read and field not in known and value not in (None, False, "", [], {})
        ]
        return own + [field for child in self.children for field in child.left(known)]

"""A row of a file of published figures: typed access to its fields, with messages that name file, line and field."""

from __future__ import annotations

from collections.abc import Mapping

from napkin import units
from napkin.errors import NapkinError
from napkin.inputs.load import Document, printable

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from typing import Any


BLOCKS = {
    "model": "{preset: llama3-8b, seq: 8192}",
    "hardware": "{chip: H100 SXM 80GB, count: 8}",
    "layout": "{zero: 3, micro_batch: 1}",
    "measured": "{step_seconds: 2.5}",
    "memory": "{gib: 55.3, what: used}",
}
"""Blocks of a row, each with an example."""


class WrongRow(NapkinError):
    """A field of a row with an invalid value: an error of the file, not only of the prediction."""


class RowFields:
    """Typed access to a row's fields, with messages that name file, line and field."""

    def __init__(self, document: Document, index: int, fields: Mapping[str, Any]) -> None:
        self.document = document
        self.index = index
        self.fields = fields

    def replaced(self, fields: Mapping[str, Any]) -> RowFields:
        """Return the row with other fields."""
        return RowFields(self.document, self.index, fields)

    def wrong(self, path: str, what: str, hint: str = "") -> NapkinError:
        place = self.document.place("rows", self.index, *(path.split(".") if path else ()))
        name = self.fields.get("id")
        said = f"{place}: {what}" + (f" (row {printable(str(name), 60)})" if name else "")
        return WrongRow(said, hint or "correct it, or leave the field out where it is not known")

    def part(self, name: str) -> Mapping[str, Any]:
        value = self.fields.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            example = f"{name}: {BLOCKS[name]}; napkin validate --init writes a first file" if name in BLOCKS else ""
            raise self.wrong(name, "is not a mapping", example)
        return value

    def _at(self, path: str) -> Any:
        first, _, second = path.partition(".")
        return self.part(first).get(second) if second else self.fields.get(first)

    def text(self, path: str) -> str:
        value = self._at(path)
        if "." in path and isinstance(value, (dict, list)):
            raise self.wrong(path, f"{printable(repr(value), 60)} is not a text")
        return "" if value is None else printable(str(value), 400)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the texts of a list, or a text that stands alone; () if there is none."""
        value = self._at(path)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(one, str) for one in listed):
            raise self.wrong(path, f"{printable(repr(value), 60)} is not a list of names")
        return tuple(listed)

    def number(self, path: str, least: float = 0.0, most: float = 1e30) -> float | None:
        value = self._at(path)
        if value is None:
            return None
        if isinstance(value, str):
            value = self._spelled(path, value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(path, f"{printable(repr(value), 60)} is not a number")
        if not least <= value <= most:
            raise self.wrong(path, f"{printable(str(self._at(path)), 60)} is out of range")
        return value

    def _spelled(self, path: str, text: str) -> float:
        """Return a number written as a text: `8k`, `1.5e12`, `50%`. Raises the row's error for another text."""
        try:
            return units.number(text)
        except units.Unreadable as problem:
            hint = f": {problem.hint}" if problem.hint and "," in text else ""
            what = problem.reason if "ambiguous" in problem.reason else f"{printable(repr(text), 60)} is not a number"
            raise self.wrong(path, f"{what}{hint}") from None

    def positive(self, path: str, most: float = 1e30) -> float | None:
        """Return a number above zero. Raises the row's error for 0."""
        value = self.number(path, most=most)
        if value == 0:
            raise self.wrong(path, "0 is out of range")
        return value

    def count(self, path: str, least: int = 1, most: float = 1e30) -> int | None:
        value = self.number(path, least, most)
        if value is None:
            return None
        if value != int(value) or value > 10**15:
            raise self.wrong(path, f"{value!r} is not a whole number")
        return int(value)

    def flag(self, path: str) -> bool | None:
        value = self._at(path)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(path, f"{printable(repr(value), 60)} is neither true nor false")

"""The fields of a config.json, and which of them were read.

Architectures read a `Config` field by field. Each read is recorded with its origin; at the end, unread.py settles what
becomes of the fields that no one has read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.inputs.class_facts import held_facts, read_by_class
from napkin.inputs.load import Document, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


GIVEN, CLASS_DEFAULT, PRESET = "given", "class default", "preset"
LARGEST_DIMENSION = 10**9
STAND_IN = 64
"""A whole number that replaces a missing one, so that reading can continue."""


class Config:
    """The fields of one config.json, and what was read of them.

    name      the model's, in messages and answers
    document  the file that the fields are from, for messages
    fields    the mapping as given
    defaults  defaults of the model_type's configuration class, used if a field is omitted
    aliases   other spellings of the model_type's fields: {alias: spelling used here}
    prefix    path of keys from the document's root to this mapping
    origin    origin of the fields that are given
    used      fields that were read or that change no count in this family
    assumed fields that were not read and that the user states change no count; of nested blocks too
    origins   {field: (value, origin)} of the fields that were read
    notes notes for the answer
    unlisted  whether a quantized checkpoint keeps modules in 16 bits that nothing here lists
    children  nested blocks that were read as configurations of their own
    unfit     of each field whose value is missing or of another type, where it lies (keys), its spellings, and a value
              with which reading can go on to find what else is wrong; of nested blocks too
    """

    def __init__(
        self,
        name: str,
        document: Document,
        fields: Mapping[str, Any],
        model_type: str,
        defaults: Mapping[str, Any],
        aliases: Mapping[str, str],
        prefix: tuple[str, ...] = (),
        origin: str = GIVEN,
    ) -> None:
        self.name = name
        self.document = document
        self.fields = fields
        self.model_type = model_type
        self.defaults = defaults
        self.aliases = aliases
        self.prefix = prefix
        self.origin = origin
        self.used: set[str] = set()
        self.assumed: set[str] = set()
        self.origins: dict[str, tuple[Any, str]] = {}
        self.notes: list[str] = []
        self.unlisted = False
        self.children: list[Config] = []
        self.unfit: list[tuple[tuple[str, ...], list[str], Any]] = []

    # --- messages ---

    def refuse(self, field: str, what: str, hint: str | None = None) -> Refused:
        """Return the refusal (exit status 3) of a value that napkin does not understand and that could change a
        count."""
        usual = "docs/adding-an-architecture.md shows how to add it"
        return Refused(f"{self.document.place(*self.prefix, field)}: {what}", hint or usual)

    def wrong(self, field: str, what: str, hint: str | None = None) -> NapkinError:
        """Return the error (exit status 2) for a value that the field cannot have."""
        usual = f"the published config.json has the model's {printable(field, 60)}"
        return NapkinError(f"{self.document.place(*self.prefix, field)}: {what}", hint or usual)

    def _unfit(self, field: str, value: Any, problem: NapkinError) -> NapkinError:
        """Return the problem of a field that has no value or one of another type."""
        default = self.defaults.get(field)
        self.unfit.append((self.prefix, self.spellings(field), value if default is None else default))
        return problem

    # --- reading ---

    def spellings(self, field: str) -> list[str]:
        """Return the field's name and its aliases."""
        return [field, *(alias for alias, target in self.aliases.items() if target == field and alias != field)]

    def restate(self, field: str, value: object) -> None:
        """Replace a field's value that the file writes in another form than its class reads."""
        self.fields = {**self.fields, field: value}

    def has(self, field: str) -> bool:
        """Return whether the file gives the field a value other than null."""
        return any(self.fields.get(s) is not None for s in self.spellings(field))

    def raw(self, field: str, *, required: bool = True, default: bool = True, stand_in: object = STAND_IN) -> Any:
        """Return the field's value: given under any of its spellings, else the class default, else None.

        required  refuse (3) a field that has no value
        default   use the class default
        stand_in  the value with which reading goes on, to find what else is wrong
        Spellings that disagree are an error (2). null counts as omitted, except that it replaces the class default.
        """
        found: list[tuple[str, Any]] = []
        for spelling in self.spellings(field):
            if spelling in self.fields:
                self.used.add(spelling)
                if self.fields[spelling] is not None:
                    found.append((spelling, self.fields[spelling]))
        if found:
            spelling, value = found[0]
            for other, second in found[1:]:
                if second != value:
                    raise self.wrong(
                        other, f"{printable(repr(second))} contradicts {spelling} {printable(repr(value))}"
                    )
            self.origins[field] = (value, self.origin)
            return value
        stated_null = any(s in self.fields for s in self.spellings(field))
        if default and not stated_null and field in self.defaults:
            value = self.defaults[field]
            self.origins[field] = (value, CLASS_DEFAULT)
            if value is not None or not required:
                return value
        if required:
            what = "is missing: it is null" if stated_null else "is missing"
            hint = f"add {field} to the config; napkin does not guess it"
            raise self._unfit(field, stand_in, self.refuse(field, what, hint))
        return None

    def derived(self, field: str, value: int) -> int:
        """Return the value that the class derives for an omitted field, and record it as the default."""
        if field in self.defaults:
            self.origins[field] = (value, CLASS_DEFAULT)
        return value

    def integer(self, field: str, *, least: int = 1, default: bool = True) -> int:
        """Return a required integer of at least `least`. `default`: use the class default; a block within another
        model's file always does, for it states only what differs."""
        return self._integer(field, self.raw(field, default=default or bool(self.prefix)), least)

    def optional_integer(self, field: str, *, least: int = 1) -> int | None:
        """Return an integer, or None if the field is null or is omitted and has no default."""
        value = self.raw(field, required=False)
        return None if value is None else self._integer(field, value, least)

    def _integer(self, field: str, value: object, least: int) -> int:
        value = number_in(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            what = f"{printable(repr(value), 60)} is not a whole number"
            raise self._unfit(field, STAND_IN, self.wrong(field, what, "write a whole number"))
        if not least <= value <= LARGEST_DIMENSION:
            what = f"{printable(str(value), 40)} is not between {least} and {LARGEST_DIMENSION:,}"
            hint = f"the published config.json has the model's {field}"
            raise self._unfit(field, STAND_IN, self.wrong(field, what, hint))
        return value

    def real(self, field: str, *, required: bool = True) -> float | None:
        """Return a finite number, or None if a field that is not required has no value."""
        value = number_in(self.raw(field, required=required))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            problem = self.wrong(field, f"{printable(repr(value), 60)} is not a number")
            raise self._unfit(field, 1.0, problem)
        return value

    def flag(self, field: str, *, otherwise: bool | None = None) -> bool:
        """Return true or false; `otherwise` if the field is omitted and has no default."""
        value = self.raw(field, required=otherwise is None, stand_in=False)
        if value is None and otherwise is not None:
            return otherwise
        if not isinstance(value, bool):
            problem = self.wrong(field, f"{printable(repr(value), 60)} is neither true nor false")
            raise self._unfit(field, False, problem)
        return value

    def text(self, field: str, *, known: Iterable[str] = ()) -> str:
        """Return a required string. Refuse (3) one that is not among `known`, if that is given."""
        value = self.raw(field)
        if not isinstance(value, str):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a text")
        known = tuple(known)
        if known and value not in known:
            raise self.refuse(field, f"napkin does not know {printable(value)!r}", did_you_mean(value, known))
        return value

    def optional_text(self, field: str, *, known: Iterable[str] = ()) -> str | None:
        """Return a string, or None if the field has no value."""
        return None if self.raw(field, required=False) is None else self.text(field, known=known)

    def items(self, field: str, *, required: bool = True) -> list[Any] | None:
        """Return a list, or None if a field that is not required has no value."""
        value = self.raw(field, required=required)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a list")
        if len(value) > 10**6:
            raise self.wrong(field, "has more than a million entries")
        return value

    def mapping(self, field: str, *, required: bool = True) -> Mapping[str, Any] | None:
        """Return a mapping, or None if a field that is not required has no value."""
        value = self.raw(field, required=required)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a mapping")
        return value

    def block(
        self, field: str, model_type: str, defaults: Mapping[str, Any], aliases: Mapping[str, str] | None = None
    ) -> Config:
        """Return a mapping as a configuration of its own, with its class's defaults; empty if it is left out."""
        fields = self.mapping(field, required=False) or {}
        return Config(self.name, self.document, fields, model_type, defaults, aliases or {}, (*self.prefix, field))

    def must_be(self, field: str, *values: object) -> None:
        """Refuse (3) a value other than `values`, the only ones that napkin understands, if the class reads it. The
        field may be omitted."""
        value = self.raw(field, required=False)
        if value is not None and value not in values and self.matters(field):
            raise self.refuse(field, f"napkin does not know what {printable(repr(value), 60)} changes here")

    def matters(self, field: str) -> bool:
        """Return whether the class reads the field. One that it does not read is left to the note on unread fields."""
        known = read_by_class(self.model_type)
        if known is None or any(spelling in known for spelling in self.spellings(field)):
            return True
        self.used.difference_update(self.spellings(field))
        self.origins.pop(field, None)
        return False

    def ignore(self, *fields: str) -> None:
        """Mark fields as irrelevant: in this family they change no count."""
        self.used.update(s for f in fields for s in self.spellings(f))

    def nested(self, field: str, model_type: str | None = None, former: str = "") -> Config:
        """Return a nested block (`text_config`) as a Config with its own model_type's defaults and aliases.

        model_type  the block's, if it does not state one, or states the `former` one
        """
        block = self.mapping(field)
        assert block is not None
        kind = block.get("model_type") or model_type
        kind = model_type if former and kind == former else kind
        if not isinstance(kind, str) or not kind:
            raise self.refuse(f"{field}.model_type", "is missing")
        defaults, aliases = held_facts(kind, block)
        child = Config(self.name, self.document, block, kind, defaults, aliases, (*self.prefix, field), self.origin)
        child.notes, child.unfit = self.notes, self.unfit
        child.used.add("model_type")
        self.children.append(child)
        return child

    def divides(self, field: str, total: int, by: int, what: str) -> int:
        """Return total / by. An error (2) names the field where the division leaves a remainder."""
        if by < 1 or total % by:
            raise self.wrong(field, f"{total} {what} is not divisible by {by}")
        return total // by


def number_in(value: object) -> Any:
    """Return the number that a string spells (`"4096"`, `3.35e12` in YAML); any other value unchanged."""
    if not isinstance(value, str):
        return value
    import re  # slow to load: for numbers that are written as text only

    if not re.fullmatch(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", value):
        return value
    return int(value) if value.lstrip("+-").isdigit() else float(value)

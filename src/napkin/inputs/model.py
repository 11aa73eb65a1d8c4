"""A model as given: a config.json (file, folder, standard input), a preset, or a napkin YAML, as a tracked mapping.

Adapters (architectures) read a `Config` field by field; every reading is recorded with its origin, and what
nobody has read and nobody knows to be irrelevant is refused in the end.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.inputs.load import Document, parse_json, parse_yaml, printable, read_json, read_text, read_yaml

if TYPE_CHECKING:
    from napkin.inputs.presets import Preset

GIVEN, CLASS_DEFAULT, PRESET = "given", "class default", "preset"
LARGEST_DIMENSION = 10**9


class Config:
    """The fields of one config.json with their origins.

    name      as messages and answers call the model
    document  where the fields stand, for messages
    fields    the mapping as given
    defaults  the model_type's published defaults (facts), used where a field is omitted
    aliases   this model_type's other spellings: {alias: canonical}
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
        self.origins: dict[str, tuple[Any, str]] = {}
        self.notes: list[str] = []
        self.children: list[Config] = []

    # --- messages ---

    def refuse(self, field: str, what: str, hint: str | None = None) -> Refused:
        """napkin does not understand something that could change a count (exit status 3)."""
        return Refused(f"{self.document.place(*self.prefix, field)}: {what}", hint)

    def wrong(self, field: str, what: str, hint: str | None = None) -> NapkinError:
        """The field's value is not one that it can have (exit status 2)."""
        return NapkinError(f"{self.document.place(*self.prefix, field)}: {what}", hint)

    # --- reading ---

    def spellings(self, field: str) -> list[str]:
        return [field, *(alias for alias, target in self.aliases.items() if target == field and alias != field)]

    def has(self, field: str) -> bool:
        """Whether the file states the field, with a value other than null."""
        return any(self.fields.get(s) is not None for s in self.spellings(field))

    def raw(self, field: str, *, required: bool = True, default: bool = True) -> Any:
        """The field's value: as given under any of its spellings, else the class default, else None or a refusal.

        Spellings that disagree are wrong; a field given as null counts as omitted, but its default is then null."""
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
            raise self.refuse(field, "is missing", f"add {field} to the config; napkin does not guess it")
        return None

    def integer(self, field: str, *, least: int = 1, default: bool = True) -> int:
        """A required whole number of at least `least`."""
        return self._integer(field, self.raw(field, default=default), least)

    def optional_integer(self, field: str, *, least: int = 1) -> int | None:
        """A whole number, or None where the field is null or omitted without a default."""
        value = self.raw(field, required=False)
        return None if value is None else self._integer(field, value, least)

    def _integer(self, field: str, value: Any, least: int) -> int:
        value = number_in(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a whole number", "write a whole number")
        if not least <= value <= LARGEST_DIMENSION:
            raise self.wrong(
                field,
                f"{printable(str(value), 40)} is not between {least} and {LARGEST_DIMENSION:,}",
                f"the published config.json has the model's {field}",
            )
        return value

    def real(self, field: str, *, required: bool = True) -> float | None:
        """A finite number."""
        value = number_in(self.raw(field, required=required))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a number")
        return value

    def flag(self, field: str, *, otherwise: bool | None = None) -> bool:
        """true or false; `otherwise` where omitted and the class has no default."""
        value = self.raw(field, required=otherwise is None)
        if value is None and otherwise is not None:
            return otherwise
        if not isinstance(value, bool):
            raise self.wrong(field, f"{printable(repr(value), 60)} is neither true nor false")
        return value

    def text(self, field: str, *, known: Iterable[str] = ()) -> str:
        """A required text; refused (3) where `known` is given and does not hold it."""
        value = self.raw(field)
        if not isinstance(value, str):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a text")
        known = tuple(known)
        if known and value not in known:
            raise self.refuse(field, f"napkin does not know {printable(value)!r}", did_you_mean(value, known))
        return value

    def optional_text(self, field: str, *, known: Iterable[str] = ()) -> str | None:
        return None if self.raw(field, required=False) is None else self.text(field, known=known)

    def items(self, field: str, *, required: bool = True) -> list[Any] | None:
        """A list."""
        value = self.raw(field, required=required)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a list")
        if len(value) > 10**6:
            raise self.wrong(field, "has more than a million entries")
        return value

    def mapping(self, field: str, *, required: bool = True) -> Mapping[str, Any] | None:
        value = self.raw(field, required=required)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a mapping")
        return value

    def must_be(self, field: str, *values: Any) -> None:
        """Refuse (3) any other value of a field that napkin knows for these alone; omitted is fine."""
        value = self.raw(field, required=False)
        if value is not None and value not in values:
            raise self.refuse(field, f"napkin does not know what {printable(repr(value), 60)} changes here")

    def ignore(self, *fields: str) -> None:
        """Fields that this family knows to change no count."""
        self.used.update(s for f in fields for s in self.spellings(f))

    def nested(self, field: str, model_type: str | None = None) -> Config:
        """A block of its own (`text_config`) as a Config: its model_type's defaults and aliases hold in it."""
        block = self.mapping(field)
        assert block is not None
        kind = block.get("model_type") or model_type
        if not isinstance(kind, str) or not kind:
            raise self.refuse(f"{field}.model_type", "is missing")
        defaults, aliases = class_facts(kind)
        child = Config(self.name, self.document, block, kind, defaults, aliases, (*self.prefix, field), self.origin)
        child.notes = self.notes
        child.used.add("model_type")
        self.children.append(child)
        return child

    def divides(self, field: str, total: int, by: int, what: str) -> int:
        """total / by, wrong (2) where it leaves a rest."""
        if by < 1 or total % by:
            raise self.wrong(field, f"{total} {what} is not divisible by {by}")
        return total // by

    def _said_already(self, field: str) -> bool:
        """Whether the field repeats one that was read, under the name that other model_types have for it."""
        from napkin._tables.class_defaults import ALIASES

        names = {aliases[field] for aliases in ALIASES.values() if field in aliases}
        return any(name in self.origins and self.origins[name] == (self.fields[field], GIVEN) for name in names)

    def finish(self, assume_ignorable: Sequence[str] = ()) -> None:
        """Refuse (3) the fields that nobody has read and nobody knows to be irrelevant, in nested blocks too."""
        for child in self.children:
            child.finish(assume_ignorable)
        from napkin._tables.class_defaults import IGNORABLE, IGNORABLE_PATTERNS, IGNORABLE_WHEN

        allowed = set(assume_ignorable)
        unknown = [
            field
            for field in self.fields
            if field not in self.used
            and field not in allowed
            and field not in IGNORABLE
            and self.fields[field] is not None
            and self.fields[field] not in IGNORABLE_WHEN.get(field, ())
        ]
        if unknown:  # a preset never comes here: the patterns are compiled for users' files alone
            pattern = re.compile("|".join(f"(?:{p})" for p in IGNORABLE_PATTERNS))
            unknown = [field for field in unknown if not pattern.fullmatch(field) and not self._said_already(field)]
        if unknown:
            first = printable(unknown[0], 60)
            more = f" (and {len(unknown) - 1} more: {', '.join(printable(u, 40) for u in unknown[1:6])})" * (
                len(unknown) > 1
            )
            raise self.refuse(
                unknown[0],
                f"napkin does not know whether it changes a count{more}",
                f"--assume-ignorable {first} goes on without it",
            )


def number_in(value: Any) -> Any:
    """A number that stands as text (`"4096"`, `3.35e12` in YAML) as the number it is; anything else as it is."""
    if not isinstance(value, str) or not re.fullmatch(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", value):
        return value
    return int(value) if value.lstrip("+-").isdigit() else float(value)


def class_facts(model_type: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """A model_type's published defaults and aliases; empty where none are known."""
    from napkin._tables.class_defaults import ALIASES, CLASS_DEFAULTS

    return CLASS_DEFAULTS.get(model_type, {}), ALIASES.get(model_type, {})


def measured_modes(model_type: str) -> tuple[str, ...]:
    """Modes of a model_type's training step whose bytes kept for backward were measured (operations/implementations.py
    has the words)."""
    from napkin._tables.saved_bytes import EXACT, MODES

    return MODES[EXACT[model_type][0]] if model_type in EXACT else ()


def traced_steps(model_type: str) -> tuple[int, int, int, float] | None:
    """Of a code's training steps that were traced (tools/traced_steps.py): how many, how many peaks were equal to the
    byte, how many within 1 %, and the error furthest from 0. None: none was."""
    from napkin._tables.traced_steps import TRACED

    return TRACED.get(model_type)


def traced_error(model_type: str) -> float:
    """How far the peaks of traced steps of a code lay from napkin's at most, as a share; of a code of which no step was
    traced, what nine of ten codes that were stay below."""
    from napkin._tables.traced_steps import TRACED

    furthest = sorted(abs(error) for *_, error in TRACED.values())
    return abs(TRACED[model_type][3]) if model_type in TRACED else furthest[len(furthest) * 9 // 10]


def config_from(name: str, document: Document, data: Any, origin: str = GIVEN) -> Config:
    """The mapping of a config.json as a Config. A mapping without model_type is refused (3)."""
    if not isinstance(data, dict):
        raise NapkinError(f"{document.name}: is not a mapping of fields", "give a config.json")
    model_type = data.get("model_type")
    if model_type is None:
        raise Refused(f"{document.name}: model_type is missing", "add the model_type of the published config.json")
    if not isinstance(model_type, str) or not model_type:
        raise NapkinError(f"{document.place('model_type')}: {printable(repr(model_type), 60)} is not a text")
    defaults, aliases = class_facts(model_type)
    config = Config(name, document, data, model_type, defaults, aliases, (), origin)
    config.used.add("model_type")
    return config


def load_config(model: str) -> Config:
    """MODEL as a Config: "-" (standard input), a folder with a config.json, a .json or .yaml file, or a preset."""
    from napkin.inputs.presets import is_preset, preset

    if model == "-":
        return _of_document(_sniffed("-"), "standard input")
    looks_like_file = model.endswith((".json", ".yaml", ".yml")) or os.path.exists(model)
    if os.path.isdir(model):
        inside = os.path.join(model, "config.json")
        looks_like_file = os.path.exists(inside)
        if looks_like_file:
            model = inside
        elif not is_preset(model):
            raise NapkinError(f"{printable(inside)}: there is no such file", "a folder must hold a config.json")
    if looks_like_file:
        kind = os.path.splitext(model)[1]
        document = (
            read_yaml(model) if kind in (".yaml", ".yml") else read_json(model) if kind == ".json" else _sniffed(model)
        )
        folder = os.path.basename(os.path.dirname(os.path.abspath(model)))
        return _of_document(document, folder if os.path.basename(model) == "config.json" else os.path.basename(model))
    return preset_config(preset(model))


def _sniffed(path: str) -> Document:
    """A file whose name does not say what it is: JSON where it begins like JSON, else YAML."""
    text = read_text(path)
    name = printable(path) if path != "-" else "standard input"
    return parse_json(text, name) if text.lstrip()[:1] in ("{", "[", "") else parse_yaml(text, name)


def _of_document(document: Document, name: str) -> Config:
    """A config.json's mapping, or a napkin model's: name, source, config."""
    data = document.data
    if isinstance(data, dict) and isinstance(data.get("config"), dict):
        config = config_from(printable(str(data.get("name", name))), document, data["config"])
        config.prefix = ("config",)
        return config
    return config_from(printable(name), document, data)


def preset_config(preset: Preset) -> Config:
    """A published architecture as a Config."""
    return config_from(preset.name, Document(f"preset {preset.name}", preset.config), preset.config, PRESET)

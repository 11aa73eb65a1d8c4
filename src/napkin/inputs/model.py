"""A model's configuration: a config.json (file, folder, standard input), a preset, or a napkin YAML.

Architectures read a `Config` field by field. Each read is recorded with its origin; at the end, unread.py settles what
becomes of the fields that no one has read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping

from napkin.errors import NapkinError, Refused, did_you_mean
from napkin.inputs.load import STDIN, Document, parse_json, parse_yaml, printable, read_json, read_text, read_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from napkin.inputs.presets import Preset

GIVEN, CLASS_DEFAULT, PRESET = "given", "class default", "preset"
LARGEST_DIMENSION = 10**9
STAND_IN = 64
"""A whole number with which a config without one can be read on."""


class Config:
    """The fields of one config.json, and what was read of them.

    name      the model's, in messages and answers
    document  the file that the fields are from, for messages
    fields    the mapping as given
    defaults  defaults of the model_type's configuration class, used where a field is omitted
    aliases   other spellings of the model_type's fields: {alias: spelling used here}
    prefix    path of keys from the document's root to this mapping
    origin    origin of the fields that are given
    used      fields that were read or that change no count in this family
    assumed   fields that were not read and that the user says change no count; of nested blocks too
    origins   {field: (value, origin)} of the fields that were read
    notes     what the answer should tell the user
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
        self.children: list[Config] = []
        self.unfit: list[tuple[tuple[str, ...], list[str], Any]] = []

    # --- messages ---

    def refuse(self, field: str, what: str, hint: str | None = None) -> Refused:
        """Return the refusal (exit status 3) of what napkin does not understand and could change a count."""
        return Refused(f"{self.document.place(*self.prefix, field)}: {what}", hint)

    def wrong(self, field: str, what: str, hint: str | None = None) -> NapkinError:
        """Return the error (exit status 2) for a value that the field cannot have."""
        return NapkinError(f"{self.document.place(*self.prefix, field)}: {what}", hint)

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
        """Replace what the file states, where it writes a field in another form than the one that its class reads."""
        self.fields = {**self.fields, field: value}

    def has(self, field: str) -> bool:
        """Return whether the file gives the field a value other than null."""
        return any(self.fields.get(s) is not None for s in self.spellings(field))

    def raw(self, field: str, *, required: bool = True, default: bool = True) -> Any:
        """Return the field's value: given under any of its spellings, else the class default, else None.

        required  refuse (3) a field that has no value
        default   use the class default
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
            hint = f"add {field} to the config; napkin does not guess it"
            raise self._unfit(field, STAND_IN, self.refuse(field, "is missing", hint))
        return None

    def derived(self, field: str, value: int) -> int:
        """Return what the class gives an omitted field that it derives from others, and show it as its default."""
        if field in self.defaults:
            self.origins[field] = (value, CLASS_DEFAULT)
        return value

    def integer(self, field: str, *, least: int = 1, default: bool = True) -> int:
        """Return a required integer of at least `least`."""
        return self._integer(field, self.raw(field, default=default), least)

    def optional_integer(self, field: str, *, least: int = 1) -> int | None:
        """Return an integer, or None where the field is null or is omitted and has no default."""
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
        """Return a finite number, or None where a field that is not required has no value."""
        value = number_in(self.raw(field, required=required))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            problem = self.wrong(field, f"{printable(repr(value), 60)} is not a number")
            raise self._unfit(field, 1.0, problem)
        return value

    def flag(self, field: str, *, otherwise: bool | None = None) -> bool:
        """Return true or false; `otherwise` where the field is omitted and has no default."""
        value = self.raw(field, required=otherwise is None)
        if value is None and otherwise is not None:
            return otherwise
        if not isinstance(value, bool):
            problem = self.wrong(field, f"{printable(repr(value), 60)} is neither true nor false")
            raise self._unfit(field, False, problem)
        return value

    def text(self, field: str, *, known: Iterable[str] = ()) -> str:
        """Return a required string. Refuse (3) one that is not among `known`, where that is given."""
        value = self.raw(field)
        if not isinstance(value, str):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a text")
        known = tuple(known)
        if known and value not in known:
            raise self.refuse(field, f"napkin does not know {printable(value)!r}", did_you_mean(value, known))
        return value

    def optional_text(self, field: str, *, known: Iterable[str] = ()) -> str | None:
        """Return a string, or None where the field has no value."""
        return None if self.raw(field, required=False) is None else self.text(field, known=known)

    def items(self, field: str, *, required: bool = True) -> list[Any] | None:
        """Return a list, or None where a field that is not required has no value."""
        value = self.raw(field, required=required)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a list")
        if len(value) > 10**6:
            raise self.wrong(field, "has more than a million entries")
        return value

    def mapping(self, field: str, *, required: bool = True) -> Mapping[str, Any] | None:
        """Return a mapping, or None where a field that is not required has no value."""
        value = self.raw(field, required=required)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(field, f"{printable(repr(value), 60)} is not a mapping")
        return value

    def must_be(self, field: str, *values: object) -> None:
        """Refuse (3) a value other than `values`, the only ones that napkin understands, where the class reads it. The
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

    def nested(self, field: str, model_type: str | None = None) -> Config:
        """Return a nested block (`text_config`) as a Config with its own model_type's defaults and aliases.

        model_type  the block's, where it does not state one
        """
        block = self.mapping(field)
        assert block is not None
        kind = block.get("model_type") or model_type
        if not isinstance(kind, str) or not kind:
            raise self.refuse(f"{field}.model_type", "is missing")
        defaults, aliases = class_facts(kind)
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


def class_facts(model_type: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return a model_type's class defaults and aliases; empty where none are known."""
    from napkin._tables.class_defaults import ALIASES, CLASS_DEFAULTS

    return CLASS_DEFAULTS.get(model_type, {}), ALIASES.get(model_type, {})


def read_by_class(model_type: str) -> Mapping[str, Any] | None:
    """Return the fields that a model_type's class reads, each with the value that its default configuration writes;
    None where transformers has no such class."""
    import json

    from napkin._tables.class_fields import READ

    if model_type not in READ:
        return None
    fields: dict[str, Any] = json.loads(READ[model_type])
    return fields


def registered(model_type: str) -> bool:
    """Return whether transformers has the model_type."""
    from napkin._tables.class_fields import REGISTERED

    return f" {model_type} " in f" {REGISTERED} "


def measured_modes(model_type: str) -> tuple[str, ...]:
    """Return the modes of a model_type's training step whose bytes kept for backward were measured, as
    `operations.implementations.mode` names them."""
    from napkin._tables.saved_bytes import EXACT, MODES

    return MODES[EXACT[model_type][0]] if model_type in EXACT else ()


def traced_steps(model_type: str) -> tuple[int, int, int, float] | None:
    """Return what tracing training steps of a model_type showed (tools/traced_steps.py): the number of steps, of peaks
    equal to the byte, of peaks within 1 %, and the largest error. None: no step was traced."""
    from napkin._tables.traced_steps import TRACED

    return TRACED.get(model_type)


def traced_error(model_type: str) -> float:
    """Return the largest error, as a share, of napkin's peaks for traced steps of a model_type; where no step of it was
    traced, the error that nine in ten of the traced model_types stay below."""
    from napkin._tables.traced_steps import TRACED

    furthest = sorted(abs(error) for *_, error in TRACED.values())
    return abs(TRACED[model_type][3]) if model_type in TRACED else furthest[len(furthest) * 9 // 10]


def config_from(name: str, document: Document, data: Any, origin: str = GIVEN) -> Config:
    """Return the mapping of a config.json as a Config. Refuse (3) one without a model_type."""
    if not isinstance(data, dict):
        raise NapkinError(f"{document.name}: is not a mapping of fields", "give a config.json")
    model_type, told = data.get("model_type"), ""
    if model_type is None:
        from napkin.inputs.foreign import translated

        found = translated(data, document.name)
        if found is not None:
            data, told = found
            model_type = data["model_type"]
    if model_type is None:
        raise Refused(f"{document.name}: model_type is missing", "add the model_type of the published config.json")
    if not isinstance(model_type, str) or not model_type:
        raise NapkinError(f"{document.place('model_type')}: {printable(repr(model_type), 60)} is not a text")
    defaults, aliases = class_facts(model_type)
    config = Config(name, document, data, model_type, defaults, aliases, (), origin)
    config.used.add("model_type")
    if told:
        config.notes.append(told)
    return config


def is_path(text: str) -> bool:
    """Return whether a MODEL can only be a path: a missing file is never taken for the preset of its last part."""
    begins = text.startswith(("./", "../", "/", "~"))
    return begins or text.count("/") > 1 or text.endswith((".json", ".yaml", ".yml"))


def load_config(model: str) -> Config:
    """Return MODEL as a Config: "-" (standard input), a folder with a config.json, a .json or .yaml file, a preset, a
    model of the local Hugging Face cache, or the text of a config.json itself."""
    from napkin.inputs.presets import is_preset, preset

    if model.lstrip().startswith("{"):
        return _of_document(parse_json(model, "MODEL"), "the shape given")

    if model == "-":
        return _of_document(_sniffed("-"), STDIN)
    model = os.path.expanduser(model)
    looks_like_file = is_path(model) or os.path.exists(model)
    if os.path.isdir(model):
        names = ("config.json", "params.json", "model_config.yaml")
        inside = next((at for name in names if os.path.exists(at := os.path.join(model, name))), None)
        looks_like_file = inside is not None
        inside = inside or os.path.join(model, "config.json")
        if looks_like_file:
            model = inside
        elif not is_preset(model):
            raise NapkinError(f"{printable(inside)}: there is no such file", "a folder must hold a config.json")
    if looks_like_file:
        kind = os.path.splitext(model)[1]
        document = (
            read_yaml(model)
            if kind in (".yaml", ".yml")
            else read_json(model, infinite=True)
            if kind == ".json"
            else _sniffed(model)
        )
        folder = os.path.basename(os.path.dirname(os.path.abspath(model)))
        return _of_document(document, folder if os.path.basename(model) == "config.json" else os.path.basename(model))
    if not is_preset(model):
        from napkin.inputs.hf_cache import cached_config

        path = cached_config(model)
        if path is not None:
            return _of_document(read_json(path, infinite=True), f"{model} (local cache)")
    return preset_config(preset(model))


def _sniffed(path: str) -> Document:
    """Read a file whose name does not tell its format: JSON where it begins like JSON, else YAML."""
    text = read_text(path)
    name = printable(path) if path != "-" else STDIN
    if path.endswith(".py"):
        raise Refused(
            f"{name}: is Python, which napkin does not run",
            'write the shape as JSON: {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024}',
        )
    if path.endswith(".toml"):
        raise Refused(
            f"{name}: is TOML, in which training jobs name a model's flavor and not its sizes",
            "give the config.json of the model's Hugging Face export",
        )
    if text.lstrip()[:1] in ("{", "[", ""):
        return parse_json(text, name, infinite=True)
    return parse_yaml(text, name)


def _of_document(document: Document, name: str) -> Config:
    """Return the Config of a config.json, or of a napkin model file (name, source, config)."""
    data = document.data
    if isinstance(data, dict) and isinstance(data.get("config"), dict):
        config = config_from(printable(str(data.get("name", name))), document, data["config"])
        config.prefix = ("config",)
        return config
    return config_from(printable(name), document, data)


def preset_config(preset: Preset) -> Config:
    """Return a published architecture as a Config."""
    return config_from(preset.name, Document(f"preset {preset.name}", preset.config), preset.config, PRESET)

"""How a launch file format is declared: the keys it maps to options, and the keys it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.launch.tables import Tables
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@record
class Key:
    """A key that maps to one option.

    key      its names, newest first, separated by |     option   the napkin option
    read     parses the value; None if it is open        default  the option's value if the key is omitted
    asks     null leaves the option open; otherwise null is the same as omitting the key
    silent   an open value leaves the option unset (max_steps: -1)
    """

    key: str
    option: str
    read: Callable[[object], object]
    default: object = None
    _: KW_ONLY
    asks: bool = False
    silent: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.key.split("|"))


@record
class KeyRule:
    """What several keys mean together.

    keys, options  names separated by spaces     says  the rule in words, for the documentation
    """

    keys: str
    options: str
    says: str
    read: Callable[[Reading], None]


@record
class LaunchFormat:
    """A launch file format.

    name     shown in messages and options    says     the name in words
    source   the public code that defines the keys
    is_this  returns whether a file has this format
    fixed    options that the format implies: trainer, framework
    ignored, not_modelled, refused            key patterns: * matches anything, a block's name matches all of its keys
    translated  returns the source with the keys of another format, whose rules then read it
    """

    name: str
    says: str
    source: str
    is_this: Callable[[LaunchFile], bool]
    keys: tuple[Key, ...] = ()
    rules: tuple[KeyRule, ...] = ()
    _: KW_ONLY
    fixed: Mapping[str, str] = MappingProxyType({})
    ignored: str = ""
    not_modelled: Mapping[str, str] = MappingProxyType({})
    refused: Mapping[str, str] = MappingProxyType({})
    translated: Callable[[LaunchFile], LaunchFile] | None = None

    @property
    def tables(self) -> Tables:
        """The format's patterns for keys without an option, and the keys that its rules read."""
        looked = [name for one in self.keys for name in one.names]
        looked += [key for rule in self.rules for name in rule.keys.split() for key in name.split("|")]
        return Tables(self.name, self.says, self.ignored, self.not_modelled, self.refused, frozenset(looked))


def open_reading(format: LaunchFormat, source: LaunchFile) -> Reading:
    """Return an empty reading of a source in this format."""
    return Reading(format.translated(source) if format.translated is not None else source, format.tables)


def apply(format: LaunchFormat, reading: Reading) -> None:
    """Read every key and rule of a format."""
    for option, value in format.fixed.items():
        reading.put(option, value, format.name, origin="derived")
    for one in format.keys:
        _read_key(one, reading)
    for rule in format.rules:
        rule.read(reading)


def _read_key(one: Key, reading: Reading) -> None:
    """Read one key: set its option to the value or the default, or leave it open."""
    name = reading.named(*one.names)
    if name in reading.source and reading.source.get(name) is None:
        raise reading.source.error(name, "is a block of keys, but a value is expected")
    if reading.find(name) is not None:
        reading.take(one.option, name, one.read, one.silent)
    elif one.asks and name in reading.source:
        reading.ask(one.option, name)
    elif one.default is not None:
        reading.default(one.option, one.default, one.names[0])

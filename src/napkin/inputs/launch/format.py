"""The form in which a format of launch files is declared: its keys, their meanings, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from napkin.inputs.launch.reading import Reading
from napkin.inputs.launch.tables import Tables
from napkin.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from napkin.inputs.launch.source import LaunchFile


@record
class Key:
    """A key that means one option.

    key      its names, the newer first, separated by |         option   the option of napkin
    read     value → the option's value, None where it is open  default  the option's value where the key is left out
    asks     null asks for the option, where it otherwise is the same as leaving the key out
    silent   an open value says nothing about the option (max_steps: -1)
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
    """What several keys mean together. keys and options: with spaces; says: in words, for the documentation."""

    keys: str
    options: str
    says: str
    read: Callable[[Reading], None]


@record
class LaunchFormat:
    """One kind of launch file.

    name     in messages and options          says     in words
    source   the public code that its meanings are taken from
    is_this  whether a file is one
    fixed    options that the format itself fixes: trainer, framework
    ignored, not_modelled, refused            patterns of keys: * stands for anything, a block for all that is in it
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

    @property
    def tables(self) -> Tables:
        """What the format says of keys that mean no option, and which keys its meanings look at."""
        looked = [name for one in self.keys for name in one.names]
        looked += [key for rule in self.rules for name in rule.keys.split() for key in name.split("|")]
        return Tables(self.name, self.says, self.ignored, self.not_modelled, self.refused, frozenset(looked))


def open_reading(format: LaunchFormat, source: LaunchFile) -> Reading:
    """Return an empty reading of a source in a format."""
    return Reading(source, format.tables)


def apply(format: LaunchFormat, reading: Reading) -> None:
    """Read every key and rule of a format."""
    for option, value in format.fixed.items():
        reading.put(option, value, format.name, origin="derived")
    for one in format.keys:
        _read_key(one, reading)
    for rule in format.rules:
        rule.read(reading)


def _read_key(one: Key, reading: Reading) -> None:
    """Read one key: its value, its default, or the question that it leaves open."""
    name = reading.named(*one.names)
    if name in reading.source and reading.source.get(name) is None:
        raise reading.source.error(name, "is a block of keys, where a value belongs")
    if reading.find(name) is not None:
        reading.take(one.option, name, one.read, one.silent)
    elif one.asks and name in reading.source:
        reading.ask(one.option, name)
    elif one.default is not None:
        reading.default(one.option, one.default, one.names[0])

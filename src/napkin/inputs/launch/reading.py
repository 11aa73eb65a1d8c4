"""The options that a launch file sets, the origin of each, and the keys that were not understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from napkin.errors import NapkinError
from napkin.inputs.launch.shapes import preset_with
from napkin.inputs.launch.source import FileValue, LaunchFile
from napkin.inputs.launch.stated import ASSUMED, DEFAULT, DERIVED, FROM_FILE, Said, StatedOption
from napkin.inputs.launch.tables import Tables
from napkin.inputs.launch.values import Open, flag, is_open
from napkin.units import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

DIMENSIONS = [
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "expert_ffn", "experts", "top_k", "shared_experts",
    "dense_layers", "vocab", "positions", "gated", "tied",
]  # fmt: skip
"""Model dimensions in display order."""
BY_PRESENCE = ("adapter", "framework", "implementation", "trainer", "task")
"""Options that the presence of a key can determine, whatever its value."""
LONGEST = 64_000
"""Longest option value, in characters."""


class Reading:
    """The reading of one launch file, filled in by its format's rules.

    inputs    option → StatedOption     shape  the model's dimensions, if the file gives them
    config    the model's config.json   unbuilt  why napkin cannot build the model
    ignored, not_modelled, refused      the other keys
    given_model  the preset that the enclosing file names
    unsized   keys of dimensions that are left to a variable
    used      keys that set an option   covered  keys and blocks that are accounted for otherwise
    """

    def __init__(self, source: LaunchFile, format: Tables) -> None:
        self.source = source
        self.format = format
        self.inputs: dict[str, StatedOption] = {}
        self.shape: dict[str, int | bool] = {}
        self.ignored: list[str] = []
        self.not_modelled: list[Said] = []
        self.refused: list[Said] = []
        self.config: Mapping[str, object] | None = None
        self.unbuilt: NapkinError | None = None
        self.given_model: str | None = None
        self.unsized: list[str] = []
        self._sizes: list[str] = []
        self.used: set[str] = set()
        self.covered: set[str] = set()
        self._said: set[tuple[int, str]] = set()

    # keys of the file

    def find(self, *keys: str) -> FileValue | None:
        """Return the first of these keys whose value is not null."""
        found = (self.source.get(key) for key in keys)
        return next((one for one in found if one is not None and one.value is not None), None)

    def read(self, keys: str, how: Callable[[object], T | None]) -> T | None:
        """Return the value of the first of these keys (separated by |), or None if it is missing or open.

        A value of the wrong type is an error (2). A flag that is off is accounted for.
        """
        value = self.find(*keys.split("|"))
        if value is None or isinstance(value.value, Open):
            return None
        found = self.parsed(value, how)
        if found is False:
            self.told(self.named(*keys.split("|")))
        return found

    def named(self, *keys: str) -> str:
        """Return the first of these keys with a value, else the first in the file, else the first."""
        valued = (key for key in keys if self.find(key) is not None)
        return next(valued, None) or next((key for key in keys if key in self.source), keys[0])

    def take(
        self,
        option: str,
        keys: str,
        how: Callable[[object], T | None],
        silent: bool = False,
        default: object = None,
    ) -> T | None:
        """Set an option from the first of these keys (separated by |) and return its value.

        If the key leaves it open (a shell variable, `auto`, -1), the option is left open too, or unset if `silent`; if
        the file omits it, the option has the framework's `default`, if there is one.
        """
        found, names = self.read(keys, how), keys.split("|")
        if found is not None:
            self.put(option, found, self.named(*names))
            self._disable_others(option, names, how, found)
        elif not silent and self.find(*names) is not None:
            self.ask(option, self.named(*names))
        if default is not None:
            self.default(option, default, self.named(*names))
        return found

    def switch(self, option: str, value: object, key: str) -> None:
        """Set an option to a value where a flag of the file is on."""
        if self.read(key, flag):
            self.put(option, value, key)

    def _disable_others(self, option: str, names: Sequence[str], how: Callable[[object], T | None], found: T) -> None:
        """Say which other names of an option the file gives another value."""
        used = self.named(*names)
        for key in names[names.index(used) + 1 :]:
            value = self.find(key)
            if value is None or isinstance(value.value, Open) or value is self.find(used):
                continue
            if (other := self.parsed(value, how)) not in (found, None):
                self.disable(key, f"{other} has no effect: {used} is {found}", option)

    def parsed(self, value: FileValue, how: Callable[[object], T]) -> T:
        """Return a value parsed by `how`. A value that it cannot parse is an error (2) at its key."""
        try:
            return how(value.value)
        except Unreadable as problem:
            own = value.key.lstrip("-").replace("-", "_")
            key = next((name for name, one in self.source.values.items() if one is value), own)
            bare = value.value is True and self.source.syntax == "shell"
            raise self.source.error(key, "has no value" if bare else problem.reason, problem.hint) from None

    def written(self, *keys: str) -> tuple[str, ...]:
        """Return the keys that the file contains, blocks included, as it spells them."""
        found = []
        for key in keys:
            value = self.source.values.get(key)
            if value is not None:
                found.append(value.key)
            elif key in self.source:
                inner = next(self.source.inside(key))
                whole = self.source.values[inner].key
                found.append(whole[: len(whole) - len(inner) + len(key)])
        return tuple(found)

    # options

    def open_among(self, *keys: str) -> list[str]:
        """Return the keys whose value is a variable or `auto`."""
        stated = ((key, self.source.values.get(key)) for key in keys)
        return [key for key, one in stated if one is not None and (isinstance(one.value, Open) or one.value == "auto")]

    def put(self, option: str, value: object, *keys: str, origin: str = FROM_FILE) -> None:
        """Set an option, or leave it open if one of its keys is open.

        Records the keys that the file contains, or all of them if it contains none.
        """
        self._check_length(value, *keys)
        if origin in (FROM_FILE, DERIVED) and option not in BY_PRESENCE and self.open_among(*keys):
            value = None
        present = self.written(*keys)
        if origin == DERIVED and not present and value is not None and self._is_unstated(option, *keys):
            origin = DEFAULT  # the framework's own value of a key that the file omits
            value = None if self.source.missing else value
        variables: list[str] = []
        for key in keys:
            found = self.source.values.get(key)
            variables += found.variables if found is not None else ()
        if variables and origin in (FROM_FILE, DERIVED):
            origin = DEFAULT
        where = (*dict.fromkeys(variables), *(present or keys))
        place = self.source.place(keys[0]) if keys and keys[0] in self.source.values else self.source.name
        unknown = self._unknown(*keys) if value is None and option not in BY_PRESENCE else ""
        self.inputs[option] = StatedOption(value, origin, ", ".join(where), place, unknown=unknown)
        self.used.update(keys)

    def _unknown(self, *keys: str) -> str:
        """Return what the first open one of these keys depends on."""
        stated = (self.source.values.get(key) for key in keys)
        return next((str(one.value.text) for one in stated if one is not None and isinstance(one.value, Open)), "")

    def _is_unstated(self, option: str, *keys: str) -> bool:
        """Return whether an option rests on keys of its format that the file does not have."""
        return option not in BY_PRESENCE and bool(keys) and all(key in self.format.looked for key in keys)

    def derive(self, option: str, value: object, *keys: str) -> None:
        """Set an option computed from several keys."""
        self.put(option, value, *keys, origin=DERIVED)

    def default(self, option: str, value: object, *keys: str) -> None:
        """Set an option to the framework's default if the file omits it.

        If one of its keys is present but open, such as a shell variable, the option is left open; so it is if the file
        states one that no rule has read.
        """
        if option in self.inputs:
            return
        unread = [key for key in keys if key not in self.source.looked and self.find(key) is not None]
        stated = unread + [key for key in keys if (found := self.find(key)) is not None and is_open(found.value)]
        if stated or self.source.missing:  # a settings file that is not here may set it
            self.ask(option, *(stated or keys), absent="" if stated else self.source.missing[0])
        else:
            self.put(option, value, *keys, origin=DEFAULT)

    def assume(self, option: str, value: object, *keys: str) -> None:
        """Set an option inferred from a name or from common practice."""
        self.put(option, value, *keys, origin=ASSUMED)

    def ask(self, option: str, *keys: str, given: str = "", absent: object = "", why: str = "") -> None:
        """Mark an option as open: the user must set it on the command line.

        absent  the file that sets it     why  why the file does not tell
        """
        self.put(option, None, *keys)
        self._check_length(given, *keys)
        if given or absent or why:
            one, unknown = self.inputs[option], f"{absent} was not found" if absent else why
            self.inputs[option] = StatedOption(None, one.origin, one.where, one.place, given, unknown or one.unknown)

    def spell(self, option: str, given: str) -> None:
        """Keep the file's own text of an option next to its value."""
        one = self.inputs[option]
        if one.value is not None and given != one.value:
            self.inputs[option] = StatedOption(one.value, one.origin, one.where, one.place, given)

    def dimension(self, name: str, value: int | bool | None, *keys: str) -> None:
        """Record a dimension of the model."""
        self.unsized += self.open_among(*keys)
        self._sizes += [key for key in keys if key in self.source and key not in self._sizes]
        if value is not None:
            self.shape[name] = value
        self.used.update(keys)

    def describe(self, *keys: str, origin: str = FROM_FILE) -> None:
        """Set the model from its dimensions, or leave it open if one of them is a variable."""
        if self.unsized:
            self.ask("model", *self.unsized)
            return
        layers, hidden = self.shape.get("layers"), self.shape.get("hidden")
        words = f"{layers or '?'} layers of {hidden or '?'}"
        if self.shape.get("experts"):
            words += f", {self.shape['experts']} experts"
        stated = dict.fromkeys((*(key for key in keys if key in self.source), *self._sizes))
        self.put("model", words, *stated, origin=origin)

    def build(self, how: Callable[[], Mapping[str, object] | None]) -> None:
        """Keep the model's config.json, or the reason napkin cannot build it."""
        if self.unsized:
            return
        try:
            self.config = how()
        except NapkinError as problem:
            self.unbuilt = problem
        name = preset_with(self.config) if self.config is not None else None
        entry = self.inputs.get("model")
        if name is not None and entry is not None:
            self.inputs["model"] = StatedOption(name, DERIVED, entry.where, entry.place)

    def omit(self, key: str, why: str) -> None:
        """Report a key that could affect memory or time but is not modeled."""
        self._say(self.not_modelled, key, why)

    def refuse(self, key: str, why: str, option: str = "") -> None:
        """Report a key that would make the answer wrong, unless the command line sets `option`."""
        self._say(self.refused, key, why, option)

    def contradict(self, key: str, why: str, *options: str) -> None:
        """Report a contradiction among keys, unless the command line sets one of their options.

        key  the one that is most likely wrong
        """
        self._say(self.refused, key, why, options[0], options)

    def disable(self, key: str, why: str, *options: str) -> None:
        """Report a key without effect next to keys of these options: it changes no answer, and lint names it."""
        self._say(self.not_modelled, key, why, options[0], options)

    def ignore(self, *keys: str) -> None:
        """Record keys that affect neither memory nor time."""
        for key in keys:
            fresh = [one for one in self.written(key) if (id(self.ignored), one) not in self._said]
            self.ignored += fresh
            self._said.update((id(self.ignored), one) for one in fresh)
        self.covered.update(keys)

    def told(self, *keys: str) -> None:
        """Mark keys, or all keys of blocks, as accounted for."""
        self.covered.update(keys)

    def value_of(self, option: str) -> Any:
        """Return an option's value as read so far."""
        entry = self.inputs.get(option)
        return entry.value if entry is not None else None

    def _say(self, where: list[Said], key: str, why: str, option: str = "", clash: tuple[str, ...] = ()) -> None:
        shown = next(iter(self.written(key)), key)
        if (id(where), shown) not in self._said:
            self._said.add((id(where), shown))
            placed = clash or where is self.refused
            where.append(Said(shown, why, option, clash, self.source.place(key) if placed else ""))
        self.covered.add(key)

    def _check_length(self, value: object, *keys: str) -> None:
        if isinstance(value, str) and len(value) > LONGEST:
            raise self.source.error(keys[0], f"is a text of more than {LONGEST:,} characters")

    def adopt(self, inner: Reading, block: str) -> None:
        """Merge the reading of a block of this file."""
        self.inputs |= inner.inputs
        self.shape |= inner.shape
        self.ignored += [one for one in inner.ignored if one not in self.ignored]
        self.not_modelled += inner.not_modelled
        self._said |= {(id(self.not_modelled), one.key) for one in inner.not_modelled}
        self.refused += inner.refused
        self.config, self.unbuilt = inner.config or self.config, inner.unbuilt or self.unbuilt
        self.told(block)

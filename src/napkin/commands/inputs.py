"""The inputs of one question: the given options, parsed once, with their origins. The answer lists every input that was
read."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from napkin.commands.signature import OptionText, Signature
from napkin.commands.uses import Reason, Uses
from napkin.errors import NapkinError, Problems
from napkin.options.command_line import Text, changed, pieces_of, typed
from napkin.options.option import NONE, Choice, Option, Parsed
from napkin.options.registry import OPTIONS, spelled
from napkin.render.answer import Cell, Shown
from napkin.term import ASSUMED, GIVEN, SEEN, Term, leaf
from napkin.units import EXAMPLES, Unreadable

IN_POWERS_OF_TWO = ("seq", "target-seq", "batch", "micro-batch", "global-batch", "vocab")
"""Options where many users mean 8,192 by `8k`; a note says that it is 8,000."""

_IN_FILES = {None: "null", True: "true", False: "false"}


class Inputs(Uses):
    """The resolved inputs of one question.

    `text`, `integer`, `number` and `flag` return an option's value, or its default; `…_or_none` if it may be absent.
    A given option whose value is never read is rejected at the end (`unused`). `has` and `in` do not count as reading.
    An option given as `none` (`declined`) is as one that was left out, but takes no default.
    """

    def __init__(self, command: Signature, given: Mapping[str, OptionText], only: Container[str] | None = None) -> None:
        super().__init__()
        self.command = command
        self.given = dict(given)
        self.declined: dict[str, OptionText] = {}
        self.shown: dict[str, Shown] = {}
        self._only = only
        problems: list[NapkinError] = []
        for name, one in given.items():
            try:
                self._accept(name, one)
            except NapkinError as problem:
                problems.append(problem)
        if problems:
            raise problems[0] if len(problems) == 1 else Problems(problems)

    def _accept(self, name: str, one: OptionText) -> None:
        option = OPTIONS[name]
        where = one.where or option.shown
        value: Parsed
        if option.flag:
            if not isinstance(one.text, bool):
                raise NapkinError(f"{where}: {one.text!r} is neither true nor false", "write true or false")
            value = one.text
        elif option.many:
            value = tuple(one.text) if isinstance(one.text, (str, tuple, list)) else ()
        else:
            value = self._read(option, one.text, where)
        text = None if isinstance(one.text, (bool, tuple, list)) else str(one.text)
        place = "" if one.origin == "given" else one.where
        if one.where and one.origin == "given":
            from napkin.options.synonyms import reading  # only if a name is not napkin's own

            self.assumed += reading(name, one.where)
        self.shown[name] = Shown(value, text, one.origin, option.unit, place)
        if value is None:
            self.declined[name] = one
            self.given.pop(name, None)

    def _read(self, option: Option, text: object, where: str) -> Parsed:
        if isinstance(text, bool) or text is None or isinstance(text, (list, dict)):
            shown = _IN_FILES[text] if text is None or isinstance(text, bool) else repr(text)[:60]
            raise NapkinError(f"{where}: {shown} is not a number or a text", option.help)
        written = repr(text) if isinstance(text, float) else str(text)
        if any(not c.isprintable() for c in written):
            raise NapkinError(f"{where}: {written[:60]!r} holds control characters", "write it in plain characters")
        try:
            value = self.command.reads.get(option.name, option.parse)(written)
        except Unreadable as problem:
            own = self.command.reads.get(option.name)
            usage = f"{option.shown} {' or '.join(own.words)}" if isinstance(own, Choice) else option.usage
            hint = usage if problem.hint in (None, EXAMPLES) else problem.hint
            from napkin.commands.several import several

            asked = several(self.command, option, written)
            raise NapkinError(
                f"{where}: {asked.reason if asked else problem.reason}", asked.hint if asked else hint
            ) from None
        if isinstance(value, int) and option.name in IN_POWERS_OF_TWO and written.strip().lower().endswith("k"):
            binary = f"{written.strip()[:-1].rstrip()}Ki"
            said = f"{option.name} {written.strip()} = {value:,} ({binary} = {value * 1024 // 1000:,})"
            self.note(said)
            self.assume(said)
        return value

    def _name(self, spelling: str) -> str:
        return spelled(spelling, self.command.names) or spelling

    def changed(self, changes: Mapping[str, str | bool | None]) -> Inputs:
        """Return the inputs of the same question with other texts for some options; None omits an option."""
        texts = {self._name(name): None if text is None else OptionText(text) for name, text in changes.items()}
        return Inputs(self.command, changed({**self.given, **self.declined}, texts), self._only)

    def texts_given(self) -> dict[str, Text]:
        """Return the given options as they can be typed again, in the order of the registry, so that a question has one
        canonical line. Options of a shared file that only other commands take are omitted."""
        takes, given = self.command.names, {**self.given, **self.declined}
        return {
            name: typed(given[name].text)
            for name in OPTIONS
            if name in given and (name in takes or not given[name].shared)
        }

    def means(self, name: str, meant: str) -> None:
        """Read a given option as a synonym of another one in this question."""
        one = self.given[name]
        text = OptionText(one.text, one.origin, one.where or OPTIONS[name].shown, one.shared)
        items = [(other, kept) for other, kept in self.given.items() if other != meant]
        self.given = {meant if other == name else other: text if other == name else kept for other, kept in items}
        self.shown.pop(name)
        self._accept(meant, text)

    def command_line(self, command: str, changes: Mapping[str, str | bool | None]) -> str:
        """Return the same question, with other texts for some options, as a line to paste; None leaves one out."""
        named = {self._name(name): text for name, text in changes.items()}
        return " ".join(pieces_of(command, self.texts_given(), named))

    def wants(self, path: str) -> bool:
        """Return whether this quantity of the answer is needed. A command that runs another often needs only a few."""
        return self._only is None or path in self._only

    def __contains__(self, name: str) -> bool:
        """Return whether the option was given: by the user, a file or a preset, not by a default."""
        return name in self.shown and name not in self.declined and self.shown[name].origin != "default"

    def has(self, name: str) -> bool:
        """Return whether the option has a value, given or default."""
        return self.peek(name) is not None

    def value(self, name: str) -> Cell:
        """Return the value, else the command's default, else None; for code that treats all options alike."""
        self._seen.add(name)
        if name in self.command.defaults:
            self._defaults.setdefault(name, self.command.defaults[name])
        return self.peek(name)

    def peek(self, name: str) -> Cell:
        """Return the value as `value` does, without marking it as read."""
        if name not in self.shown and name in self.command.defaults:
            self.default(name, self.command.defaults[name])
        shown = self.shown.get(name)
        return None if shown is None else shown.value

    def text_or_none(self, name: str) -> str | None:
        """Return the value of an option that is a text, or None."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"--{name} is not a text")
        return value

    def integer_or_none(self, name: str) -> int | None:
        """Return the value of an option that is a whole number, or None."""
        value = self.value(name)
        if value is not None and not isinstance(value, int):
            raise TypeError(f"--{name} is not a whole number")
        return value

    def number_or_none(self, name: str) -> int | float | None:
        """Return the value of an option that is a number in base units, or None."""
        value = self.value(name)
        if value is not None and not isinstance(value, (int, float)):
            raise TypeError(f"--{name} is not a number")
        return value

    def flag_or_none(self, name: str) -> bool | None:
        """Return whether a flag is set, or None if it was not given."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"--{name} is not a flag")
        return value

    def text(self, name: str, why: str = "", default: str | None = None) -> str:
        """Return the value of an option that is a text; an error with `why` if it is missing."""
        self._fill(name, why, default)
        return self.text_or_none(name) or ""

    def integer(self, name: str, why: str = "", default: str | None = None) -> int:
        """Return the value of an option that is a whole number; an error with `why` if it is missing."""
        self._fill(name, why, default)
        return self.integer_or_none(name) or 0

    def number(self, name: str, why: str = "", default: str | None = None) -> int | float:
        """Return the value of an option that is a number; an error with `why` if it is missing."""
        self._fill(name, why, default)
        return self.number_or_none(name) or 0

    def flag(self, name: str) -> bool:
        """Return whether a flag is set."""
        return bool(self.flag_or_none(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the value of an option that is a list of texts; empty if it was not given."""
        return tuple(str(one) for one in self._listed(name))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return the value of an option that is a list of whole numbers; empty if it was not given."""
        return tuple(one for one in self._listed(name) if isinstance(one, int))

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return the value of an option that is a list of (times, number); empty if it was not given."""
        return tuple((one[0], one[1]) for one in self._listed(name) if isinstance(one, tuple))

    def _listed(self, name: str) -> tuple[Cell, ...]:
        value = self.value(name)
        if value is not None and not isinstance(value, (tuple, list)):
            raise TypeError(f"--{name} is not a list")
        return tuple(value or ())

    def _fill(self, name: str, why: str, default: str | None) -> None:
        """Take the default if there is no value; an error with `why` if there is no default either."""
        if default is not None:
            self.default(name, default)
        elif not self.has(name):
            self.need(name, why)

    def need(self, name: str, why: str = "") -> None:
        """Raise an error if the option has no value; why: the question that it answers."""
        self.need_all({name: why})

    def need_all(
        self, whys: Mapping[str, str], more: Iterable[NapkinError] = (), usages: Mapping[str, str] | None = None
    ) -> None:
        """Raise one error that names all missing options. whys: option → the question that it answers; more: what else
        is missing; usages: what an option counts here, if that differs from its help."""
        said = dict(usages or {})
        if any(one.origin == "from file" for one in self.given.values()):
            said.setdefault("model", f"the file names none: napkin {self.command.name} MODEL --from FILE")
        missing = [
            NapkinError(
                f"{OPTIONS[name].shown} is missing{f': {why}' if why else ''}", said.get(name, OPTIONS[name].usage)
            )
            for name, why in whys.items()
            if not self.has(name)
        ]
        missing += more
        if missing:
            raise missing[0] if len(missing) == 1 else Problems(missing)

    def default(self, name: str, text: str | bool) -> None:
        """Use `text` for an option that was not given; its origin is `default`."""
        self._defaults[name] = text
        if name not in self.shown:
            self._accept(name, OptionText(text, "default"))

    def defaults(self, texts: Mapping[str, str | bool]) -> None:
        """Use these texts for options that were not given."""
        for name, text in texts.items():
            self.default(name, text)

    def told(self) -> dict[str, Shown]:
        """Return what the answer lists: every input, with its origin."""
        told = dict(self.shown)
        for name in self.declined:
            one = told[name]
            told[name] = Shown(NONE, one.text, one.origin, one.unit, one.where)
        for name in self._guessed:
            if name in told and told[name].origin == "default":
                one = told[name]
                told[name] = Shown(one.value, one.text, "assumed", one.unit, one.where)
        return told

    def redefault(self, name: str, text: str) -> None:
        """Change the default of an option that was not given."""
        if name not in self:
            self.shown.pop(name, None)
            self.default(name, text)

    def record(self, name: str, value: Cell, origin: str, unit: str = "1", text: str | None = None) -> None:
        """Record an input that has no option (from a preset or a class default)."""
        self.shown[name] = Shown(value, text, origin, unit)

    def origin(self, name: str) -> str:
        """Return where the value comes from: given, run file, default and so on."""
        return self.shown[name].origin

    def term(self, name: str, path: str = "") -> Term:
        """Return the option's value as a leaf of the tree."""
        value = self.number(name)
        shown = self.shown[name]
        kind = {"default": ASSUMED, "evidence": SEEN}.get(shown.origin, GIVEN)
        return leaf(path or name.replace("-", "_"), value, shown.unit, kind)

    def unused(self) -> dict[str, Reason | None]:
        """Return the given options that the answer does not depend on, with the reason if it was recorded. Options that
        repeat their default are omitted."""
        result: dict[str, Reason | None] = {}
        for name in self.given:
            used = name in self._seen and (name not in self._idle or name in self._matter)
            if not used and not self.is_default(name):
                result[name] = self._reasons.get(name)
        return result

    def without(self, name: str) -> dict[str, OptionText]:
        """Return the given options except one."""
        return {other: one for other, one in self.given.items() if other != name}

    def is_default(self, name: str) -> bool:
        """Return whether the option's value equals its default in this question."""
        option = OPTIONS[name]
        if name in self.repeats:
            return True
        if name not in self._defaults:
            return option.flag and name in self._seen and not self.shown[name].value
        default = self._defaults[name]
        return bool(self.shown[name].value == (default if option.flag else option.parse(str(default))))

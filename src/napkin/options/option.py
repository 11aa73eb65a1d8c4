"""An option: its name, the parser of its text, its unit, and its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napkin import units
from napkin.errors import NapkinError, did_you_mean
from napkin.record import record

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from dataclasses import KW_ONLY
    from typing import TypeVar

    _Value = TypeVar("_Value")

Parsed = str | int | float | bool | Sequence["Parsed"] | None
"""The type that a parser returns; None: not used (`or_none`)."""

NONE = "none"


@record
class Option:
    """One option, or one argument where `positional`.

    name     as typed after the dashes          parse   text to value in base units; raises units.Unreadable
    unit     unit of the value                  flag    present or absent (--x / --no-x)
    many     an argument that takes several words       metavar  the placeholder of the value in help
    short    one letter, with its dash: -o              default  what holds without it, if no command says
    """

    name: str
    parse: Callable[[str], Parsed]
    help: str
    unit: str = "1"
    metavar: str = "TEXT"
    _: KW_ONLY
    flag: bool = False
    positional: bool = False
    many: bool = False
    short: str = ""
    default: str = ""

    @property
    def key(self) -> str:
        """The name as an identifier of Python."""
        from keyword import iskeyword  # help alone asks

        word = self.name.replace("-", "_")
        return f"{word}_" if iskeyword(word) else word

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words that the value may be, if there are few."""
        return words_of(self.parse)

    @property
    def shown(self) -> str:
        """The name as messages write it: `--gpus`, or `MODEL` for an argument."""
        return self.metavar.rstrip(".") if self.positional else f"--{self.name}"

    @property
    def usage(self) -> str:
        """Return the usage line: `--gpus N: total number of GPUs`."""
        first = self.help.partition(" ")[0]  # a name such as ZeRO or FLOPs keeps its letters
        said = self.help if any(c.isupper() for c in first[1:]) else self.help[0].lower() + self.help[1:]
        return f"{self.shown}{'' if self.positional or self.flag else f' {self.metavar}'}: {said}"


def flag(name: str, help: str, short: str = "", default: str = "") -> Option:
    """Return an option that is present or absent."""
    return Option(name, str, help, flag=True, short=short, default=default)


class Choice:
    """A parser that accepts only these words, in any letter case."""

    __slots__ = ("words",)

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def __call__(self, text: str) -> str:
        word = text.strip().lower()
        if word not in self.words:
            raise units.Unreadable(
                f"{text.strip()[:60]!r} is not one of {', '.join(self.words)}",
                did_you_mean(word, self.words),
            )
        return word


def choice(*words: str) -> Choice:
    """Return a parser that accepts only these words, in any letter case."""
    return Choice(words)


class OrNone:
    """A parser that reads `none` as None: the option is not used, as if it were left out, also where a file or a
    library states another value."""

    __slots__ = ("parse", "words")

    def __init__(self, parse: Callable[[str], Parsed]) -> None:
        self.parse = parse
        self.words = words_of(parse)

    def __call__(self, text: str) -> Parsed:
        return None if text.strip().lower() == NONE else self.parse(text)


def or_none(parse: Callable[[str], Parsed]) -> OrNone:
    """Return a parser that also reads `none`: the option is not used."""
    return OrNone(parse)


def words_of(parse: Callable[[str], Parsed]) -> tuple[str, ...]:
    """Return the words that a parser accepts, if there are few."""
    return parse.words if isinstance(parse, (Choice, OrNone)) else ()


def parsed(parse: Callable[[str], _Value], text: str, where: str) -> _Value:
    """Return the value of a text; `where` begins the error's message if it cannot be read."""
    try:
        return parse(text)
    except units.Unreadable as problem:
        raise NapkinError(f"{where}: {problem.reason}", problem.hint) from None

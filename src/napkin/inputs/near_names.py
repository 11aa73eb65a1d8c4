"""Which published models a name that has no preset may mean: a slip of the fingers, or others of its family.

A name is its words and its numbers: `Llama-3.1-8B-Instruct` is llama with 3.1 and 8. Another version is another model,
however near its number is: GLM-4.6 is no slip of GLM-4.5.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping

from napkin.record import record

ALIKE = 0.75
"""Least likeness of two words of which one is a slip of the other: quen and qwen."""
LONG = 4
"""Least letters of a word that changes no shape, of which slips are known: vit is none of it."""
MOST = 3
"""Most models that a hint names."""
_PARTS = re.compile(r"(?<![a-z])a(?=\d)|\d+(?:\.\d+)?(?:x\d+(?:\.\d+)?)?(?:(?:b+|m|k)(?![a-z]))?|[a-z]+")
_TUNED = ("instruct", "chat", "it", "base", "hf", "meta", "v")
"""Words that change no shape."""


@record
class NameParts:
    """words; numbers without their units, and whether each has one (3.1 and 8B: False, True)."""

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    units: tuple[bool, ...]

    @property
    def version(self) -> str:
        """The leading number that counts no parameters; "" if none."""
        return self.numbers[0] if self.numbers and not self.units[0] else ""


def parts_of(name: str, typed: bool = False) -> NameParts:
    """Return the words and numbers of a name without its organization. typed: it may hold slips."""
    found = [one for one in _PARTS.findall(name.lower().rpartition("/")[2]) if one != "a"]
    words = [one for one in found if one[0].isalpha() and not (_is_tuned(one) if typed else one in _TUNED)]
    numbers = [one for one in found if one[0].isdigit()]
    plain = [one.rstrip("bmk") for one in numbers]
    return NameParts(tuple(words), tuple(plain), tuple(a != b for a, b in zip(plain, numbers, strict=True)))


def _is_tuned(word: str) -> bool:
    return word in _TUNED or any(len(tuned) >= LONG and _alike(word, tuned) for tuned in _TUNED)


def meant_by(name: str, spelled: Mapping[str, str]) -> list[str]:
    """Return the models that a name is a slip of, the likest first: like words, and the same numbers, of which the name
    may lack points, units and the last ones; without words (`8x7B`), the first ones.

    spelled  a model's name or alias → the model
    """
    own = parts_of(name, typed=True)
    mine = _digits(own)
    if not own.words and not name[:1].isdigit():
        return []

    def same(other: NameParts) -> bool:
        its = _digits(other)
        begins = its[: len(mine)] == mine or (not own.words and its[-len(mine) :] == mine)
        return begins and bool(mine or not its) and _of_like_words(own, other)

    return _likest(name, spelled, same)


def nearest(name: str, spelled: Mapping[str, str]) -> list[str]:
    """Return the models that a name is a slip of, else those alike. The same words in another version or size are
    nearer than a slip of a word: `llama-8b` means a llama3-8b before a llasa-8b."""
    slips, own = meant_by(name, spelled), parts_of(name, typed=True).words
    others = of_size(name, spelled) or relatives_of(name, spelled)
    exact = [one for one in others if parts_of(one).words == own]
    return exact if exact and not any(parts_of(one).words == own for one in slips) else slips or others


def relatives_of(name: str, spelled: Mapping[str, str]) -> list[str]:
    """Return models of the same words and version in other sizes, the likest first."""
    own = parts_of(name, typed=True)
    if not own.words:
        return []
    return _likest(name, spelled, lambda one: one.version == own.version and _of_like_words(own, one))


def of_size(name: str, spelled: Mapping[str, str]) -> list[str]:
    """Return models of the same words and size, of any version, for a name that has none: `llama-8b`."""
    own = parts_of(name, typed=True)
    sizes = _sizes(own)
    if not own.words or own.version or not sizes:
        return []
    return _likest(name, spelled, lambda one: _sizes(one) == sizes and _of_like_words(own, one))


def _sizes(parts: NameParts) -> tuple[str, ...]:
    return tuple(number for number, unit in zip(parts.numbers, parts.units, strict=True) if unit)


def alike_but_for_words(name: str, spelled: Mapping[str, str]) -> list[str]:
    """Return models with all numbers of a name and some of its words: qwen2.5-7b for qwen2.5-omni-7b."""
    own = parts_of(name, typed=True)

    def fits(one: NameParts) -> bool:
        more = {*own.words} - {*one.words}
        within = bool(one.words) and {*one.words} < {*own.words}
        return within and _digits(one) == _digits(own) and all(len(word) > 1 for word in more)

    return _likest(name, spelled, fits)


def _digits(parts: NameParts) -> tuple[str, ...]:
    return tuple(one.replace(".", "") for one in parts.numbers)


def _likest(name: str, spelled: Mapping[str, str], fits: Callable[[NameParts], bool]) -> list[str]:
    last = name.lower().rpartition("/")[2]
    found = [one for one in spelled if fits(parts_of(one))]
    found.sort(key=lambda one: -difflib.SequenceMatcher(None, last, one.lower()).ratio())
    return list(dict.fromkeys(spelled[one] for one in found))[:MOST]


def _of_like_words(own: NameParts, other: NameParts) -> bool:
    """Return whether each word of either name is like one of the other's, or both are one word when joined."""
    if not own.words or "".join(own.words) == "".join(other.words):
        return True
    return _all_like(own.words, other.words) and _all_like(other.words, own.words)


def _all_like(words: Iterable[str], others: Iterable[str]) -> bool:
    return all(any(_alike(word, other) for other in others) for word in words)


def _alike(word: str, other: str) -> bool:
    if len(word) == 1 or len(other) == 1:
        return word == other
    return difflib.SequenceMatcher(None, word, other).ratio() >= ALIKE

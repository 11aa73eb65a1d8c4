"""Every rule by its number, and the selection of rules."""

from __future__ import annotations

from collections.abc import Sequence

from napkin.errors import NapkinError, did_you_mean
from napkin.rules import contradictions, memory_rules, money_rules, time_rules, tuning_rules
from napkin.rules.rule import Contradiction, Law, Rule

CONTRADICTIONS: tuple[Contradiction, ...] = contradictions.RULES
RULES: tuple[Rule, ...] = (
    *time_rules.RULES,
    *memory_rules.RULES,
    *money_rules.RULES,
    *tuning_rules.RULES,
)
GROUPS = {
    "N1": "Time",
    "N2": "Memory",
    "N3": "Money and operation",
    "N4": "Contradictions",
    "N5": "Fine-tuning and data",
}
"""Prefix of a rule's number → title of its group."""


def laws() -> list[Law]:
    """Return every rule, by number."""
    return sorted((*RULES, *CONTRADICTIONS), key=lambda rule: rule.number)


def is_number(word: str) -> bool:
    """Return whether a word has the form of a rule's number: N101."""
    return len(word) == 4 and word[0] in "nN" and word[1:].isdigit()


def is_known(word: str) -> bool:
    """Return whether a word is a rule's number or name."""
    return any(word.strip().lower() in (rule.number.lower(), rule.name) for rule in laws())


def find(number: str) -> Law:
    """Return a rule by its number or name; an unknown one is an error (2) with the nearest."""
    known = {word: rule for rule in laws() for word in (rule.number.lower(), rule.name)}
    word = number.strip().lower()
    if word not in known:
        hint = did_you_mean(word, [*known]) or "napkin lint --rules lists them"
        raise NapkinError(f"no such rule {number.strip()[:60]!r}", hint)
    return known[word]


def prefixes(text: str, where: str) -> tuple[str, ...]:
    """Return `N1,N203,pipeline-bubble` as prefixes of rule numbers; an unknown one is an error (2)."""
    beginnings = (*GROUPS, *(rule.number for rule in laws()))
    found = []
    for word in text.split(","):
        plain = word.strip().upper()
        if plain in ("ALL", "N"):
            found.append("N")
        elif plain and any(one.startswith(plain) for one in beginnings):
            found.append(plain)
        else:
            try:
                found.append(find(word).number)
            except NapkinError as problem:
                raise problem.at(where) from None
    return tuple(found)


def is_selected(rule: Law, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """Return whether a rule is selected: the longer matching prefix among select and ignore decides, as in ruff; ignore
    wins ties."""
    chosen = max((len(one) for one in select if rule.number.startswith(one)), default=-1)
    left = max((len(one) for one in ignore if rule.number.startswith(one)), default=-1)
    return chosen > left

"""Tell a slip of the fingers from another word: how many of a word's letters may be wrong, and which word was meant.

A list of words that is whole (the fields of a class, the keys of a row) has no other words near it, so a slip may be as
long as two letters in eight. A launch file has many words that napkin does not know, and max_length is no slip of
min_length, so there a slip is shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Wrong = Callable[[str], int]
"""A known word → how many of its letters may be wrong in a slip."""


def in_whole_list(known: str) -> int:
    """Return how many letters may be wrong in a word of a list without other words near it."""
    return 0 if len(known) < 4 else 1 if len(known) < 8 else 2


def among_others(known: str) -> int:
    """Return how many letters may be wrong among words that are not known: none of a short one, which is like too
    many."""
    return 0 if len(known) < 5 else 1 if len(known) < 12 else 2


def among_keys(known: str) -> int:
    """Return how many letters may be wrong among the keys of a file: none of two letters, which are like too many (tp,
    pp, dp)."""
    return 1 if 3 <= len(known) < 5 else among_others(known)


def slip_of(word: str, known: Iterable[str], wrong: Wrong = in_whole_list) -> str:
    """Return the known word that a word misspells, the likest; "" if it is one of them, or like none."""
    words = tuple(known)
    alike = {one: wrong(one) for one in words if abs(len(one) - len(word)) <= wrong(one)}
    far = {one: distance(word, one, most) for one, most in alike.items()}
    near = [one for one in far if far[one] <= alike[one]]
    return "" if word in words else min(near, key=far.__getitem__, default="")


def distance(word: str, other: str, most: int) -> int:
    """Return how many letters to add, remove, change or swap with their neighbor; more than `most` is `most` + 1."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]

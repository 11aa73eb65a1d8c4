"""The terms of an answer as one flat table: each term once, under a unique path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from napkin.term import Term


class TermEntry:
    """A term of the table and the paths of its parts."""

    __slots__ = ("parts", "term")

    def __init__(self, term: Term, parts: list[str]) -> None:
        self.term = term
        self.parts = parts


def table_of(published: Sequence[Term]) -> dict[str, TermEntry]:
    """Return the published terms, then all those below them, by path.

    Terms with the same value, unit, source and parts whose names end in the same word are one entry, under the path of
    the first: what two layer types have in common is written once. A published term always has its own entry. The path
    of a term is its name; if different terms share a name, the path of those that are not published is `PATH OF THE
    FIRST PARENT/NAME`."""
    terms, parts, roots = _distinct(published)
    having = Counter(term.name for term in terms)
    paths: dict[int, str] = {}
    taken: set[str] = set()

    def place(index: int, path: str) -> None:
        number = 1
        paths[index] = path
        while paths[index] in taken:  # two terms of one name below one parent
            number += 1
            paths[index] = f"{path}#{number}"
        taken.add(paths[index])

    for root in roots:
        if root not in paths:
            place(root, terms[root].name)
    waiting = list(reversed(roots))
    walked: set[int] = set()
    while waiting:
        parent = waiting.pop()
        if parent in walked:
            continue
        walked.add(parent)
        for part in parts[parent]:
            if part not in paths:
                name = terms[part].name
                place(part, name if having[name] == 1 else f"{paths[parent]}/{name}")
        waiting.extend(reversed(parts[parent]))
    return {path: TermEntry(terms[i], [paths[part] for part in parts[i]]) for i, path in paths.items()}


def _distinct(published: Sequence[Term]) -> tuple[list[Term], list[tuple[int, ...]], list[int]]:
    """Return the terms of different content, for each the indices of its parts, and the indices of the published."""
    terms: list[Term] = []
    parts: list[tuple[int, ...]] = []
    of_content: dict[tuple[object, ...], int] = {}
    of_term: dict[int, int] = {}
    own = {id(term) for term in published}

    def index(term: Term) -> int:
        if id(term) not in of_term:
            below = tuple(index(part) for part in term.parts)
            name = term.name if id(term) in own else term.name.rpartition("/")[2]
            content = (id(term) in own, name, term.value, term.unit, term.op, term.kind, term.source, below)
            if content not in of_content:
                of_content[content] = len(terms)
                terms.append(term)
                parts.append(below)
            of_term[id(term)] = of_content[content]
        return of_term[id(term)]

    return terms, parts, [index(term) for term in published]

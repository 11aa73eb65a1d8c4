"""The functions of a shell script: their definitions, their arguments and their local variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from napkin.inputs.launch.shell.values import Variables
from napkin.inputs.launch.shell.words import Statement
from napkin.record import replace

_NAME = re.compile(r"[A-Za-z_][\w:.\-]*")
_CLOSING = {"{": "}", "(": ")"}
DEEPEST_CALL = 10
MOST_CALLS = 500


class _Definition:
    """A function whose body is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.body: list[Statement] = []
        self._opening = ""
        self._depth = 0

    def add(self, one: Statement) -> bool:
        """Add a statement to the body. Return whether that was its last."""
        words = list(one.words)
        if not self._opening and words:
            self._opening = words.pop(0)
            self._depth = 1
        closing = _CLOSING.get(self._opening, "")
        for at, word in enumerate(words):
            self._depth += (word == self._opening) - (word == closing)
            if self._opening and not self._depth:
                self.body.append(replace(one, words=tuple(words[:at])))
                return True
        self.body.append(replace(one, words=tuple(words)))
        return False


class Functions:
    """The functions that a script defines.

    defining  one whose body is being read
    """

    def __init__(self, variables: Variables) -> None:
        self.bodies: dict[str, list[Statement]] = {}
        self.defining: _Definition | None = None
        self._variables = variables
        self._called: set[str] = set()
        self._locals: list[set[str]] = []
        self._calls = 0

    @property
    def uncalled(self) -> list[str]:
        """The functions that the script only defines: something else may call them."""
        return [name for name in self.bodies if name not in self._called]

    def begins(self, words: Sequence[str], one: Statement, taken: bool) -> bool:
        """Begin a definition: `name() {`, `function name {`. Return whether the statement does."""
        named = words[0] == "function" and len(words) > 1
        name, rest = (words[1], words[2:]) if named else (words[0], words[1:])
        brackets = list(rest[:2]) == ["(", ")"]
        if not (named or brackets) or not _NAME.fullmatch(name):
            return False
        self.defining = _Definition(name)
        body = rest[2 if brackets else 0 :]
        if body:
            self.define(replace(one, words=tuple(body)), taken)
        return True

    def define(self, one: Statement, taken: bool) -> None:
        """Add a statement to the definition that is being read."""
        if self.defining is not None and self.defining.add(one):
            if taken:
                self.bodies[self.defining.name] = self.defining.body
            self.defining = None

    def declare_local(self, name: str) -> None:
        if self._locals:
            self._locals[-1].add(name)

    def call(
        self, name: str, arguments: Sequence[str], given: bool, follow: Callable[[Iterable[Statement]], None]
    ) -> None:
        """Follow a function's body.

        given  its arguments are known; those of the script are not
        """
        self._called.add(name)
        self._calls += 1
        if len(self._locals) >= DEEPEST_CALL or self._calls > MOST_CALLS:
            return
        before = self._variables.copied()
        self._locals.append(set())
        if given:
            self._variables.give(arguments)
        follow(self.bodies[name])
        own = self._locals.pop()
        if given:
            positional = {one for kept in (before, self._variables) for one in kept.texts if one.isdecimal()}
            own |= {*positional, "@", "#"}
        self._variables.restore(before, own)

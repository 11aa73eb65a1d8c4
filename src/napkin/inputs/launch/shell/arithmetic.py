"""Evaluate the arithmetic of a shell: whole numbers with the operators of C."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Operator: TypeAlias = Callable[[int, int], int]

_TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|\d+|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()])")
LARGEST = 2**63
"""Numbers below this in size are those of a shell."""
DEEPEST = 50
"""Brackets and conditions within each other."""


def _quotient(a: int, b: int) -> int:
    """Return a / b, cut towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_LEVELS: tuple[Mapping[str, Operator], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
    },
    {"<<": lambda a, b: a << b if 0 <= b < 63 else LARGEST, ">>": lambda a, b: a >> b if 0 <= b < 63 else LARGEST},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": _quotient, "%": lambda a, b: a - b * _quotient(a, b)},
)
"""Operators of two numbers, from the loosest to the tightest."""


def evaluated(text: str) -> int | None:
    """Return the value of an arithmetic expression of numbers, or None if it is none, or out of a shell's range."""
    tokens: list[str] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        tokens.append(found[1])
        at = found.end()
    reader = _Reader(tokens)
    try:
        value = reader.condition(0)
    except (ValueError, ZeroDivisionError):
        return None
    return value if not reader.tokens else None


class _Reader:
    """The tokens that are not read yet, the next one last."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens[::-1]

    def _next(self, *wanted: str) -> str:
        """Take and return the next token if it is one of these, else return ""."""
        return self.tokens.pop() if self.tokens and self.tokens[-1] in wanted else ""

    def condition(self, depth: int) -> int:
        """Read `a ? b : c`, or what binds tighter."""
        if depth > DEEPEST:
            raise ValueError
        asked = self._binary(0, depth)
        if not self._next("?"):
            return asked
        yes = self.condition(depth + 1)
        if not self._next(":"):
            raise ValueError
        no = self.condition(depth + 1)
        return yes if asked else no

    def _binary(self, loosest: int, depth: int) -> int:
        """Read numbers joined by operators of this level and tighter ones."""
        left = self._power(depth)
        for level in range(len(_LEVELS) - 1, loosest - 1, -1):
            while sign := self._next(*_LEVELS[level]):
                left = _within(_LEVELS[level][sign](left, self._binary(level + 1, depth)))
        return left

    def _power(self, depth: int) -> int:
        base = self._single(depth)
        if not self._next("**"):
            return base
        exponent = self._power(depth + 1)
        if not 0 <= exponent < 64:
            raise ValueError
        return _within(base**exponent)

    def _single(self, depth: int) -> int:
        """Read a number, an expression in brackets, or one with a sign."""
        if depth > DEEPEST or not self.tokens:
            raise ValueError
        token = self.tokens.pop()
        if token == "(":
            inner = self.condition(depth + 1)
            if not self._next(")"):
                raise ValueError
            return inner
        if token in "-+!~":
            value = self._single(depth + 1)
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[token]
        hexadecimal, octal = token[:2] in ("0x", "0X"), token.startswith("0")
        return _within(int(token, 16 if hexadecimal else 8 if octal else 10))


def _within(value: int) -> int:
    if abs(value) >= LARGEST:
        raise ValueError
    return value

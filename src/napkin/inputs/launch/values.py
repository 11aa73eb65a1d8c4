"""Parse values of other projects' files: numbers with underscores, arithmetic, booleans, and open values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from napkin.units import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import TypeVar

    T = TypeVar("T")

OPEN_WORDS = ("auto", "-1", "???", "...", "", "none", "null", "default", "unset", "required")
"""Words that leave a number to be determined elsewhere."""
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "none", "null", "")
MOST_DIGITS = 30


class Open:
    """A value that the file leaves open: `auto`, -1, a script argument, or a variable set elsewhere.

    text  what is unknown     rest  the part of the value that the file does give (the end of a path)
    """

    __slots__ = ("rest", "text")

    def __init__(self, text: str, rest: str = "") -> None:
        self.text = text
        self.rest = rest

    def __repr__(self) -> str:
        return self.text


def is_open(value: object) -> bool:
    """Return whether a number is left open. True and False are values."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Open) or value is None or value == -1 or str(value).strip().lower() in OPEN_WORDS


def is_nothing(value: object) -> bool:
    """Return whether a value means that a block is empty or open."""
    return isinstance(value, Open) or value in ([], {}, "") or str(value).lower() in ("none", "false", "auto", "null")


def is_off(value: object) -> bool:
    """Return whether a value disables a feature."""
    return value in (None, False, "", 0, [], {}) or str(value).lower() in ("false", "none", "null", "0", "no")


def whole(value: object) -> int | None:
    """Return a positive integer, also from arithmetic (`5 * 8`) or with underscores; None if open."""
    if is_open(value):
        return None
    number = calculated(value)
    if number != int(number) or number < 1:
        raise Unreadable(f"{shown(value)} is not a whole number above 0")
    return int(number)


def natural(value: object) -> int | None:
    """Return a non-negative integer; None if open."""
    if is_open(value):
        return None
    number = calculated(value)
    if number != int(number) or number < 0:
        raise Unreadable(f"{shown(value)} is not a whole number")
    return int(number)


def degree(value: object) -> int | None:
    """Return a degree that 0 turns off, as 1 does; elsewhere 0 is no degree, and `whole` reads it.

    GPT-NeoX's pipe_parallel_size (neox_args.py), DeepSpeed's autotp_size (deepspeed/__init__.py), axolotl's sizes
    (utils/distributed.py) and ROLL's ulysses_size (configs/base_config.py).
    """
    found = natural(value)
    return 1 if found == 0 else found


def number(value: object) -> float | int | None:
    """Return a number; None if open."""
    if is_open(value):
        return None
    found = calculated(value)
    return int(found) if found == int(found) else found


def calculated(value: object) -> float:
    """Return the value of a number or an arithmetic expression in a text; nothing else is evaluated."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Unreadable(f"{shown(value)} is not a number")
    if isinstance(value, str):
        return _of_text(value)
    if value != value or value in (float("inf"), float("-inf")):
        raise Unreadable(f"{value!r} is not a finite number")
    return _in_range(value, value)


def _of_text(text: str) -> float:
    import ast

    plain = text.strip()
    if not plain.isascii():
        raise Unreadable(f"{shown(text)} is not a number")
    if len(plain) > MOST_DIGITS and plain.strip("+-_0123456789.") == "":  # ast reads whole numbers of 4,300 digits
        raise Unreadable(f"{shown(text)} is out of range")
    try:
        found = _folded(ast.parse(plain.replace("/", "//") if "//" not in plain else plain, mode="eval").body)
    except OverflowError:
        raise Unreadable(f"{shown(text)} is out of range") from None
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        raise Unreadable(f"{shown(text)} is not a number") from None
    return _in_range(found, text)


def _in_range(found: float, written: object) -> float:
    if abs(found) > 10**MOST_DIGITS:
        raise Unreadable(f"{shown(written)} is out of range")
    return found


def _folded(node: ast.expr) -> float:
    """Return the value of a syntax tree of + - * // on numbers. Raises ValueError for any other node."""
    import ast

    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_folded(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _folded(node.left), _folded(node.right)
        if abs(left) > 10**MOST_DIGITS or abs(right) > 10**MOST_DIGITS:
            raise OverflowError("out of range")
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, (ast.FloorDiv, ast.Div)):
            return left // right
    raise ValueError("not arithmetic")


def flag(value: object) -> bool | None:
    """Return a boolean, also from `yes`, `on` and 1; None if open."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Open):
        return None
    word = str(value).strip().lower()
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    if word == "auto":
        return None
    raise Unreadable(f"{shown(value)} is neither true nor false")


def either(on: T, off: T) -> Callable[[object], T | None]:
    """Return a parser of a flag that means one of two values."""

    def read(value: object) -> T | None:
        found = flag(value)
        return None if found is None else on if found else off

    return read


def text(value: object) -> str | None:
    """Return a string, or None."""
    if value is None or isinstance(value, Open):
        return None
    if isinstance(value, (dict, list)):
        raise Unreadable(f"{shown(value)} is not a string")
    return str(value).strip() or None


def word(meanings: Mapping[str, T], otherwise: Callable[[str], T | None] | None = None) -> Callable[[object], T | None]:
    """Return a parser of one of a few words; case, dashes and underscores do not matter."""

    def read(value: object) -> T | None:
        if isinstance(value, Open):
            return None
        plain = str(value).strip().lower().replace("-", "_")
        if plain in meanings:
            return meanings[plain]
        if otherwise is not None:
            return otherwise(plain)
        raise Unreadable(f"{shown(value)} is not one of {', '.join(str(one) for one in meanings)}")

    return read


def names(value: object) -> list[str]:
    """Return names from a list, or from a string with commas or brackets."""
    if isinstance(value, (list, tuple)):
        return [str(one) for one in value]
    return [part.strip(" '\"") for part in str(value).strip("[]() ").split(",") if part.strip(" '\"")]


def shown(value: object) -> str:
    """Return a value as messages show it: at most 60 characters."""
    written = {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else repr(value)
    return written if len(written) <= 60 else written[:60] + "…"


def product(parts: Sequence[int]) -> int:
    """Return the product of whole numbers."""
    result = 1
    for part in parts:
        result *= part
    return result

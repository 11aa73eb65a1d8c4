"""Read files that a user gave: regular files and pipes, UTF-8, of bounded size and depth, never executed.

JSON (here) and YAML (yaml_file.py) become plain dicts, lists, strings and numbers, with the line of each key.
"""

from __future__ import annotations

import os
import stat
import sys

from napkin.errors import NapkinError, escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, BinaryIO, TypeVar

    T = TypeVar("T")


LARGEST = 16 * 10**6
DEEPEST = 100
STDIN = "standard input"
"""The name of the file `-` in messages."""


class Document:
    """A parsed file.

    name   for messages
    data   what it contains
    lines  {path of keys: line, from 1}
    json   the text of a JSON file, whose lines are counted only if a message needs one
    """

    __slots__ = ("data", "json", "lines", "name")

    def __init__(
        self, name: str, data: Any, lines: dict[tuple[object, ...], int] | None = None, json: str = ""
    ) -> None:
        self.name = name
        self.data = data
        self.lines = lines or {}
        self.json = json

    def place(self, *path: object) -> str:
        """Return `file:line: field` of a path of keys, for messages; where the file lacks the path, the line of the
        nearest key above it."""
        if self.json and not self.lines:
            from napkin.inputs.json_lines import lines_of_json

            self.lines = lines_of_json(self.json)
        line = next((self.lines[path[:at]] for at in range(len(path), 0, -1) if path[:at] in self.lines), None)
        return place_in_file(self.name, line, path)


def place_in_file(name: str, line: int | None, path: tuple[object, ...]) -> str:
    """Return `file:line: field` of a path of keys."""
    where = f"{name}:{line}" if line else name
    field = ".".join(printable(str(p), 60) for p in path)
    return f"{where}: {field}" if field else where


def printable(text: str, longest: int = 200) -> str:
    """Return text that fits on one line of a message: control characters escaped, at most `longest` characters."""
    shown = text if len(text) <= longest else text[:longest] + "…"
    return escaped(shown)


def name_of(path: str) -> str:
    """Return how messages name a file; "-" is standard input."""
    return STDIN if path == "-" else printable(path)


def with_bytes(path: str, read: Callable[[BinaryIO], T]) -> T:
    """Return what `read` makes of a regular file or pipe; "-" is standard input. Errors (2) name the reason."""
    name = name_of(path)
    try:
        if path == "-":
            return read(sys.stdin.buffer)
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise NapkinError(f"{name}: is a directory", "name a file")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise NapkinError(f"{name}: is neither a file nor a pipe", "name a file")
        with open(path, "rb") as file:
            return read(file)
    except OSError as problem:
        from napkin.inputs.file_kinds import unreadable

        raise unreadable(path, name, problem) from None
    except ValueError:
        raise NapkinError(f"{name}: is not a path", "check the path") from None


def is_pipe(path: str) -> bool:
    """Return whether a path is a pipe, which can be read once."""
    try:
        return path == "-" or stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


_FROM_STDIN: list[tuple[object, bytes]] = []
"""Standard input, and what was read from it: a command that asks a question several times reads it once."""


def read_bytes(path: str, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file or pipe; "-" is standard input. Errors (2) name the reason."""
    name, known = name_of(path), path == "-" and bool(_FROM_STDIN) and _FROM_STDIN[0][0] is sys.stdin
    data = _FROM_STDIN[0][1] if known else with_bytes(path, lambda file: file.read(largest + 1))
    if path == "-":
        _FROM_STDIN[:] = [(sys.stdin, data)]
    if len(data) > largest:
        raise NapkinError(f"{name}: is larger than {largest // 10**6} MB", "give a smaller file")
    return data


def read_text(path: str, largest: int = LARGEST) -> str:
    """Return the content of a file as UTF-8 text without its byte-order mark. Errors (2) name what else it is."""
    from napkin.inputs.file_kinds import START, refuse_kind

    data = read_bytes(path, largest)
    refuse_kind(data[:START], name_of(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        pickled = data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5")
        hint = "a pickle is read as a snapshot of memory only: --snapshot" if pickled else "save it as UTF-8"
        raise NapkinError(f"{name_of(path)}: is not UTF-8 (byte {problem.start})", hint) from None


def read_json(path: str, *, infinite: bool = False) -> Document:
    """Read a JSON document: no duplicate keys, no NaN, no Infinity unless `infinite`, depth at most 100."""
    return parse_json(read_text(path), name_of(path), infinite=infinite)


def repeated(keys: Iterable[str]) -> str:
    """Return the first key that occurs twice; "" if none does."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return ""


def parse_json(text: str, name: str, *, infinite: bool = False) -> Document:
    """Parse JSON. `infinite`: read Infinity, which published config.json files hold, as the number it means."""
    import json

    from napkin.inputs.json_lines import line_of_second, place_of_token, syntax_hint

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            twice = repeated(key for key, _ in pairs)
            where = f"{name}:{line_of_second(text)}"
            raise NapkinError(f"{where}: the key {printable(twice)!r} appears twice", "keep one of them")
        return result

    def refuse(token: str) -> Any:
        if infinite and token != "NaN":
            return float(token)
        where = place_in_file(name, *place_of_token(text, token))
        raise NapkinError(f"{where}: {token} is not a number that JSON knows", "write a finite number")

    def finite(token: str) -> float:
        value = float(token)
        if value in (float("inf"), float("-inf")):
            where = place_in_file(name, *place_of_token(text, token))
            raise NapkinError(f"{where}: {printable(token, 40)} is out of range", "write a finite number")
        return value

    if not text.strip():
        raise NapkinError(f"{name}: is empty", "write JSON into it, or name another file")
    try:
        data = json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except json.JSONDecodeError as problem:
        hint = syntax_hint(text, problem.pos)
        raise NapkinError(f"{name}:{problem.lineno}: not JSON: {problem.msg}", hint) from None
    except RecursionError:
        raise NapkinError(f"{name}: is nested too deeply", f"at most {DEEPEST} levels") from None
    except ValueError:
        raise NapkinError(f"{_line_of_long(text, name)}: a number is too long", "write a finite number") from None
    _bounded(data, name)
    return Document(name, data, json=text)


def _line_of_long(text: str, name: str) -> str:
    """Return file:line of the first integer of more digits than Python reads."""
    import re

    found = re.search(r"\d{4301}", text)
    return f"{name}:{text.count(chr(10), 0, found.start()) + 1}" if found else name


def _bounded(data: Any, name: str) -> None:
    """Reject data that is nested too deeply."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise NapkinError(f"{name}: is nested too deeply", f"at most {DEEPEST} levels")
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]

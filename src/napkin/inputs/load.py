"""Read files that a user gave: regular files and pipes, UTF-8, of bounded size and depth, never executed.

JSON and YAML become plain dicts, lists, strings and numbers, next to the line of each key.
"""

from __future__ import annotations

import os
import stat
import sys

from napkin.errors import NapkinError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LARGEST = 16 * 10**6
DEEPEST = 100
STDIN = "standard input"
"""What messages call the file -."""
FRAME = 4
"""The most keys of a mapping that `parse_json` stores once for all its repetitions (a frame of a stack trace)."""


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
            self.lines = lines_of_json(self.json)
        line = next((self.lines[path[:at]] for at in range(len(path), 0, -1) if path[:at] in self.lines), None)
        where = f"{self.name}:{line}" if line else self.name
        field = ".".join(printable(str(p), 60) for p in path)
        return f"{where}: {field}" if field else where


def printable(text: str, longest: int = 200) -> str:
    """Return text that fits on one line of a message: control characters escaped, at most `longest` characters."""
    shown = text if len(text) <= longest else text[:longest] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def read_bytes(path: str, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file or pipe; "-" is standard input. Errors (2) name the reason."""
    name = printable(path)
    try:
        if path == "-":
            data = sys.stdin.buffer.read(largest + 1)
        else:
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode):
                raise NapkinError(f"{name}: is a directory", "name a file")
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise NapkinError(f"{name}: is neither a file nor a pipe", "name a file")
            with open(path, "rb") as file:
                data = file.read(largest + 1)
    except OSError as problem:
        raise NapkinError(f"{name}: {problem.strerror or 'cannot be read'}", "check the path") from None
    except ValueError:
        raise NapkinError(f"{name}: is not a path", "check the path") from None
    if len(data) > largest:
        raise NapkinError(f"{name}: is larger than {largest // 10**6} MB", "give a smaller file")
    return data


def read_text(path: str, largest: int = LARGEST) -> str:
    """Return the content of a file as UTF-8 text without its byte-order mark."""
    try:
        return read_bytes(path, largest).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise NapkinError(f"{printable(path)}: is not UTF-8 (byte {problem.start})", "save it as UTF-8") from None


def read_json(path: str, *, infinite: bool = False) -> Document:
    """Read a JSON document: no duplicate keys, no NaN, no Infinity unless `infinite`, depth at most 100."""
    return parse_json(read_text(path), printable(path) if path != "-" else STDIN, infinite=infinite)


def parse_json(
    text: str, name: str, shared: dict[Any, dict[str, Any]] | None = None, *, infinite: bool = False
) -> Document:
    """Parse JSON. `shared`: small mappings of strings and numbers that repeat (stack frames) are stored there once.
    `infinite`: read Infinity, which published config.json files hold, as the number it means."""
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for at, key in enumerate(keys) if key in keys[:at])
            where = f"{name}:{_line_of_second(text)}"
            raise NapkinError(f"{where}: the key {printable(twice)!r} appears twice", "keep one of them")
        if shared is not None and len(pairs) <= FRAME:
            try:
                return shared.setdefault(tuple(pairs), result)
            except TypeError:  # it holds lists or mappings
                return result
        return result

    def refuse(token: str) -> Any:
        if infinite and token != "NaN":
            return float(token)
        where = f"{name}:{_line_of_token(text, token)}"
        raise NapkinError(f"{where}: {token} is not a number that JSON knows", "write a finite number")

    def finite(token: str) -> float:
        value = float(token)
        if value in (float("inf"), float("-inf")):
            where = f"{name}:{_line_of_token(text, token)}"
            raise NapkinError(f"{where}: {printable(token, 40)} is out of range", "write a finite number")
        return value

    if not text.strip():
        raise NapkinError(f"{name}: is empty", "write JSON into it, or name another file")
    try:
        data = json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except json.JSONDecodeError as problem:
        raise NapkinError(f"{name}:{problem.lineno}: not JSON: {problem.msg}", "check the file's syntax") from None
    except RecursionError:
        raise NapkinError(f"{name}: is nested too deeply", f"at most {DEEPEST} levels") from None
    except ValueError:
        raise NapkinError(f"{name}: holds a number that is too long", "write a finite number") from None
    _bounded(data, name)
    return Document(name, data, json=text)


def lines_of_json(text: str) -> dict[tuple[object, ...], int]:
    """Return the line of each path of keys in a valid JSON text."""
    return dict(_keys_of_json(text))


def _line_of_second(text: str) -> int:
    """Return the line of the first key that its mapping has already; the JSON text is valid up to there."""
    seen: set[tuple[object, ...]] = set()
    for path, line in _keys_of_json(text):
        if path in seen:
            return line
        seen.add(path)
    return 1


def _line_of_token(text: str, token: str) -> int:
    """Return the line of a word or number that stands outside the strings of a JSON text."""
    import re

    places = re.finditer(r'"[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+', text)
    found = next((match.start() for match in places if match.group() == token), 0)
    return text.count("\n", 0, found) + 1


def _keys_of_json(text: str) -> Iterator[tuple[tuple[object, ...], int]]:
    """Yield each path of keys in a JSON text with its line."""
    import json
    import re

    path: list[object] = []
    line, last, last_line = 1, "", 1
    for match in re.finditer(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}:,\n]', text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "{[":
            path.append(0 if token == "[" else "")
        elif token in "}]":
            path.pop()
        elif token == ":":
            path[-1] = json.loads(last)
            yield tuple(path), last_line
        elif token == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
        else:
            last, last_line = token, line


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


def read_yaml(path: str) -> Document:
    """Read a YAML document. Rejected: anchors and aliases, tags, duplicate keys, octal and sexagesimal numbers, yes and
    no as truth values, and more than one document."""
    return parse_yaml(read_text(path), printable(path) if path != "-" else STDIN)


def parse_yaml(text: str, name: str) -> Document:
    """Parse YAML. What is not plain YAML 1.2 data is rejected with its line."""
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
    except yaml.reader.ReaderError as problem:
        raise _forbidden(name, text, problem.position) from None
    try:
        lines: dict[tuple[object, ...], int] = {}
        builder = _Builder(name, lines)
        data = builder.document(loader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        what = printable(problem.problem or problem.context or "a syntax error")
        hint = "check the file's syntax"
        if mark is not None:
            lines_of_text = text.splitlines()
            line = lines_of_text[mark.line] if mark.line < len(lines_of_text) else ""
            if any(f": {sign}" in line for sign in (">", "<", "=", "|")):
                hint = 'quote a condition: time: ">= 30d" (a bare > or | starts a block of text)'
        raise NapkinError(f"{where}: not YAML: {what}", hint) from None
    except yaml.reader.ReaderError as problem:
        raise _forbidden(name, text, problem.position) from None
    except yaml.YAMLError as problem:
        raise NapkinError(f"{name}: not YAML: {printable(str(problem))}", "check the file's syntax") from None
    finally:
        loader.dispose()
    return Document(name, data, lines)


def _forbidden(name: str, text: str, position: int) -> NapkinError:
    """Return the error of a character that no YAML may hold; the position may be one of bytes."""
    at = min(position, len(text))
    return NapkinError(
        f"{name}:{text.count(chr(10), 0, at) + 1}: holds a character that YAML forbids", "save it as plain text"
    )


_TRUE, _FALSE, _NULL = ("true", "True", "TRUE"), ("false", "False", "FALSE"), ("", "~", "null", "Null", "NULL")
_WORDS = ("yes", "no", "on", "off", "y", "n")


def _in_another_base(digits: str) -> bool:
    """Return whether YAML 1.1 or 1.2 reads digits as octal (017, 0o17), hexadecimal (0x1f) or binary (0b1)."""
    rest = digits[1:].replace("_", "")
    if digits[:1] != "0" or not rest:
        return False
    letters = {"x": "0123456789abcdef", "o": "01234567", "b": "01"}.get(rest[0], "")
    return rest.isdigit() or (len(rest) > 1 and bool(letters) and not set(rest[1:].lower()) - set(letters))


def _line(event: Any) -> int:
    """Return the line on which an event starts, from 1."""
    return int(event.start_mark.line) + 1


class _Builder:
    """Build plain data from YAML's events, so that nothing is resolved, tagged or expanded implicitly."""

    def __init__(self, name: str, lines: dict[tuple[object, ...], int]) -> None:
        self.name = name
        self.lines = lines

    def fail(self, event: Any, what: str, hint: str | None = None) -> NapkinError:
        """Return an error at an event's line."""
        return NapkinError(f"{self.name}:{_line(event)}: {what}", hint)

    def document(self, loader: Any) -> Any:
        """Return the data of the stream's only document."""
        import yaml

        loader.get_event()  # the stream's start
        event = loader.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        data = self.node(loader, loader.get_event(), (), 1)
        loader.get_event()  # the document's end
        event = loader.get_event()
        if not isinstance(event, yaml.StreamEndEvent):
            raise self.fail(event, "a second document starts", "keep one document in a file")
        return data

    def node(self, loader: Any, event: Any, path: tuple[object, ...], depth: int) -> Any:
        """Return the data that begins with an event; `path` leads to it."""
        import yaml

        if depth > DEEPEST:
            raise self.fail(event, "is nested too deeply", f"at most {DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.fail(event, "anchors and aliases are not read", "write the value out")
        if isinstance(event, yaml.ScalarEvent):
            self.lines.setdefault(path, _line(event))
            return self.scalar(event)
        if getattr(event, "tag", None):
            raise self.fail(event, f"the tag {printable(event.tag)} is not read", "write plain YAML")
        self.lines.setdefault(path, _line(event))
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := loader.get_event(), yaml.SequenceEndEvent):
                items.append(self.node(loader, event, (*path, len(items)), depth + 1))
            return items
        mapping: dict[str, Any] = {}
        while not isinstance(event := loader.get_event(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.anchor:
                raise self.fail(event, "a key is not plain text", "write key: value")
            key = str(event.value)
            if key in mapping:
                raise self.fail(event, f"the key {printable(key)!r} appears twice", "keep one of them")
            line, here = _line(event), (*path, key)
            self.lines[here] = line
            mapping[key] = self.node(loader, loader.get_event(), here, depth + 1)
            self.lines[here] = line
        return mapping

    def scalar(self, event: Any) -> object:
        """Return a string, number, truth value or None."""
        text = str(event.value)
        if event.tag:
            raise self.fail(event, f"the tag {printable(event.tag)} is not read", "write plain YAML")
        if not event.implicit[0]:  # quoted or a block: text
            return text
        if text in _NULL:
            return None
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        if text.lower() in _WORDS:
            raise self.fail(event, f"{text!r} could be a text or a truth value", 'write true, false, or quote it: "no"')
        return self.plain_number(event, text)

    def plain_number(self, event: Any, text: str) -> object:
        """Return the number that an unquoted text spells, or the text."""
        digits = text.lstrip("+-")
        if digits.lower() in (".inf", ".nan"):
            raise self.fail(event, f"{text} is not a finite number", "write a finite number")
        if digits[:1] not in "0123456789.":
            return text
        if _in_another_base(digits):
            raise self.fail(event, f"{text} could be octal or hexadecimal", "write it in decimal, or quote it")
        if ":" in text and all(part.isdigit() for part in digits.split(":")):
            raise self.fail(event, f"{text} could be a time or a number in base 60", "quote it, or write a duration")
        if len(text) > 60:
            return text
        try:
            return int(text) if text.isascii() else text
        except ValueError:
            pass
        try:
            value = float(text) if text.isascii() else None
        except ValueError:
            return text
        if value is None or value != value or value in (float("inf"), float("-inf")):
            raise self.fail(event, f"{text} is not a finite number", "write a finite number")
        return value

"""Read YAML as plain data: no tags, duplicate keys or several documents; aliases are expanded."""

from __future__ import annotations

from copy import deepcopy

from napkin.errors import NapkinError
from napkin.inputs.load import DEEPEST, Document, name_of, place_in_file, printable, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


HINTS = {
    "expected ',' or": "a comma is missing before it, or a bracket is not closed",
    "tab character": "indent with spaces",
    "cannot start any token": "quote the text",
    "expected <document start>": "keep one document in a file",
    "end of stream": "a quote or a bracket is not closed",
    "mapping values are not allowed": "one key: value a line, indented as its block; quote a text with a colon",
    "could not find expected ':'": "a colon is missing here or on the line before, or a quote is not closed",
    "expected <block end>": "indent it as the lines of its block",
    "expected key": "indent it as the lines of its block",
    "expected '-'": "indent it as the lines of its block",
}
"""Part of what the parser says → what to do about it."""


def read_yaml(path: str) -> Document:
    """Read a YAML document. Rejected: aliases that repeat too much, tags, duplicate keys, octal and sexagesimal
    numbers, yes and no as truth values, and more than one document."""
    return parse_yaml(read_text(path), name_of(path))


def parse_yaml(text: str, name: str, builder_class: type[Builder] | None = None) -> Document:
    """Parse YAML. What is not plain YAML 1.2 data is rejected with its line. builder_class: makes data of YAML's events
    in another way (napkin.inputs.launch reads what other programs' loaders accept)."""
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
    except yaml.reader.ReaderError as problem:
        raise _forbidden(name, text, problem.position) from None
    try:
        lines: dict[tuple[object, ...], int] = {}
        builder = (builder_class or Builder)(name, lines)
        data = builder.document(loader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        what = printable(problem.problem or problem.context or "a syntax error")
        hint = next((hint for part, hint in HINTS.items() if part in what), "check the file's syntax")
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


MOST_NODES = 100_000
"""Most values of a file with aliases expanded; a file without aliases may have more."""
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


class Builder:
    """Build plain data from YAML's events, so that nothing is resolved or tagged implicitly.

    Aliases and merge keys are expanded, up to MOST_NODES values: yaml.safe_dump writes an alias for an object that
    occurs twice.
    """

    def __init__(self, name: str, lines: dict[tuple[object, ...], int]) -> None:
        self.name = name
        self.lines = lines
        self._anchored: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def fail(self, event: Any, what: str, hint: str | None = None, path: tuple[object, ...] = ()) -> NapkinError:
        """Return an error at an event's line; `path` leads to its value."""
        return NapkinError(f"{place_in_file(self.name, _line(event), path)}: {what}", hint)

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
        """Return the data that begins with an event, with aliases and merge keys expanded; `path` leads to it."""
        import yaml

        if isinstance(event, yaml.AliasEvent):
            self.lines.setdefault(path, _line(event))
            return self._again(event)
        self._nodes += 1
        before, anchor = self._nodes, event.anchor
        data = self._written(loader, event, path, depth)
        if isinstance(data, dict) and "<<" in data:
            merged = data.pop("<<")
            for block in merged if isinstance(merged, list) else [merged]:
                data = {**block, **data} if isinstance(block, dict) else data
        if anchor:
            self._anchored[anchor] = data, self._nodes - before + 1
        return data

    def _again(self, event: Any) -> Any:
        """Return a copy of what an alias repeats."""
        name = printable(str(event.anchor), 40)
        if event.anchor not in self._anchored:
            raise self.fail(event, f"the alias *{name} has no anchor before it", f"define &{name}, or quote the text")
        data, nodes = self._anchored[event.anchor]
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise self.fail(event, "its aliases repeat too much", f"at most {MOST_NODES:,} values")
        return deepcopy(data)

    def _written(self, loader: Any, event: Any, path: tuple[object, ...], depth: int) -> Any:
        """Return the data that is written out from an event on."""
        import yaml

        if depth > DEEPEST:
            raise self.fail(event, "is nested too deeply", f"at most {DEEPEST} levels")
        if isinstance(event, yaml.ScalarEvent):
            self.lines.setdefault(path, _line(event))
            return self.scalar(event, path)
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

    def scalar(self, event: Any, path: tuple[object, ...]) -> object:
        """Return a string, number, truth value or None."""
        text = str(event.value)
        if event.tag:
            raise self.fail(event, f"the tag {printable(event.tag)} is not read", "write plain YAML", path)
        if not event.implicit[0]:  # quoted or a block: text
            return text
        if text in _NULL:
            return None
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        if text.lower() in _WORDS:
            hint = 'write true, false, or quote it: "no"'
            raise self.fail(event, f"{text!r} could be a text or a truth value", hint, path)
        return self.plain_number(event, text, path)

    def plain_number(self, event: Any, text: str, path: tuple[object, ...]) -> object:
        """Return the number that an unquoted text spells, or the text."""
        digits = text.lstrip("+-")
        if digits.lower() in (".inf", ".nan"):
            raise self.fail(event, f"{text} is not a finite number", "write a finite number", path)
        if digits[:1] not in "0123456789.":
            return text
        if _in_another_base(digits):
            raise self.fail(event, f"{text} could be octal or hexadecimal", "write it in decimal, or quote it", path)
        if ":" in text and all(part.isdigit() for part in digits.split(":")):
            hint = "quote it, or write a duration"
            raise self.fail(event, f"{text} could be a time or a number in base 60", hint, path)
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
            raise self.fail(event, f"{text} is not a finite number", "write a finite number", path)
        return value

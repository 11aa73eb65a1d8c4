"""The lines of keys and words in a JSON text."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def lines_of_json(text: str) -> dict[tuple[object, ...], int]:
    """Return the line of each path of keys in a valid JSON text."""
    return dict(_keys_of_json(text))


def line_of_second(text: str) -> int:
    """Return the line of the first key that its mapping has already; the JSON text is valid up to there."""
    seen: set[tuple[object, ...]] = set()
    for path, line in _keys_of_json(text):
        if path in seen:
            return line
        seen.add(path)
    return 1


def place_of_token(text: str, token: str) -> tuple[int, tuple[object, ...]]:
    """Return the line of a word or number outside the strings of a JSON text, which is valid up to there, and the path
    of keys that leads to it."""
    import re

    places = re.finditer(r'"[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+', text)
    start = next((match.start() for match in places if match.group() == token), 0)
    *_, (below, line) = _keys_of_json(text[:start] + '{"":')  # a mapping in its place has its path
    return line, below[:-1]


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


_DIALECTS = (
    (("//", "/*", "#"), "JSON has no comments: remove them"),
    (("'", "\u2018", "\u2019", "\u201c", "\u201d"), 'JSON has straight double quotes only: "name"'),
    (("True", "False", "None"), "JSON writes true, false and null"),
    (("<",), "it is a web page or XML: download the raw file"),
    (("```",), "remove the fence of Markdown"),
)
"""What other languages write where JSON does not → what to do."""


def syntax_hint(text: str, at: int) -> str:
    """Return the hint for a JSON text that is invalid from `at` on."""
    rest, before = text[at:].lstrip(), text[:at].rstrip()
    dialect = next((hint for words, hint in _DIALECTS if rest.startswith(words)), None)
    if dialect:
        return dialect
    if (rest[:1] in ("}", "]") and before.endswith(",")) or (rest[:1] == "," and rest[1:].lstrip()[:1] in ("}", "]")):
        return "remove the comma before the closing bracket"
    if not rest or (rest[:1] == '"' and '"' not in rest[1:]):
        return "the file ends early: copy or download it again"
    complete = rest[:1] in ("{", "[") and before.endswith(("}", "]"))
    return "keep one JSON value in a file" if complete else "check the file's syntax"

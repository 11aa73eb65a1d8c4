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

"""Read a memory snapshot's JSON from a stream: one block or event at a time, in constant memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from napkin.errors import NapkinError
from napkin.inputs.load import printable
from napkin.inputs.snapshot_blocks import SegmentBlocks, Totals

CHUNK, LONGEST_VALUE, MOST_KEYS = 2**18, 2**23, 2**12
"""Characters read at once; largest number of characters of one block, event or other value; of other keys."""
_BLANKS = re.compile(r"[ \t\n\r]*")


def read_json(stream: TextIO, name: str, totals: Totals, largest: int) -> Any:
    """Add up the segments and events of a JSON snapshot; return its other fields, and [] for each list."""
    text = _Text(stream, name, largest)
    if text.peek() != "{":
        return text.value()
    content: dict[str, Any] = {}
    for key in text.members():
        if text.peek() != "[":
            content[key] = text.value()
            continue
        content[key] = []
        for number in text.elements():
            if key == "segments":
                _segment(text, totals)
            elif key == "device_traces" and text.peek() == "[":
                for _ in text.elements():
                    totals.event(number, text.value())
            else:
                text.value()
    if text.peek():
        raise text.broken("something follows the snapshot")
    return content


def _segment(text: _Text, totals: Totals) -> None:
    segment: dict[str, Any] = {}
    blocks = SegmentBlocks()
    if text.peek() != "{":
        totals.segment(text.value(), blocks)
        return
    for key in text.members():
        if key == "blocks" and text.peek() == "[":
            segment[key] = []
            for _ in text.elements():
                totals.block(blocks, text.value())
        else:
            segment[key] = text.value()
    totals.segment(segment, blocks)


class _Text:
    """A position in a JSON text that is read in chunks. Raises NapkinError (2) with file and line."""

    def __init__(self, stream: TextIO, name: str, largest: int) -> None:
        self.stream, self.name, self.left = stream, name, largest
        self.text, self.at, self.line = "", 0, 1
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._unique, parse_constant=self._no_constant, parse_float=self._finite
        )

    def broken(self, why: str) -> NapkinError:
        return NapkinError(f"{self.place()}: not JSON: {why}", "check the file's syntax")

    def place(self) -> str:
        return f"{self.name}:{self.line + self.text.count(chr(10), 0, self.at)}"

    def _more(self) -> bool:
        """Read on, as much as is left over at least; False at the end."""
        self.line += self.text.count("\n", 0, self.at)
        rest = self.text[self.at :]
        read = self.stream.read(max(CHUNK, len(rest)))
        self.left -= len(read)
        if self.left < 0:
            raise NapkinError(f"{self.name}: is larger than 1 GB", "record fewer events: max_entries")
        self.text, self.at = rest + read, 0
        return bool(read)

    def peek(self) -> str:
        """Return the next character that is not a blank; "" at the end."""
        while True:
            found = _BLANKS.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def _take(self, wanted: str) -> str:
        found = self.peek()
        if not found or found not in wanted:
            raise self.broken(f"{' or '.join(wanted)} is missing")
        self.at += 1
        return found

    def value(self) -> Any:
        """Read one complete value."""
        self.peek()
        while True:
            try:
                found, end = self.decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as problem:
                if len(self.text) - self.at > LONGEST_VALUE:
                    raise self._too_long() from None
                if not self._more():
                    raise self.broken(problem.msg) from None
                continue
            except RecursionError:
                raise NapkinError(f"{self.place()}: is nested too deeply", "write the snapshot again") from None
            except ValueError:
                raise NapkinError(f"{self.place()}: a number is too long", "write a finite number") from None
            length = end - self.at
            if end < len(self.text) or not self._more():  # a number may go on
                self.at += length
                return found

    def _too_long(self) -> NapkinError:
        return NapkinError(f"{self.place()}: a value of more than {LONGEST_VALUE // 2**20} MiB", "write it again")

    def elements(self) -> Iterator[int]:
        """Yield the number of each element of an array; the caller reads the element."""
        self._take("[")
        if self.peek() == "]":
            self.at += 1
            return
        number = 0
        while True:
            yield number
            number += 1
            if self._take(",]") == "]":
                return

    def members(self) -> Iterator[str]:
        """Yield the key of each member of an object; the caller reads the value."""
        self._take("{")
        if self.peek() == "}":
            self.at += 1
            return
        seen: set[str] = set()
        while True:
            if self.peek() != '"':
                raise self.broken("a key is missing")
            key = self.value()
            if key in seen:
                raise self._twice(key)
            if len(seen) >= MOST_KEYS:
                raise NapkinError(f"{self.place()}: more than {MOST_KEYS:,} keys", "write the snapshot again")
            seen.add(key)
            self._take(":")
            yield key
            if self._take(",}") == "}":
                return

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = sorted(key for key, _ in pairs)
            raise self._twice(next(key for at, key in enumerate(keys[1:]) if keys[at] == key))
        return found

    def _twice(self, key: str) -> NapkinError:
        return NapkinError(f"{self.place()}: the key {printable(key)!r} appears twice", "keep one of them")

    def _no_constant(self, token: str) -> Any:
        raise NapkinError(f"{self.place()}: {token} is not a number that JSON knows", "write a finite number")

    def _finite(self, token: str) -> float:
        value = float(token)
        if value in (float("inf"), float("-inf")):
            raise NapkinError(f"{self.place()}: {printable(token, 40)} is out of range", "write a finite number")
        return value

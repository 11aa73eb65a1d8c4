"""Bytes of a pickle as they come from a stream, in bounded pieces."""

from __future__ import annotations

from typing import BinaryIO

from napkin.errors import NapkinError

CHUNK, LONGEST_ITEM, LONGEST_LINE = 2**20, 2**23, 2**16
"""Bytes that are read at once; those that an item and what is read with it may have; those of a line of text."""


class Damaged(Exception):
    """What the stream holds is not a pickle."""


class PickleStream:
    """Bytes of a stream, in order."""

    def __init__(self, stream: BinaryIO, name: str, largest: int) -> None:
        self.stream, self.name, self.left = stream, name, largest
        self.data, self.at, self.item = b"", 0, 0

    def _more(self, wanted: int) -> None:
        rest = self.data[self.at :]
        read = self.stream.read(max(CHUNK, wanted - len(rest)))
        self.left, self.item = self.left - len(read), self.item + len(read)
        if self.left < 0:
            raise NapkinError(f"{self.name}: is larger than 1 GB", "record fewer events: max_entries")
        if self.item > LONGEST_ITEM + CHUNK:
            raise NapkinError(
                f"{self.name}: one item takes more memory than a snapshot of its size does: over "
                f"{LONGEST_ITEM // 2**20} MiB",
                "write it with torch.cuda.memory._dump_snapshot(FILE)",
            )
        self.data, self.at = rest + read, 0

    def take(self, many: int) -> bytes:
        if self.at + many > len(self.data):
            if many > LONGEST_ITEM:
                raise NapkinError(
                    f"{self.name}: asks for more memory than a snapshot takes", "write it with _dump_snapshot"
                )
            self._more(many)
            if many > len(self.data):
                raise Damaged("it ends early")
        self.at += many
        return self.data[self.at - many : self.at]

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at, self.at + LONGEST_LINE)
        if end < 0:
            self._more(LONGEST_LINE)
            end = self.data.find(b"\n", self.at, self.at + LONGEST_LINE)
            if end < 0:
                raise Damaged("a line does not end")
        found = self.data[self.at : end]
        self.at = end + 1
        return found

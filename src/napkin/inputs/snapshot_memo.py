"""The memo of a pickled snapshot that is read as a stream, and what stays in it after an item was added up.

A pickle may refer again to anything that it has memoized. Of blocks and events that were added up, texts and frames
stay; of a stack, its bucket."""

from __future__ import annotations

from collections.abc import Container
from typing import BinaryIO

from napkin.errors import NapkinError
from napkin.inputs.snapshot_blocks import BUCKETS, StackBucket, Stacks

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


MOST_TEXT, MOST_PLACES = 2**27, 2**28
"""Largest number of bytes of texts and frames in the memo; of places."""
_STACKS = [StackBucket(bucket) for bucket in BUCKETS]
_GONE = 255


class SnapshotMemo:
    """The memo.

    kept       place → what it holds          places  that were written
    forgotten  of each place that was forgotten, the number of its stack's bucket, or that it is gone
    recent     places of containers since the last item was added up
    """

    def __init__(self, name: str, stacks: Stacks) -> None:
        self.name, self.stacks = name, stacks
        self.kept: dict[int, object] = {}
        self.forgotten = bytearray()
        self.places = self._text = 0
        self.recent: list[int] = []

    def put(self, place: int, thing: object) -> None:
        """Store an object. Raises NapkinError (2) if a snapshot cannot need that much memory."""
        if not 0 <= place < MOST_PLACES:
            raise NapkinError(
                f"{self.name}: asks for more memory than a snapshot takes", "write it with _dump_snapshot"
            )
        self.kept[place] = thing
        self.places += 1
        if type(thing) in (dict, list, tuple):
            self.recent.append(place)
        else:
            self._count(len(thing) if isinstance(thing, str | bytes) else 0)

    def _count(self, size: int) -> None:
        self._text += size + 100
        if self._text > MOST_TEXT:
            raise NapkinError(
                f"{self.name}: its texts take more memory than a snapshot's do: over {MOST_TEXT // 2**20} MiB",
                "write it with torch.cuda.memory._dump_snapshot(FILE)",
            )

    def get(self, place: int) -> object:
        """Return the object at a place; for a stack that was forgotten, its bucket."""
        if place in self.kept:
            return self.kept[place]
        forgotten = self.forgotten[place] if 0 <= place < len(self.forgotten) else len(BUCKETS)
        if forgotten == _GONE:
            raise NapkinError(
                f"{self.name}: repeats itself: a block or event appears twice", "write the snapshot again"
            )
        if forgotten == len(BUCKETS):
            raise Damaged("it refers to what it does not hold")
        return _STACKS[forgotten]

    def forget(self, streamed: Container[int]) -> None:
        """Forget items that were added up, except their frames and the buckets of their stacks; streamed: the
        containers that are open, by identity."""
        still = []
        for place in self.recent:
            thing = self.kept[place]
            if id(thing) in streamed:
                still.append(place)
            elif type(thing) is dict and "filename" in thing:
                self._count(200)
            else:
                del self.kept[place]
                missing = place + 1 - len(self.forgotten)
                if missing > 0:
                    self.forgotten.extend(bytes((len(BUCKETS),)) * missing)
                bucket = self.stacks.bucket(thing)
                self.forgotten[place] = BUCKETS.index(bucket) if type(thing) is list else _GONE
        self.recent = still

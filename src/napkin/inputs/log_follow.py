"""The lines of a log while it is written, as `tail -F` prints them, across truncation and rotation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from napkin.errors import NapkinError
from napkin.inputs.file_kinds import START, refuse_kind, unreadable
from napkin.inputs.file_roles import BEGIN, refuse_settings
from napkin.inputs.load import name_of
from napkin.inputs.log import LONGEST

EVERY = 0.5
"""Seconds between two reads of a file without new lines."""
CHUNK = 2**16


def follow(path: str, once: bool, sleep: Callable[[float], None]) -> Iterator[str | None]:
    """Yield the lines of a log as they are written, and None after each read that found nothing new.

    once: stop at the file's present end. Standard input and pipes end when their writer closes them. A file that became
    shorter, or that was replaced, is read from its start. Raises NapkinError (2) if there is none."""
    lines = Lines()
    try:
        if path == "-" or not os.path.isfile(path):
            with _piped(path) as stream:
                begun = False
                while chunk := stream.read1(CHUNK):  # type: ignore[attr-defined]
                    if not begun:
                        _refuse(chunk, name_of(path))
                    begun = True
                    yield from lines.of(chunk)
        else:
            with open(path, "rb") as stream:
                _refuse(stream.read(BEGIN), name_of(path))
            yield from _of_file(path, lines, once, sleep)
    except OSError as problem:
        raise unreadable(path, name_of(path), problem) from None
    yield from lines.rest()


def _refuse(start: bytes, name: str) -> None:
    """Refuse what does not begin as a log."""
    refuse_kind(start[:START], name)
    refuse_settings(start[:BEGIN], name)


def _piped(path: str) -> BinaryIO:
    """Open standard input, or a pipe."""
    if path == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    if os.path.isdir(path):
        raise NapkinError(f"{name_of(path)}: is a directory", "name a log file")
    return open(path, "rb")


def _of_file(path: str, lines: Lines, once: bool, sleep: Callable[[float], None]) -> Iterator[str | None]:
    """Yield the lines of a regular file that may be truncated or replaced."""
    stream = open(path, "rb")  # noqa: SIM115 - it is another file after a rotation
    try:
        while True:
            chunk = stream.read(CHUNK)
            if chunk:
                yield from lines.of(chunk)
                continue
            if once:
                return
            if _is_other(path, stream):
                yield from lines.rest()
                if os.path.isfile(path):
                    stream.close()
                    stream = open(path, "rb")  # noqa: SIM115
                    continue
            yield None
            sleep(EVERY)
    finally:
        stream.close()


def _is_other(path: str, stream: BinaryIO) -> bool:
    """Return whether the path now names another file than the open one, or the file was truncated."""
    here = os.fstat(stream.fileno())
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return True  # between the two steps of a rotation
    return (now.st_ino, now.st_dev) != (here.st_ino, here.st_dev) or now.st_size < stream.tell()


class Lines:
    """Splits bytes into lines; of a line that is too long it keeps only the start."""

    def __init__(self) -> None:
        self._held = b""
        self._skips = False

    def of(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that end in this chunk."""
        *whole, held = re.split(rb"[\r\n]+", self._held + chunk)
        for line in whole:
            if line and not self._skips:
                yield line[:LONGEST].decode("utf-8", "replace")
            self._skips = False
        if len(held) > LONGEST:
            if not self._skips:
                yield held[:LONGEST].decode("utf-8", "replace")
            self._skips, held = True, b""
        self._held = held

    def rest(self) -> Iterator[str]:
        """Yield the last line, which has no line break."""
        held, self._held = self._held, b""
        if held and not self._skips:
            yield held.decode("utf-8", "replace")
        self._skips = False

"""Progress of a benchmark run on stderr, and the profile's file."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import TextIO

from napkin.errors import NapkinError
from napkin.inputs.profile import Profile


class BenchProgress:
    """Progress on stderr: on a terminal one line, rewritten at most ten times a second; elsewhere a line per group."""

    def __init__(self, stream: TextIO, planned: float, quiet: bool) -> None:
        self._stream = stream
        self._planned = planned
        self._quiet = quiet
        self._live = not quiet and stream.isatty()
        self._started = time.monotonic()
        self._shown = 0.0
        self._group = ""

    def note(self, what: str) -> None:
        """Show what is being measured."""
        now = time.monotonic()
        if self._live and now - self._shown >= 0.1:
            self._shown = now
            spent = _clock(now - self._started)
            self._stream.write(f"\r\x1b[K{what[:70]}  {spent} of ≈ {_clock(self._planned)}")
            self._stream.flush()

    def group(self, name: str) -> None:
        """Begin a new group of cases."""
        if name != self._group:
            self.finish_group()
            self._group = name

    def finish_group(self) -> None:
        """Say that the group is measured."""
        if self._group and not self._live and not self._quiet:
            self._stream.write(f"bench: {self._group} measured, {_clock(time.monotonic() - self._started)}\n")
            self._stream.flush()
        self._group = ""

    def close(self) -> None:
        """Finish the last group and clear the line."""
        self.finish_group()
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


class Store:
    """The profile's file, replaced atomically."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._folder = os.path.dirname(path) or "."
        self._prefix = f".{os.path.basename(path)}."

    def prepare(self) -> None:
        """Fail before measuring where the file could not be written; remove what a killed run left."""
        if self.path == "-":
            raise NapkinError("-o: the profile is a file, replaced after every case", "name one: -o profile.json")
        if os.path.isdir(self.path):
            raise NapkinError(f"{self.path}: is a directory", "name a file: -o profile.json")
        try:
            for name in os.listdir(self._folder):
                if name.startswith(self._prefix) and name.endswith(".tmp"):
                    os.unlink(os.path.join(self._folder, name))
            probe = self._temporary()
            with open(probe, "w", encoding="utf-8"):
                pass
            os.unlink(probe)
        except OSError as error:
            raise NapkinError(
                f"{self.path}: cannot be written: {error.strerror}",
                "name a file that can be written: -o FILE",
            ) from None

    def _temporary(self) -> str:
        return os.path.join(self._folder, f"{self._prefix}{os.getpid()}.tmp")

    def write(self, profile: Profile) -> None:
        """Replace the file by this profile."""
        text = json.dumps(asdict(profile), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        temporary = self._temporary()
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)

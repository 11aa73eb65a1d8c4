"""The run files that `check` is given: files, folders of them, and the starter file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from napkin.commands import runfile
from napkin.errors import NapkinError
from napkin.inputs.load import Document, printable

MOST = 1000
"""Maximum number of files below one folder."""
NAME = "napkin.yaml"
"""Default name of the starter file."""
ENDINGS = (".yaml", ".yml")
FIRST = """\
# What should hold, checked by: napkin check {name}
# A check is a command, its options by name, and limits: a path that `napkin COMMAND … --paths` prints, and a condition
# such as "<= 150d", ">= 30B", "30B .. 50B" or "== 144d ± 1%"; or verdict, and the word that it must be.
checks:
  - name: a 70B model on 15T tokens within 150 days
    command: train-time
    params: 70B
    tokens: 15T
    gpus: 1024
    hardware: h100
    mfu: 0.5
    limits:
      time: "<= 150d"
  - name: an 8B model trains on one node
    command: memory
    model: llama3-8b
    gpus: 8
    hardware: h100
    zero: 3
    limits:
      verdict: fits
      memory/used: "<= 80GB"
"""


def files_of(named: Sequence[str]) -> list[tuple[str, bool]]:
    """Return each file once, with whether it was found in a folder: those below a folder sorted by path. Hidden folders
    are skipped. Raises NapkinError (2) for a folder without run files."""
    found: dict[str, tuple[str, bool]] = {}
    for name in named:
        if not os.path.isdir(name):
            found.setdefault(_whole(name), (name, False))
            continue
        below = list(_below(name))
        if not below:
            raise NapkinError(
                f"{printable(name)}: holds no file that ends in .yaml or .yml", f"napkin check --init {printable(name)}"
            )
        if len(below) > MOST:
            raise NapkinError(f"{printable(name)}: holds more than {MOST} files", "name a folder of run files")
        for path in below:
            found.setdefault(os.path.realpath(path), (path, True))
    return list(found.values())


def _whole(name: str) -> str:
    """Return the canonical path of a file; a text that is not a path is returned as it is."""
    try:
        return name if name == "-" else os.path.realpath(name)
    except (ValueError, OSError):  # not a path, or the current folder is gone
        return name


def _below(folder: str) -> list[str]:
    """Return the YAML files below a folder, sorted, at most MOST + 1."""
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        found += (os.path.normpath(os.path.join(root, one)) for one in names if one.endswith(ENDINGS))
        if len(found) > MOST:
            break
    return sorted(found)


def is_run_file(document: Document) -> bool:
    """Return whether a file in a folder is meant for check: it names a command, limits or checks."""
    return any(key in document.data for key in ("command", "limits", "checks"))


def read_found(path: str) -> Document | None:
    """Return a run file that was found in a folder, or None if it is another kind of YAML file."""
    document = runfile.read(path, any_data=True)
    return document if isinstance(document.data, dict) and is_run_file(document) else None

"""Recognize a misspelled key: one that a format reads and the file does not have."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.slips import among_keys, slip_of

CUT = 9
"""Least letters of a key whose ending is cut or added: gradient_checkpoint is gradient_checkpointing."""
ENDING = 3
"""Most letters of that ending."""


def key_meant(key: str, looked: Iterable[str], source: LaunchFile) -> str:
    """Return the key of a format that a key of a file of settings misspells; "" for none.

    looked  the keys that the format reads
    """
    block, _, name = key.rpartition(".")
    beside = [one for one in looked if "*" not in one and one.rpartition(".")[0] == block and one not in source]
    names = {_bare(one.rpartition(".")[2]): one for one in sorted(beside)}
    own = _bare(name)
    alike = [one for one in names if _digits(one) == _digits(own)]
    return names.get(own) or names.get(slip_of(own, alike, among_keys)) or names.get(_whole(own, names), "")


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _digits(name: str) -> list[str]:
    """Return the digits of a name in order: fp4 is no slip of fp8, but bf61 is one of bf16."""
    return sorted(char for char in name if char.isdigit())


def _whole(name: str, known: Iterable[str]) -> str:
    """Return the known name whose ending a name lacks, or has besides; "" for none."""
    pairs = ((one, *sorted((name, one), key=len)) for one in known)
    found = (one for one, short, long in pairs if long.startswith(short) and len(short) >= CUT)
    return next((one for one in found if abs(len(one) - len(name)) <= ENDING), "")

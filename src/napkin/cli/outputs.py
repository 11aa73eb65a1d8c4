"""Checks of the files that a command writes: it reads none of them, and no two outputs share one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from napkin.errors import NapkinError
from napkin.inputs.load import printable
from napkin.options.output import WRITTEN_FILES
from napkin.options.registry import OPTIONS

if TYPE_CHECKING:
    from napkin.commands.signature import OptionText


def refuse_overwriting(given: dict[str, OptionText]) -> None:
    """Refuse (2) to write a file that another option reads or writes, whatever path it is given as."""
    for name in WRITTEN_FILES:
        target = given[name].text if name in given else None
        if not isinstance(target, str) or (os.path.exists(target) and not os.path.isfile(target)):
            continue  # standard output, a device or a pipe
        for other, option in given.items():
            if other == name:
                continue
            if (other in WRITTEN_FILES and _is_same_path(target, option.text)) or _is_read(target, option.text):
                here, there = (given[one].where or OPTIONS[one].shown for one in (name, other))
                what = f"would overwrite {printable(target)}, which is given as {there}"
                raise NapkinError(f"{here}: {what}", "write to another file")


def _is_same_path(target: str, text: object) -> bool:
    """Return whether an option's text is a path of the file to be written, which may not be there yet."""
    if not isinstance(text, str):
        return False
    try:
        return os.path.realpath(target) == os.path.realpath(text)
    except ValueError:  # no name of a file, which the option itself says
        return False


def _is_read(target: str, text: object) -> bool:
    """Return whether a file is among those that an option's text names."""
    if not os.path.exists(target):
        return False
    return any(os.path.exists(path) and os.path.samefile(target, path) for path in _paths(target, text))


def _paths(target: str, text: object) -> Iterator[str]:
    """Yield the files that an option's text may name: each of a list, a folder's config.json, and the target itself if
    it is one of a folder's run files."""
    for one in text if isinstance(text, (list, tuple)) else (text,):
        if not isinstance(one, str) or "\0" in one:
            continue
        yield one
        yield os.path.join(one, "config.json")
        inside = os.path.realpath(target).startswith(os.path.join(os.path.realpath(one), ""))
        if inside and os.path.isdir(one) and target.lower().endswith((".yaml", ".yml")):
            yield target

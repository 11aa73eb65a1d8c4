"""Read configurations as Hydra does: `--config-path DIR --config-name NAME` on a launch line, and `defaults:`.

A configuration's `defaults:` list names the files that it is composed of, each overridden by the next and all by the
configuration itself, unless `_self_` has another place (Hydra 1.1 and later). The keys of a file in a folder are those
of a block of the folder's name; NeMo RL's loader names files by paths, whose keys are the configuration's own
(nemo_rl/utils/config.py, load_config_with_inheritance).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.source import LaunchFile, of_mapping
from napkin.inputs.load import Document, printable

NAME, FOLDER = ("--config-name", "-cn"), ("--config-path", "--config-dir", "-cp", "-cd")
OWN_NAME, OWN_FOLDER = ("--config_name",), ("--config_path",)
"""Options of programs that compose their settings themselves (ROLL); `--config_name` alone may be a model's."""
KNOWN = ("ppo_trainer", "ppo_megatron_trainer", "sft_trainer", "sft_trainer_engine")
"""Configurations within an installed package, whose values napkin knows as the framework's defaults (verl)."""
MOST = 200
"""Files that one configuration is composed of, with repetitions. verl's has some 30."""


def named_in(words: Sequence[str]) -> str:
    """Return the file that a command's --config-name names, with its folder; "" if it names none or a known one."""
    name, folder = _stated(words, NAME), _stated(words, FOLDER)
    if not name and _stated(words, OWN_FOLDER):
        name, folder = _stated(words, OWN_NAME), _stated(words, OWN_FOLDER)
    plain = marks(name)[0].removesuffix(".yaml")
    if not plain or plain in KNOWN:
        return ""
    return os.path.join(_home(words) if folder else "", folder, name if name.endswith(".yaml") else name + ".yaml")


def _home(words: Sequence[str]) -> str:
    """Return the folder of the program, to which the folder of its configurations is relative."""
    for at, word in enumerate(words):
        if word == "-m" and at + 1 < len(words):
            return os.path.dirname(words[at + 1].replace(".", "/"))
        if word.endswith(".py"):
            return os.path.dirname(word)
    return ""


def _stated(words: Sequence[str], options: Sequence[str]) -> str:
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in options:
            return value if equals else (words[at + 1] if at + 1 < len(words) else "")
    return ""


def places(written: str) -> Iterator[str]:
    """Yield where a named configuration may be: in its folder, in one of that name, or in Hydra's usual ones. A folder
    is relative to the program, which may be elsewhere."""
    folder, name = os.path.split(written)
    yield written
    parts = folder.split("/")
    yield from (os.path.join(*parts[at:], name) for at in range(1, len(parts)) if parts[at])
    for one in dict.fromkeys((os.path.basename(folder), "config", "conf", "configs")):
        yield os.path.join(one, name)


def is_composed(source: LaunchFile) -> bool:
    """Return whether a file has a `defaults:` list in Hydra's form."""
    return source.is_mapping and bool(_entries(source.document.data))


def _entries(data: dict[str, Any]) -> list[Any]:
    """Return the entries of a `defaults:` list, or of one file's name (NeMo RL); [] for another form."""
    listed = data.get("defaults")
    entries = [listed] if isinstance(listed, str) and listed.endswith((".yaml", ".yml")) else listed
    is_list = isinstance(entries, list) and all(isinstance(one, str) or _is_choice(one) for one in entries)
    return list(entries) if is_list and entries is not None else []


def _is_choice(entry: object) -> bool:
    return isinstance(entry, dict) and len(entry) == 1 and all(isinstance(one, str | None) for one in entry.values())


def composed(source: LaunchFile, path: str, read: Callable[[str], LaunchFile]) -> LaunchFile:
    """Return a configuration with the files of its `defaults:`; those that do not exist are recorded in `missing`."""
    if not is_composed(source):
        return source
    missing: list[str] = []
    data = _composed(source, (path,), read, missing, [MOST])
    found = of_mapping(Document(source.name, data, source.document.lines), source.syntax)
    found.missing = tuple(dict.fromkeys(missing))
    return found


def _composed(
    source: LaunchFile, paths: tuple[str, ...], read: Callable[[str], LaunchFile], missing: list[str], left: list[int]
) -> dict[str, Any]:
    """Return a configuration with its defaults. paths: its own, behind those of the files that led to it."""
    left[0] -= 1
    if left[0] < 0:
        raise NapkinError(f"{source.name}: its defaults name more than {MOST} files", "name each file once")
    own = {key: value for key, value in source.document.data.items() if key not in ("defaults", "hydra")}
    result: dict[str, Any] = {}
    entries = _entries(source.document.data)
    for entry in entries if "_self_" in entries else [*entries, "_self_"]:
        if entry == "_self_":
            _merge(result, own)
            continue
        group, name = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        group, _, package = group.removeprefix("override ").removeprefix("optional ").partition("@")
        name, _, packed = name.partition("@") if isinstance(name, str) else ("", "", "")
        if not name or group.startswith("hydra") or name in KNOWN:
            continue
        is_path = not group and name.endswith((".yaml", ".yml"))  # NeMo RL's: its keys are those of this file
        written = os.path.join(group, name if is_path else name.removesuffix(".yaml") + ".yaml")
        file = os.path.join(os.path.dirname(paths[-1]), written)
        _check_cycle(source, (*paths, file))
        if not os.path.isfile(file):
            missing.append(written)
            continue
        other = read(file)
        inner = _composed(other, (*paths, file), read, missing, left) if other.is_mapping else {}
        into = package or packed or ("" if is_path else (group or os.path.dirname(name)).replace("/", "."))
        for part in reversed(into.split(".") if into and into != "_global_" else []):
            inner = {part: inner}
        _merge(result, inner)
    return result


def _check_cycle(source: LaunchFile, paths: tuple[str, ...]) -> None:
    """Raise NapkinError (2) if the last file is one of those that led to it."""
    real = [os.path.realpath(one) for one in paths]
    if (first := real.index(real[-1])) < len(real) - 1:
        cycle = " → ".join(printable(os.path.basename(one), 60) for one in paths[first:])
        where = source.document.place("defaults")
        raise NapkinError(f"{where}: the defaults form a cycle: {cycle}", "remove one of these entries")


def _merge(into: dict[str, Any], over: dict[str, Any]) -> None:
    """Merge nested mappings, the second over the first, as OmegaConf does: `???` leaves what is there. NeMo RL's
    `_override_: true` in a block replaces the block."""
    for key, value in over.items():
        mine = into.get(key)
        if value == "???" and key in into:
            continue
        if isinstance(value, dict) and value.get("_override_") is True:
            into[key] = {name: copy.deepcopy(one) for name, one in value.items() if name != "_override_"}
        elif isinstance(mine, dict) and isinstance(value, dict):
            _merge(mine, value)
        else:
            into[key] = copy.deepcopy(value)

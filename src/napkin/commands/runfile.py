"""Run files: command-line options by name, in YAML; with limits for `check`."""

from __future__ import annotations

from functools import partial
from typing import Any

from napkin.commands.command import MODULES, Command, accepted
from napkin.commands.signature import OptionText, Signature
from napkin.errors import NapkinError, did_you_mean
from napkin.inputs.file_roles import other_role
from napkin.inputs.load import Document, printable
from napkin.inputs.yaml_file import read_yaml


def read(path: str, any_data: bool = False) -> Document:
    """Return a run file's mapping. any_data: the file may hold something else."""
    document = read_yaml(path)
    if not isinstance(document.data, dict) and not any_data:
        raise NapkinError(f"{document.name}: is not a mapping of options", "write option: value, a line each")
    return document


def options_of_file(path: str, command: Command) -> dict[str, OptionText]:
    """Return the options that a run file gives to `command`. A different `command:` in the file is an error."""
    if not path.strip():
        raise NapkinError("--run: it is empty", "give a value")
    document = read(path)
    if (told := other_role(document.data, ("command", "model"))) is not None:
        raise NapkinError(f"{document.name}: is not a run file", told)
    stated = document.data.get("command")
    asked = command.target or command.name
    if stated is not None and stated != asked:
        if str(stated).partition(" ")[0] not in MODULES:
            said = f"{document.place('command')}: no such command {printable(str(stated), 60)!r}"
            raise NapkinError(said, did_you_mean(str(stated), MODULES) or f"command: {asked}")
        raise NapkinError(
            f"{document.place('command')}: the file is for {printable(str(stated))!r}, not for {asked}",
            f"napkin {printable(str(stated))} --run {printable(path)}",
        )
    if "run" in document.data:
        raise NapkinError(f"{document.place('run')}: a run file names no other", "put the options into one file")
    return options_of(document, document.data, (), command, shared=stated is None)


def options_of(
    document: Document,
    data: dict[str, Any],
    prefix: tuple[object, ...],
    command: Signature,
    shared: bool = False,
    apart: bool = False,
) -> dict[str, OptionText]:
    """Return the options in one mapping of a run file; `command`, `limits` and `checks` are not options. shared: the
    file names no command, so options of other commands are allowed; apart: the caller answers each of its `phases:`
    separately."""
    options = {k: v for k, v in data.items() if k not in ("command", "limits", "checks", "name", "phases")}
    found = accepted(command, options, "run file", lambda key: document.place(*prefix, key), shared)
    if "phases" in data:
        from napkin.commands.phases import accepted_phases, check_has_phases  # only if a run file has parts

        if not apart:
            check_has_phases(command, document.place(*prefix, "phases"))
        found["phases"] = accepted_phases(
            data["phases"],
            partial(document.place, *prefix, "phases"),
            lambda part, place: accepted(command, part, "run file", place, shared),
        )
    return found

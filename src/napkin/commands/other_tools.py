"""Options of other tools in run files and Python calls, whose values have another form. Loaded only for a name that a
command does not have."""

from __future__ import annotations

from collections.abc import Container

from napkin.errors import NapkinError
from napkin.options.meanings import said_by
from napkin.options.registry import OPTIONS


def options_meant(key: str, value: object, taken: Container[str], where: str) -> dict[str, object] | None:
    """Return what an option of another tool says with its value, by napkin's options; None if no tool has it, or the
    command does not have what it means. Raises NapkinError (2) with the option to write for one without a single
    meaning."""
    found = said_by(key.strip().lstrip("-").lower().replace("_", "-"), value)
    if found is None:
        return None
    if found.refusal:
        raise NapkinError(f"{where}: is not an option of napkin", found.refusal)
    if any(name not in taken for name, _ in found.options):
        return None
    return {name: True if OPTIONS[name].flag else text for name, text in found.options}

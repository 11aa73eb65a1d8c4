"""Settings files that a shell script itself writes: `cat > ds_config.json <<EOF`."""

from __future__ import annotations

import os
from collections.abc import Callable

from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.source import FileValue, LaunchFile, scalar
from napkin.inputs.launch.values import Open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def written_by(source: LaunchFile, value: object, read: Callable[[str, str], LaunchFile]) -> LaunchFile | None:
    """Return the keys of a file that a script writes before its program reads it, or None for another file.

    value  the file's name, as an option states it     read  returns the keys of a text with a name
    """
    wanted = os.path.normpath(value.rest if isinstance(value, Open) else marks(str(value))[0])
    path = next((one for one in source.files if os.path.normpath(one) == wanted), None)
    if path is None or not source.files[path].strip():
        return None
    found = read(source.files[path], f"{source.name}: {path}")
    found.values = {key: _marked(one) for key, one in found.values.items()}
    found.document.data = _without_marks(found.document.data)
    return found


def _marked(one: FileValue) -> FileValue:
    """Return a value of a file in which a script's variables were expanded."""
    if not isinstance(one.value, str):
        return one
    plain, names, unknown = marks(one.value)
    if unknown:
        return FileValue(one.key, Open(unknown, plain), (*one.variables, *names))
    return FileValue(one.key, scalar(plain), (*one.variables, *names)) if names else one


def _without_marks(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_marks(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_marks(value) for value in node]
    if not isinstance(node, str):
        return node
    plain, names, unknown = marks(node)
    return Open(unknown, plain) if unknown else scalar(plain) if names else node

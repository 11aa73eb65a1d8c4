"""Write a starter file for a command that reads one (`--init`). An existing file is never overwritten."""

from __future__ import annotations

import os

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.inputs.load import printable


def read_whether_free(inputs: Inputs) -> None:
    """Reject -o next to --init: it names the file of the answer, not the starter file."""
    if "output" in inputs.given:
        target = printable(str(inputs.given["output"].text), 60)
        hint = f"napkin {inputs.command.name} --init {target}"
        raise NapkinError("-o is the file of the answer, and --init writes FILE", hint)


def write_first(named: str | None, command: str, usual: str, text: str) -> str:
    """Write the text to the given file or folder, and return the path. usual: the default file name; {name} in the text
    is replaced by it."""
    path = named or usual
    if path == "-":
        raise NapkinError("--init writes a file, not standard output", f"napkin {command} --init {usual}")
    if os.path.isdir(path):
        path = os.path.join(path, usual)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text.replace("{name}", os.path.basename(path)))
    except FileExistsError:
        raise NapkinError(f"{printable(path)}: already exists", f"napkin {command} {printable(path)}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "is not a path"
        raise NapkinError(f"{printable(path)}: {reason}", "name a file in a folder that exists") from None
    return path

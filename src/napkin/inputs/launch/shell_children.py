"""Scripts that a script runs in a shell of their own: `bash train.sh 8`, `exec ./run.sh`, `srun sh train.sh`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from napkin.inputs.launch.settings_files import path_of
from napkin.inputs.launch.shell_values import Variables, marks

SHELLS = ("sh", "bash", "zsh")
BEFORE = ("exec", "nohup", "time", "sudo")
"""Words before a command that it does not see."""
PROGRAMS = (".py", "python", "python3", "torchrun", "accelerate", "deepspeed")
"""Words, or their ends, of a program that a wrapper script starts."""


def child_of(script: str, words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the path of the script that a command runs, if it is beside `script` or above it, and its arguments.

    words  expanded. A folder that is not known, as in `bash "$HERE/train.sh"`, is taken for the script's own"""
    at = next((i for i, word in enumerate(words) if _is_script(words, i, word)), None)
    if at is None or any(marks(one)[0].endswith(PROGRAMS) for one in words[at + 1 :]):
        return None
    plain, _, unknown = marks(words[at])
    path = path_of(script, os.path.basename(plain) if unknown else plain)
    return (path, list(words[at + 1 :])) if path is not None else None


def _is_script(words: Sequence[str], at: int, word: str) -> bool:
    before = [marks(one)[0].rsplit("/", 1)[-1] for one in words[:at] if not one.startswith("-")]
    named = marks(word)[0].endswith((".sh", ".bash"))
    return named and (not before or before[-1] in SHELLS or all(one in BEFORE for one in before))


@contextmanager
def shell_of_its_own(variables: Variables, exported: set[str], arguments: Sequence[str]) -> Iterator[None]:
    """Let a script see exported variables and its arguments alone, and put the variables of its caller back after."""
    texts, arrays = variables.texts, variables.arrays
    variables.texts = {name: text for name, text in texts.items() if name in exported}
    variables.texts |= {str(number): text for number, text in enumerate(arguments, 1)}
    variables.texts["@"] = " ".join(arguments)
    variables.arrays = {}
    try:
        yield
    finally:
        variables.texts, variables.arrays = texts, arrays

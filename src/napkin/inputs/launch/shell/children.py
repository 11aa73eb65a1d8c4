"""Scripts that a script runs in a shell of their own: `bash train.sh 8`, `exec ./run.sh`, `srun sh train.sh`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from napkin.inputs.launch.settings_files import SCRIPTS, path_of
from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.shell.values import Variables

SHELLS = ("sh", "bash", "zsh", "sbatch", "qsub")
"""What runs a script in a shell of its own, now or later."""

BEFORE = ("exec", "nohup", "time", "sudo")
"""Words before a command that it does not see."""
PROGRAMS = (".py", "python", "python3", "torchrun", "accelerate", "deepspeed")
"""Words, or their ends, of a program that a wrapper script starts."""


def child_of(script: str, words: Sequence[str], written: Collection[str]) -> tuple[str, list[str]] | None:
    """Return the path of the script that a command runs, if it is beside `script` or above it, and its arguments.

    written  paths of scripts that the script itself writes
    words  expanded. A folder that is not known, as in `bash "$HERE/train.sh"`, is taken for the script's own"""
    texts = [marks(word)[0] for word in words]
    at = next((i for i, text in enumerate(texts) if text.endswith(SCRIPTS) and _is_script(texts[:i])), None)
    if at is None or any(text.endswith(PROGRAMS) for text in texts[at + 1 :]):
        return None
    plain, _, unknown = marks(words[at])
    if plain.removeprefix("./") in written:
        return plain.removeprefix("./"), list(words[at + 1 :])
    path = path_of(script, os.path.basename(plain) if unknown else plain)
    return (path, list(words[at + 1 :])) if path is not None else None


def _is_script(words: Sequence[str]) -> bool:
    """Return whether a script that follows these words is what the command runs."""
    before = [word.rsplit("/", 1)[-1] for word in words if not word.startswith("-")]
    return not before or before[-1] in SHELLS or all(one in BEFORE for one in before)


@contextmanager
def shell_of_its_own(variables: Variables, exported: set[str], arguments: Sequence[str]) -> Iterator[None]:
    """Let a script see exported variables and its arguments alone, and put the variables of its caller back after."""
    before = variables.copied()
    own = ("0", "BASH_SOURCE")
    variables.texts = {name: text for name, text in variables.texts.items() if name in exported or name in own}
    variables.arrays, variables.maps = {}, {}
    variables.give(arguments)
    try:
        yield
    finally:
        variables.restore(before)

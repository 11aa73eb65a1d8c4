"""Read the settings files that a launch line names, with the line's own options on top.

`accelerate launch run_sft.py recipe.yaml --learning_rate=1e-5`, `trl sft --config recipe.yaml`,
`torchrun run_train.py --config-file run.yaml`, `llamafactory-cli train run.yaml`. The line wins over the file
(TrlParser, H4ArgumentParser, OmegaConf.from_cli).
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from napkin.errors import NapkinError
from napkin.inputs.launch import hydra
from napkin.inputs.launch.shell.marks import marks
from napkin.inputs.launch.source import FileValue, LaunchFile, of_mapping
from napkin.inputs.load import Document

ENDS = (".yaml", ".yml", ".toml")
"""Endings of settings files. JSON files on launch lines are DeepSpeed's settings, data or a model's config.json."""
SWITCHES = re.compile(
    r"-c|--(?:job\.)?(?:(?:yaml|train|training|exp|experiment|run|main)[_-])?(?:config|cfg|yaml|recipe)"
    r"(?:[_-](?:file|path|yaml))?|--(?:train_)?args_file"
)
"""Options of training programs that name their settings file; before the program they are the launcher's."""
DEFAULTS = ("base.yml",)
"""Files that hold a program's defaults, which their format knows (MaxText)."""
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
"""Endings of scripts that pass their arguments on to the program."""
STARTERS = ("trl", "axolotl", "llamafactory-cli", "litgpt", "tune", "swift", "megatron", "xtuner", "composer", "oumi")
"""Commands that start training themselves, without a Python file."""
LAUNCHERS = ("accelerate.commands.launch", "torch.distributed.run", "torch.distributed.launch")
"""Modules that start a program, whose options before it are the launcher's."""
FOLDERS_ABOVE = 4
"""Parent folders of a launch script that are searched: scripts are started from the top of their repository."""


def named_in(words: Sequence[str]) -> list[str]:
    """Return the settings files that a command names, as they are written, with the marks of their variables."""
    composed = hydra.named_in(words)
    return [*(words[at] for at in _places(words)), *([composed] if composed else [])]


def _places(words: Sequence[str]) -> Iterator[int]:
    started, before, of_python = False, "", False
    for at, word in enumerate(words):
        plain = marks(word)[0]
        option = before.partition("=")[0]
        ends = (*ENDS, ".py") if of_python else (*ENDS, ".json") if option.endswith("args_file") else ENDS
        named = plain.endswith(ends) and "=" not in plain and os.path.basename(plain) not in DEFAULTS
        if named and started and (not before.startswith("-") or before == "--" or SWITCHES.fullmatch(option)):
            yield at
        of_python = of_python or os.path.basename(plain) == "xtuner"
        module = before in ("-m", "--module") and plain not in LAUNCHERS
        starts = plain.endswith((".py", *SCRIPTS)) or os.path.basename(plain) in STARTERS
        started = started or starts or module
        before = plain


def with_settings(
    source: LaunchFile,
    read: Callable[[str], LaunchFile],
    written: Callable[[LaunchFile, object], LaunchFile | None],
) -> LaunchFile:
    """Return a launch line's source with the keys of the settings files that it names, each read by `read`.

    written  returns the keys of a file that the script itself writes
    A file that does not exist is recorded in `missing`.
    """
    if not source.settings and (assigned := _assignments(source, read)) is not None:
        return assigned
    for word in source.settings:
        plain, variables, _ = marks(word)
        path, own = path_of(source.name, plain), written(source, word)
        if own is not None or path is not None:
            source = _joined(source, own if own is not None else read(str(path)), plain, variables)
        else:
            source.missing = (*source.missing, plain)
    return source


def _assignments(source: LaunchFile, read: Callable[[str], LaunchFile]) -> LaunchFile | None:
    """Return a launch line joined with the file of assignments that follows its program (nanoGPT's configurator.py):
    `torchrun train.py config/train_gpt2.py --batch_size=8`; None if there is none here."""
    from napkin.inputs.launch.formats import nanogpt

    programs = [at for at, word in enumerate(source.command[:-1]) if word.endswith(".py")]
    word = source.command[programs[0] + 1] if programs else ""
    path = path_of(source.name, word) if word.endswith(".py") else None
    if word.endswith(".py") and path is None and nanogpt.is_line(source):
        source.missing = (word,)
    file = read(path) if path is not None else None
    return _joined(source, file, word, ()) if file is not None and nanogpt.is_this(file) else None


def path_of(script: str, value: str) -> str | None:
    """Return the path of a file that a script names, or None if it does not exist."""
    folder = os.path.dirname(script)
    for written in hydra.places(value):
        above = [os.path.join(folder, *[os.pardir] * ups, written) for ups in range(FOLDERS_ABOVE + 1)]
        if (found := next((path for path in (*above, written) if os.path.isfile(path)), None)) is not None:
            return found
    return None


def _joined(line: LaunchFile, file: LaunchFile, written: str, variables: tuple[str, ...]) -> LaunchFile:
    """Return the keys of a settings file, overridden by the launch line's.

    written, variables  the file's name as the line has it, and the variables that would override it
    """
    if not file.is_mapping and file.syntax != "python":
        raise NapkinError(
            f"{file.name}: is named as settings by {line.name}, but is no mapping of keys",
            "name a YAML, TOML or Python file of settings",
        )
    own = {key: value for key, value in line.values.items() if value.value != written and key != "m"}
    values = {**file.values, **own}
    data = copy.deepcopy(file.document.data)
    for key, value in own.items():
        if key in file.values or key.rpartition(".")[0] in file:
            _set(data, file.values.get(key, value).key, value)
    values |= _resolved_again(file, own, data)
    joined = LaunchFile(line.name, file.syntax, values, Document(line.name, data))
    joined.command, joined.environment = line.command, line.environment
    joined.unread, joined.missing = dict(line.unread), (*line.missing, *file.missing)
    joined.parts, joined.files = (line, file, *line.parts), line.files
    for variable in variables:
        joined.unread["$" + variable.lstrip("$")] = f"selects the settings; its default, {written}, is assumed"
    return joined


def _resolved_again(file: LaunchFile, own: dict[str, FileValue], data: Any) -> dict[str, FileValue]:
    """Return the values of a settings file that refer to what the launch line overrides."""
    if not isinstance(data, dict) or not any(key in file.values for key in own):
        return {}
    again = of_mapping(Document(file.name, data), file.syntax).values
    kept = again.keys() & file.values.keys() - own.keys()
    return {key: again[key] for key in kept if again[key] != file.values[key]}


def _set(data: Any, key: str, value: FileValue) -> None:
    """Set a dotted key of nested mappings."""
    *blocks, last = key.lstrip("-").split(".")
    for one in blocks:
        if not isinstance(data, dict):
            return
        data = data.setdefault(one, {})
    if isinstance(data, dict):
        data[last] = value.value

"""Parse a launch file as JSON, YAML, TOML, shell or Python, detected from its content."""

from __future__ import annotations

import os
import re

from napkin.errors import NapkinError
from napkin.inputs.launch.source import LaunchFile, of_mapping
from napkin.inputs.load import Document, name_of, parse_json, printable, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SECTION = re.compile(r"^\s*\[\[?[A-Za-z_][\w.\-]*\]\]?\s*(#.*)?$", re.M)
_ASSIGNED = re.compile(r"^[ \t]*[A-Za-z_][\w.\-]*[ \t]*=", re.M)
_DOTTED = re.compile(r"^[ \t]*[\w\-]+(?:\.[\w\-]+)+[ \t]*=[ \t]*\S|^[ \t]*[\w\-]+[ \t]*=[ \t]*\{", re.M)
_YAML_KEY = re.compile(r"^(?:- )?[\"']?[\w./\-]+[\"']?\s*:(?:\s|$)", re.M)
_SHELL = re.compile(
    r"^#!.*\b(?:ba|z|da)?sh\b|^#SBATCH|^(?:export )?[A-Za-z_]\w*\+?=\(|^\s*(?:export|set -|source) ?\w*|"
    r"^\s*(?:[A-Z_]+=\S*\s+)*(?:srun|nohup|numactl|torchrun|deepspeed|accelerate launch|python3?|bash|sbatch|swift|"
    r"mpirun|ray job submit|llamafactory-cli|xtuner|trl|axolotl|litgpt|oumi|openrlhf\.cli\S*|uv run|tune run)\s|"
    r"^[A-Za-z_]\w*=\S*$|^[A-Za-z_]\w*\+?=[\"'$(]|^\s*--[a-z][\w.\-]*|^[\w./$\"'{}][^\n:#]*\s--[A-Za-z][\w.\-]*",
    re.M,
)
_TEST = re.compile(r"\[\[\s|\[\s+(?:-[a-z]\s|!\s|[\"']?\$)")
"""The condition of a script, with which no list of JSON begins."""
_HERE = re.compile(r"^(?!\s*[\w\-]+:\s)[^\n]*<<-?\s*(['\"]?)(\w+)\1[^\n]*\n(?:.*\n)*?\2[ \t]*$", re.M)
"""A here-document of a script, whose text may be YAML."""
_PYTHON = re.compile(r"^(?:import|from|def|class|@)\s?\w|^[A-Za-z_]\w* = |^[a-z_]\w*\s?=\s?[^=\s]", re.M)

_PROGRAM = re.compile(r"^(?:import [\w.]+|from [\w.]+ import |(?:async )?def \w+\(|class \w+[(:]|@\w)", re.M)
"""Lines at the left margin that only Python programs have."""


def read_source(path: str) -> LaunchFile:
    """Read a launch file, or the trainer on a line of a program: `train.py:40`.

    Errors (2) name the line. The file's name does not determine its format.
    """
    file, line = file_and_line(path)
    source = source_of(read_text(file), name_of(file), line)
    if "defaults" not in source.values:
        return source
    from napkin.inputs.launch import hydra

    return hydra.composed(source, file, _plain_source)


def file_and_line(path: str) -> tuple[str, int]:
    """Return the path and line of `FILE:LINE`. The line is 0 for a plain path, including a file named `a:1`."""
    file, _, line = path.rpartition(":")
    if line.isascii() and line.isdecimal() and int(line) and os.path.isfile(file) and not os.path.exists(path):
        return file, int(line)
    return path, 0


def source_of(text: str, name: str, line: int = 0) -> LaunchFile:
    """Return the keys of a launch file's text: of the trainer or the command on a line, where it has several."""
    source = _source_of(text, name, line)
    if source.settings or sum(one.endswith(".py") for one in source.command) > 1:
        from napkin.inputs.launch.settings_files import with_settings

        source = with_settings(source, _composed_source, _written_source)
    if line and source.is_mapping and not source.parts:
        raise NapkinError(
            f"{name}:{line}: only programs and scripts take a line, which selects a run",
            f"omit the line: --from {name}",
        )
    return source


def _plain_source(path: str) -> LaunchFile:
    """Return the keys of a file alone."""
    return _source_of(read_text(path), name_of(path), 0)


def _composed_source(path: str) -> LaunchFile:
    """Return the keys of a file, with those of the files of its `defaults:`."""
    from napkin.inputs.launch import hydra

    return hydra.composed(_plain_source(path), path, _plain_source)


def _written_source(source: LaunchFile, value: object) -> LaunchFile | None:
    """Return the keys of a file that a script itself writes."""
    from napkin.inputs.launch.shell.files import written_by

    return written_by(source, value, source_of)


def _source_of(text: str, name: str, line: int) -> LaunchFile:
    start = text.lstrip()
    if not start:
        raise NapkinError(f"{name}: is empty", "give a training framework's configuration file or launch script")
    if start[:1] == "<":
        raise NapkinError(f"{name}: is a web page or XML, not a configuration file", "download the raw file")
    _refuse_unfinished(text, name)
    if start[:1] in "{[" and not _TEST.match(start) and not _is_toml(text):
        document = _json(text, name)
        if isinstance(document.data, dict) and isinstance(document.data.get("cells"), list):
            return _notebook(document.data["cells"], name, line)
        return of_mapping(document, "json")
    broken = name.endswith(".py") and not _parses(text)  # the error names the line
    if broken or (len(_PROGRAM.findall(text)) > 1 and not _SHELL.search(text)):
        from napkin.inputs.launch.python import assignments

        return assignments.read(text, name, line)
    if _is_toml(text):
        return of_mapping(_toml(text, name), "toml")
    if _is_yaml(text):
        from napkin.inputs.launch import yaml_words

        document = yaml_words.read(_filled(text), name)
        task = _task(document, text, line)
        return task if task is not None else of_mapping(_arguments(document), "yaml")
    if _is_python(text):
        from napkin.inputs.launch.python import assignments

        return assignments.read(text, name, line)
    if _SHELL.search(text):
        from napkin.inputs.launch.shell import options

        return options.read(text, name, line)
    from napkin.inputs.launch import yaml_words

    return of_mapping(_arguments(yaml_words.read(text, name)), "yaml")


_UNFINISHED = (
    (re.compile(r"^[ \t]*\{%", re.M), "is a template with statements (Jinja)", "render it, and give the result"),
    (re.compile(r"^(?:<{7} |>{7} )", re.M), "holds a merge conflict", "resolve it"),
)
"""Text that no syntax has → what it is, and what to do."""


def _refuse_unfinished(text: str, name: str) -> None:
    """Raise NapkinError (2) for a template with statements, which only its program fills, and for a merge conflict."""
    for sign, what, hint in _UNFINISHED:
        found = sign.search(text)
        if found:
            raise NapkinError(f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {what}", hint)


_TEMPLATE = re.compile(r"(?<!\$)\{\{-?\s*([A-Za-z_][\w.]*)\s*(?:\|\s*default\(([^(){}|]*?)\)\s*)?-?\}\}")
"""A place of a template (Jinja): `{{ name }}`, `{{ name | default(8) }}`."""


def _filled(text: str) -> str:
    """Return a template with references in its places: what fills them is set elsewhere."""
    return _TEMPLATE.sub(lambda at: f"${{oc.env:{at[1]},{at[2]}}}" if at[2] else f"${{{at[1]}}}", text)


def _task(document: Document, text: str, line: int) -> LaunchFile | None:
    """Return the options of the commands of a cloud task, or None for another document."""
    if not isinstance(document.data, dict) or not {"run", "commands", "apiVersion", "tasks"} & document.data.keys():
        return None
    from napkin.inputs.launch import task_files
    from napkin.inputs.launch.shell import options

    script = task_files.script_of(document)
    if script is None:
        return None
    return task_files.with_lines(options.read(script, document.name, line), text)


def _arguments(document: Document) -> Document:
    """Return the launch line of a document that stores it as `MODEL_ARGS:` with `--num-layers: 32`; else the document.

    Megatron-LM's functional tests and MoE model zoo use this form.
    """
    data = document.data
    block = data.get("MODEL_ARGS") if isinstance(data, dict) else None
    if not isinstance(block, dict) or not all(str(key).startswith("--") for key in block):
        return document
    inner = {path[1:]: line for path, line in document.lines.items() if path[:1] == ("MODEL_ARGS",) and path[1:]}
    lines = {(str(path[0]).lstrip("-"), *path[1:]): line for path, line in inner.items()}
    return Document(document.name, {str(key).lstrip("-"): value for key, value in block.items()}, lines)


_COMMAND = re.compile(r"(?m)^([ \t]*)([!%?])((?:.*\\\n)*.*)$")
"""A notebook's shell command (!) or magic, with continued lines."""


def _notebook(cells: list[Any], name: str, line: int) -> LaunchFile:
    """Return a notebook's Python cells as one program, or its shell commands if it has no program."""
    import ast

    from napkin.inputs.launch.python import assignments, program
    from napkin.inputs.launch.shell import options

    code = [one.get("source", "") for one in cells if isinstance(one, dict) and one.get("cell_type") == "code"]
    texts = ["".join(map(str, one)) if isinstance(one, list) else str(one) for one in code]
    plain = [one for one in texts if not one.lstrip().startswith("%%")]
    python = "\n".join(one for one in (_COMMAND.sub(r"\1pass", one) for one in plain) if _parses(one))
    found = program.program_of(ast.parse(python), name, line)
    if found is not None:
        return found
    commands = "\n".join(match[3] for one in plain for match in _COMMAND.finditer(one) if match[2] == "!")
    bash = [one.split("\n", 1)[1] for one in texts if re.match(r"\s*%%(?:bash|sh)\b.*\n", one)]
    if _SHELL.search("\n".join((commands, *bash))):
        return options.read("\n".join((commands, *bash)), name)
    return assignments.read(python, name)


def _parses(text: str) -> bool:
    """Return whether a text is Python."""
    import ast

    try:
        return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_toml(text: str) -> bool:
    """Return whether a text has TOML sections, or has dotted keys or inline tables and parses as TOML."""
    if _SECTION.search(text):
        return bool(_ASSIGNED.search(text))
    if not _DOTTED.search(text):
        return False
    try:
        return bool(_toml(text, ""))
    except NapkinError:
        return False


def _is_yaml(text: str) -> bool:
    """Return whether most lines at the left margin are `key:` or list items."""
    text = _HERE.sub("<<", text)
    lines = [one for one in text.splitlines() if one.strip() and one[:1] not in "# \t" and one not in ("---", "...")]
    hits = sum(bool(_YAML_KEY.match(one)) or one.startswith("- ") for one in lines)
    return bool(lines) and hits >= 0.6 * len(lines)


def _is_python(text: str) -> bool:
    """Return whether a text parses as Python and has Python statements."""
    shell = text.startswith("#!/bin") or "#!/usr/bin/env bash" in text[:40]
    return bool(_PYTHON.search(text)) and not shell and _parses(text)


def _json(text: str, name: str) -> Document:
    """Parse JSON, or YAML that looks like it (comments, True, trailing commas)."""
    from napkin.inputs.launch import yaml_words

    try:
        return parse_json(text, name, infinite=True)
    except NapkinError as problem:
        try:
            return yaml_words.read(text, name)
        except NapkinError as other:
            cut = _line_of(other) <= _line_of(problem) + 1  # JSON up to where it ends; YAML notes that a line later
            raise (problem if cut else other) from None


def _line_of(problem: NapkinError) -> int:
    """Return the line that an error names, or 0."""
    found = re.search(r":(\d+): ", problem.message)
    return int(found[1]) if found else 0


def _toml(text: str, name: str) -> Document:
    import sys
    from importlib import import_module

    reader: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data = reader.loads(text)
    except reader.TOMLDecodeError as problem:
        where = re.search(r"line (\d+)", str(problem))
        place = f"{name}:{where[1]}" if where else name
        what = printable(str(problem).split(" (at")[0], 100)
        raise NapkinError(f"{place}: not TOML: {what}", "check the file's syntax") from None
    except RecursionError:
        raise NapkinError(f"{name}: is nested too deeply", "write fewer levels") from None
    except ValueError as problem:  # an integer with more digits than Python parses
        raise NapkinError(
            f"{name}: not TOML: {printable(str(problem).split(';')[0], 100)}", "check its numbers"
        ) from None
    return Document(name, data, _lines_of_toml(text))


def _lines_of_toml(text: str) -> dict[tuple[object, ...], int]:
    """Return the line of each `key = value` under its `[section]`."""
    lines: dict[tuple[object, ...], int] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if plain.startswith("[") and _SECTION.match(line):
            section = tuple(plain.split("#")[0].strip(" []").split("."))
            lines.setdefault(section, number)
        elif "=" in plain and not plain.startswith("#"):
            lines.setdefault((*section, *plain.split("=")[0].strip().strip("\"'").split(".")), number)
    return lines

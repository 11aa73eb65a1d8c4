"""What `lint` is given: files of frameworks, run files, or a MODEL with options; and what their comments ignore."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from napkin.commands.inputs import Inputs
from napkin.commands.signature import OptionText
from napkin.errors import NapkinError
from napkin.inputs.load import name_of, read_text
from napkin.options.registry import OPTIONS
from napkin.record import record
from napkin.rules.comments import Ignores
from napkin.rules.rule import BrokenRule

_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<line>\d+))?: (?P<key>.+)")


@record
class Target:
    """One configuration. word: as it was named; "" where options are all that is given; file: whether it is one."""

    word: str = ""
    file: bool = False


@record
class Place:
    """Where an option is stated: a file ("" for the command line), its line and its key."""

    file: str = ""
    line: int | None = None
    key: str = ""


@record
class ReadTarget:
    """A configuration as read. notes: of what its file says and napkin does not model; ignores: by file."""

    target: Target
    inputs: Inputs
    notes: tuple[str, ...]
    ignores: dict[str, Ignores]

    @property
    def name(self) -> str:
        """The file's name for messages; "" where there is none."""
        return name_of(self.target.word) if self.target.file else ""

    def place(self, finding: BrokenRule) -> Place:
        """Return where a finding is: at its option, else at one that its change names, else in the file."""
        for name in (finding.hit.option, *finding.change):
            one = self.inputs.given.get(name)
            where = _PLACE.fullmatch(one.where) if one is not None else None
            if where is not None and where["file"] in self.ignores:
                return Place(where["file"], int(where["line"]) if where["line"] else None, where["key"])
        return Place(self.name)

    def is_ignored(self, finding: BrokenRule) -> bool:
        """Return whether a comment of the file switches the finding off."""
        place = self.place(finding)
        return any(
            one.covers(finding.rule, place.line if name == place.file else None) for name, one in self.ignores.items()
        )


def targets_of(words: Sequence[str]) -> list[Target]:
    """Return the configurations that words name: each file is one."""
    if not words:
        return [Target()]
    found = [Target(word, word == "-" or _is_file(word)) for word in words]
    if len(found) > 1 and not all(one.file for one in found):
        other = next(one.word for one in found if not one.file)
        raise NapkinError(f"{other[:60]!r} is no file: one MODEL at a time", "napkin lint FILE …, or one MODEL")
    return found


def _is_file(word: str) -> bool:
    """Return whether a word names a file that is not a model's config.json alone: those are MODELs."""
    if os.path.isdir(word) or os.path.basename(word) == "config.json":
        return False
    path_like = word.startswith(("./", "../", "/", "~")) or word.endswith((".yaml", ".yml", ".toml", ".sh"))
    return os.path.isfile(word) or path_like


def read_target(inputs: Inputs, target: Target) -> ReadTarget:
    """Return a configuration's options: those of its file, over which the command line wins."""
    typed = {name: one for name, one in inputs.given.items() if name != "configs"}
    files = [str(one) for one in inputs.texts("from")] if "from" in inputs.given else []
    files += [inputs.text("run")] if "run" in inputs.given else []
    ignores = {name_of(path): Ignores(read_text(path), name_of(path)) for path in files if path != "-"}
    if not target.file:
        model = {"model": OptionText(target.word, where="MODEL")} if target.word else {}
        return ReadTarget(target, Inputs(inputs.command, {**typed, **model}), (), ignores)
    text = read_text(target.word)
    ignores[name_of(target.word)] = Ignores(text, name_of(target.word))
    given, notes, assumed = _read_file(inputs, target.word, typed)
    asked = Inputs(inputs.command, {**given, **typed})
    asked.assumed += assumed
    return ReadTarget(target, asked, tuple(notes), ignores)


def _read_file(
    inputs: Inputs, path: str, typed: dict[str, OptionText]
) -> tuple[dict[str, OptionText], list[str], list[str]]:
    """Return the options of a run file or of a framework's own file, what is not modeled, what was assumed."""
    if _is_run_file(path):
        from napkin.commands.runfile import options_of, read

        document = read(path)
        return options_of(document, document.data, (), inputs.command, shared=True), [], []
    from napkin.commands.launchfile import options_of_launch

    launch = options_of_launch([path], inputs.command, typed)
    return launch.given, launch.notes, launch.assumed


def _is_run_file(path: str) -> bool:
    """Return whether a file is napkin's own: it names a command, or all its keys are options of napkin's spelling."""
    from napkin.commands.runfile import read

    if not path.endswith((".yaml", ".yml")):
        return False
    try:
        data = read(path, any_data=True).data
    except NapkinError:
        return False
    if not isinstance(data, dict) or not data:
        return False
    return "command" in data or all(str(key).replace("_", "-") in OPTIONS for key in data)

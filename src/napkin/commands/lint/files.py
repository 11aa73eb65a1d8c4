"""Inputs of `lint`: framework files, run files, or a MODEL with options, and the rules that their comments ignore."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from napkin.commands.inputs import Inputs
from napkin.commands.signature import OptionText, Signature
from napkin.errors import NapkinError
from napkin.inputs.launch.syntax import file_and_line
from napkin.inputs.load import name_of, read_text
from napkin.options.registry import OPTIONS
from napkin.record import record
from napkin.rules.comments import Ignores
from napkin.rules.contradictions import clash, idle
from napkin.rules.rule import BrokenRule

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.commands.launchfile import Launch

_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<line>\d+))?: (?P<key>.+)")


@record
class Target:
    """One configuration: a MODEL, or "", and files that are read together."""

    model: str = ""
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first file's name for messages; "" if there is none."""
        return name_of(self.files[0]) if self.files else ""


@record
class Place:
    """Where an option is stated: a file ("" for the command line), its line and its key."""

    file: str = ""
    line: int | None = None
    key: str = ""


@record
class ReadTarget:
    """A configuration as read. notes: on what its files state and napkin does not model; ignores: by file; clashes:
    keys that contradict each other; idle: keys without effect; phase: the name of the run's phase, "" for the whole."""

    target: Target
    inputs: Inputs
    notes: tuple[str, ...] = ()
    ignores: Mapping[str, Ignores] = MappingProxyType({})
    clashes: tuple[BrokenRule, ...] = ()
    idle: tuple[BrokenRule, ...] = ()
    phase: str = ""

    @property
    def name(self) -> str:
        """The file's name, and the phase's if it has several."""
        return f"{self.target.name}, {self.phase}" if self.phase else self.target.name

    def place(self, finding: BrokenRule) -> Place:
        """Return the location of a finding: its option, else an option that its change names, else the file."""
        stated = [
            self.inputs.given[name].where for name in (finding.hit.option, *finding.change) if name in self.inputs.given
        ]
        for text in (finding.hit.where, *stated):
            where = _PLACE.fullmatch(text)
            if where is not None and where["file"] in self.ignores:
                return Place(where["file"], int(where["line"]) if where["line"] else None, where["key"])
        return Place(self.target.name)

    def is_ignored(self, finding: BrokenRule) -> bool:
        """Return whether a comment of the file switches the finding off."""
        place = self.place(finding)
        return any(
            one.covers(finding.rule, place.line if name == place.file else None) for name, one in self.ignores.items()
        )


def targets_of(words: Sequence[str], together: Sequence[str]) -> list[Target]:
    """Return the configurations that words name: each file is one. together: files that are read with each of them."""
    if not words:
        return [Target("", tuple(together))]
    found = [Target("", (word, *together)) if _is_file(word) else Target(word, tuple(together)) for word in words]
    models = [one.model for one in found if one.model]
    if len(found) > 1 and models:
        raise NapkinError(f"{models[0][:60]!r} is not a file: one MODEL at a time", "napkin lint FILE …, or one MODEL")
    return found


def _is_file(word: str) -> bool:
    """Return whether a word names a file to lint, and not a model's config.json, which is a MODEL."""
    if os.path.isdir(word) or os.path.basename(word) == "config.json":
        return False
    path_like = word.startswith(("./", "../", "/", "~")) or word.endswith((".yaml", ".yml", ".toml", ".sh"))
    return os.path.isfile(file_and_line(word)[0]) or path_like


def read_target(inputs: Inputs, target: Target) -> list[ReadTarget]:
    """Return the options of a configuration: those of its files, overridden by the command line. A run file with
    `phases:` gives one configuration per phase."""
    typed = {name: one for name, one in inputs.given.items() if name not in ("configs", "from")}
    if target.model:
        if "model" in typed:
            raise NapkinError(f"{name_of(target.model)} and --model are both a model", "leave one of them out")
        typed["model"] = OptionText(target.model, where="MODEL")
    named = [*target.files, *([inputs.text("run")] if "run" in inputs.given else [])]
    ignores = {
        name_of(path): Ignores(read_text(path), name_of(path)) for path, _ in map(file_and_line, named) if path != "-"
    }
    if not target.files:
        return [ReadTarget(target, Inputs(inputs.command, typed), ignores=ignores)]
    if len(target.files) == 1 and _is_run_file(target.files[0]):
        return _read_run_file(inputs, target, typed, ignores)
    given, launch = _merged(inputs.command, {"from": OptionText(list(target.files))}, typed)
    return [_read_launch(Inputs(inputs.command, {**given, **typed}), target, launch, ignores)]


def _merged(
    command: Signature, given: dict[str, OptionText], typed: dict[str, OptionText]
) -> tuple[dict[str, OptionText], Launch | None]:
    """Return the options of a file merged with those of the launch files in its `from`, without `from` itself."""
    from napkin.commands.launchfile import merged_with_launch

    given, launch = merged_with_launch(command, given, typed, clashing=True)
    return {name: one for name, one in given.items() if name != "from"}, launch


def _read_run_file(
    inputs: Inputs, target: Target, typed: dict[str, OptionText], ignores: dict[str, Ignores]
) -> list[ReadTarget]:
    """Return the configurations of a run file: one, or one for each of its phases; launch files that it names add
    options."""
    from napkin.commands.runfile import options_of, read

    document = read(target.files[0])
    given = options_of(document, document.data, (), inputs.command, shared=True, apart=True)
    given, launch = _merged(inputs.command, given, typed)
    if "phases" in given:
        from napkin.commands.phases import parts_of

        parts = [(one.name, {**one.options, **typed}) for one in parts_of(given)]
    else:
        parts = [("", {**given, **typed})]
    return [_read_launch(Inputs(inputs.command, options), target, launch, ignores, name) for name, options in parts]


def _read_launch(
    asked: Inputs, target: Target, launch: Launch | None, ignores: dict[str, Ignores], phase: str = ""
) -> ReadTarget:
    """Return a configuration with the notes of its launch files."""
    if launch is None:
        return ReadTarget(target, asked, ignores=ignores, phase=phase)
    asked.assumed += launch.assumed
    clashes = tuple(clash(f"{one.key}: {one.why}", one.option, one.place) for one in launch.clashes)
    without_effect = tuple(idle(f"{one.key}: {one.why}", one.option, one.place) for one in launch.idle)
    return ReadTarget(target, asked, tuple(launch.notes), ignores, clashes, without_effect, phase)


def _is_run_file(path: str) -> bool:
    """Return whether a file is a napkin run file: it names a command, or all its keys are napkin options."""
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

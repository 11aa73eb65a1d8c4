"""Read the two sides of `napkin compare`: two words, or one question and its differences."""

from __future__ import annotations

import os
from itertools import pairwise

from napkin.commands import nested_question
from napkin.commands.command import Command, find
from napkin.commands.inputs import Inputs
from napkin.commands.nested_question import Question
from napkin.commands.signature import OptionText
from napkin.errors import USAGE, NapkinError
from napkin.inputs.launch.stated import FROM_FILE

DESCRIBES_MODEL = ("config.json", "model-description")
"""Formats of launch files that describe a model and no run: they are compared as models."""
FILE = "from="
"""The difference that replaces a launch file by another."""


def read_sides(inputs: Inputs) -> tuple[Command, Question, Question, tuple[str, str]]:
    """Return the two sides: from --against, or from two words."""
    if inputs.command.target:
        command, a = nested_question.read_target(inputs)
        file, _, rest = inputs.text("against", "what is different?").removeprefix(FILE).partition(",")
        of_file = inputs.text("against").startswith(FILE)
        written = rest if of_file else inputs.text("against")
        changes = nested_question.assignments(written, command, "--against") if written else {}
        b = nested_question.changed(_of_other_file(command, a, file) if of_file else a, changes)
        named = [*([file] if of_file else []), *(f"{name} {text}" for name, text in changes.items())]
        return command, a, b, ("as given", ", ".join(named))
    sides = inputs.texts("sides")
    if len(sides) != 2:
        from napkin.inputs.presets import is_preset

        models = len(sides) > 2 and all(map(is_preset, sides))
        listed = f"napkin sweep params --over model={','.join(sides)}"
        usual = "napkin compare a.yaml b.yaml, or compare train-time … --against"
        raise NapkinError(f"compare takes two sides, not {len(sides)}", listed if models else usual)
    first, second = sides
    if any(len(side.split()) > 1 and not os.path.exists(side) for side in sides):
        raise NapkinError("compare reads the words of a command line, not one text in quotes", _unquoted(first, second))
    command, a = _word(first)
    other, b = _word(second)
    if command.name != other.name:
        raise NapkinError(f"{first} asks {command.name}, {second} asks {other.name}", "compare like with like")
    return command, a, b, (first, second)


def _of_other_file(command: Command, question: Question, file: str) -> Question:
    """Return a question with the options of another launch file in place of those of its own."""
    if not file:
        raise NapkinError(f"--against: {FILE} names no launch file", f"for example --against {FILE}train.yaml")
    from napkin.commands.launchfile import options_of_launch

    typed = {name: one for name, one in question.items() if one.origin != FROM_FILE}
    return {**_taken(command, options_of_launch([file], command, typed).given), **typed}


def _taken(command: Command, given: Question) -> Question:
    """Return the options of a launch file that a command has."""
    return {name: one for name, one in given.items() if name in command.names}


def _of_launch(word: str) -> tuple[Command, Question] | None:
    """Return a launch file as the question of its memory; None for a file of another kind."""
    from napkin.commands.launchfile import options_of_launch
    from napkin.inputs.launch.read import read_launch

    try:
        format = read_launch(word).format.name if os.path.isfile(word) else DESCRIBES_MODEL[0]
    except NapkinError:
        return None
    if format in DESCRIBES_MODEL:
        return None
    command = find("memory")
    try:
        return command, _taken(command, options_of_launch([word], command, {}).given)
    except NapkinError as problem:
        hint = f"napkin compare memory --from {word} … --against from=OTHER, with what the files leave open"
        first = problem.errors[0]
        raise NapkinError(first.message, hint if first.status == USAGE else first.hint, first.status) from None


def _unquoted(first: str, second: str) -> str:
    """Return a hint for comparing two command lines that were each given as one quoted word."""
    words, other = (side.removeprefix("napkin ").split() for side in (first, second))
    given = dict(pairwise(words))
    stated = {name: value for name, value in pairwise(other) if name.startswith("--")}
    differ = [f"{name[2:]}={value}" for name, value in stated.items() if given.get(name) != value]
    return f"napkin compare {' '.join(words)} --against {','.join(differ) or 'NAME=VALUE'}"


def _word(word: str) -> tuple[Command, Question]:
    """Return a run file, an accelerator or a model as a question."""
    from napkin.commands import runfile
    from napkin.commands.launchfile import with_launch
    from napkin.inputs import hardware
    from napkin.inputs.hf_cache import cached_config
    from napkin.inputs.load import printable
    from napkin.inputs.presets import preset
    from napkin.inputs.sizes import size_of

    if word.endswith((".yaml", ".yml")) and os.path.isfile(word):
        document = runfile.read(word)
        stated = document.data.get("command")
        if isinstance(stated, str):
            command = find(stated)
            return command, with_launch(command, runfile.options_of(document, document.data, (), command))[0]
    if (launch := _of_launch(word)) is not None:
        return launch
    try:
        hardware.find(word)
    except NapkinError as no_hardware:
        if not os.path.exists(word) and size_of(word) is None and cached_config(word) is None:
            try:
                preset(word)
            except NapkinError as no_model:
                near = [p.hint for p in (no_hardware, no_model) if p.hint and p.hint.startswith("did you mean")]
                known = "napkin hardware and napkin models list the names"
                raise NapkinError(
                    f"{printable(word, 60)!r} is not a run file, accelerator, model or profile",
                    near[0] if near else known,
                ) from None
        command = find("params")
        return command, {"model": OptionText(word)}
    return find("hardware"), {"accelerator": OptionText(word)}


def is_profile(word: str) -> bool:
    """Return whether the word names a profile of `napkin bench`; bench itself compares profiles."""
    from napkin.inputs.load import read_json
    from napkin.inputs.profile_cases import KIND

    if not (word.endswith(".json") and os.path.isfile(word)):
        return False
    data = read_json(word).data
    return isinstance(data, dict) and data.get("kind") == KIND

"""Shared by commands that run another one: read its question, change some options, answer it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from napkin.commands.command import Command, ask, find
from napkin.commands.inputs import Inputs
from napkin.commands.signature import AllButAdvice, OptionText
from napkin.errors import NapkinError, did_you_mean
from napkin.options.option import Option
from napkin.options.output import COMMON, DRAWS
from napkin.options.ranges import truth
from napkin.options.registry import OPTIONS, spelled
from napkin.render.answer import Answer, Shown
from napkin.units import Unreadable

Question = dict[str, OptionText]
Changes = Mapping[str, str | bool | None]
"""Option → its text in a changed question; None removes the option."""


def read_target(inputs: Inputs) -> tuple[Command, Question]:
    """Return the command to run, and its options as given or from the run file."""
    if not inputs.command.target:
        name = inputs.command.name
        raise NapkinError(f"{name}: which command?", f"napkin {inputs.command.examples[0]}")
    command = find(inputs.command.target)
    taken = {*command.names, *command.figures} - {*COMMON, *DRAWS}
    shown = {name: one for name, one in inputs.shown.items() if name in taken}
    inputs.depends(shown, True)
    return command, {name: OptionText(_as_given(one), one.origin) for name, one in shown.items()}


def _as_given(shown: Shown) -> object:
    if shown.text is not None:
        return shown.text
    return list(shown.value) if isinstance(shown.value, tuple) else shown.value


def record_as_answered(inputs: Inputs, answer: Answer) -> None:
    """Record an option under the name by which the inner command read it: `7B` as MODEL is --params 7B."""
    read = {name: one for name, one in answer.inputs.items() if one.origin == "given" and name not in inputs.given}
    for name in [name for name in inputs.given if name in OPTIONS and name not in answer.inputs]:
        for meant, one in read.items():
            if meant not in inputs.given and one.text == inputs.given[name].text:
                inputs.means(name, meant)
                inputs.depends((meant,), True)
                break


def option_of(command: Command, name: str, where: str) -> Option:
    """Return an option of the inner command by any spelling. Raises NapkinError (2) with the nearest name."""
    names = [n for n in (*command.names, *command.figures) if n not in (*COMMON, *DRAWS)]
    known = spelled(name.strip().lstrip("-"), names)
    if known is None:
        hint = did_you_mean(name, names) or f"napkin {command.name} --help lists its options"
        raise NapkinError(f"{where}: {command.name} has no option {name.strip()[:60]!r}", hint)
    return OPTIONS[known]


def changed(question: Question, changes: Changes) -> Question:
    """Return the question with other texts for some options."""
    result = {name: one for name, one in question.items() if name not in changes}
    return {**result, **{name: OptionText(text) for name, text in changes.items() if text is not None}}


def answer_quietly(
    command: Command,
    question: Question,
    only: Container[str] | None = None,
    spare: dict[str, NapkinError] | None = None,
) -> Answer:
    """Return the answer; only: the quantities that will be read, all but advice if it is None; spare: collects the
    errors for options that have no effect."""
    return ask(command, question, AllButAdvice() if only is None else only, spare)


def assignments(text: str, command: Command, where: str) -> dict[str, str | bool]:
    """Return `tp=8,pp=4,sp=false` as texts by option. A value keeps its commas if no `name=` follows them."""
    parts: list[str] = []
    taken = {*command.names, *command.figures}
    for piece in text.split(","):
        head, equals, _ = piece.partition("=")
        if parts and (not equals or (spelled(head, taken) is None and _reads(command, f"{parts[-1]},{piece}"))):
            parts[-1] += "," + piece
        else:
            parts.append(piece)
    result: dict[str, str | bool] = {}
    for part in parts:
        head, equals, value = part.partition("=")
        if not equals:
            raise NapkinError(f"{where}: {part.strip()[:60]!r} is not name=value", f"for example {where} tp=8,pp=4")
        option = option_of(command, head, where)
        if option.name in result:
            raise NapkinError(f"{where}: {option.name} is given twice", "keep one of them")
        result[option.name] = truth(value, where, option) if option.flag else value.strip()
    return result


def _reads(command: Command, stated: str) -> bool:
    """Return whether an option reads its value in `precision=param=bf16,grad=fp32`, with the part after the comma."""
    name, _, value = stated.partition("=")
    found = spelled(name, {*command.names, *command.figures})
    if found is None:
        return False
    try:
        command.reads.get(found, OPTIONS[found].parse)(value)
    except Unreadable:
        return False
    return True


def paths(text: str | None, answer_paths: Sequence[str]) -> list[str] | None:
    """Return the requested quantities by path; None if none was named."""
    if text is None:
        return None
    wanted = [word.strip() for word in text.split(",")]
    for path in wanted:
        if path not in answer_paths:
            hint = did_you_mean(path, answer_paths) or f"it has {', '.join(answer_paths[:12])}"
            raise NapkinError(f"--show: the answer has no quantity {path[:60]!r}", hint)
    return wanted

"""What the commands that ask another one share: the question as given, one option changed, values of a range."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from napkin import units
from napkin.commands.command import Command, Given, Inputs, ask
from napkin.errors import NapkinError, did_you_mean
from napkin.options.registry import COMMON, DRAWS, OPTIONS, Option, canonical
from napkin.render.answer import Answer, Shown
from napkin.units import Unreadable

Question = dict[str, Given]
MOST_VALUES = 10_000


def target_of(inputs: Inputs) -> tuple[Command, Question]:
    """The command that is asked, and its options as given or as the run file has them."""
    command = inputs.command.target
    if command is None:
        name = inputs.command.name
        raise NapkinError(f"{name}: which command?", f"napkin {inputs.command.examples[0]}")
    taken = {*command.names, *command.figures} - {*COMMON, *DRAWS}
    shown = {name: one for name, one in inputs.shown.items() if name in taken}
    return command, {name: Given(_as_given(one), one.origin) for name, one in shown.items()}


def _as_given(shown: Shown) -> Any:
    if shown.text is not None:
        return shown.text
    return list(shown.value) if isinstance(shown.value, tuple) else shown.value


def option_of(command: Command, name: str, where: str) -> Option:
    """The option of the asked command by any spelling; refused (2) with the nearest."""
    known = canonical(name.strip().lstrip("-"))
    names = [n for n in (*command.names, *command.figures) if n not in (*COMMON, *DRAWS)]
    if known not in names:
        hint = did_you_mean(known, names) or f"napkin {command.name} --help lists its options"
        raise NapkinError(f"{where}: {command.name} has no option {name.strip()[:60]!r}", hint)
    return OPTIONS[known]


def changed(question: Question, changes: Mapping[str, Any]) -> Question:
    """The question with other texts for some options; None takes an option out."""
    result = {name: one for name, one in question.items() if name not in changes}
    return {**result, **{name: Given(text) for name, text in changes.items() if text is not None}}


ADVICE = "suggestions"
"""What an answer advises beside its quantities."""


class Quantities:
    """Every quantity of an answer, but no advice: what a command that asks another reads of it."""

    def __contains__(self, path: object) -> bool:
        return path != ADVICE


def asked(command: Command, question: Question, only: Container[str] | None = None) -> Answer:
    """The answer; only: the quantities that will be read."""
    return ask(command, question, Quantities() if only is None else only)


def assignments(text: str, command: Command, where: str) -> dict[str, Any]:
    """`tp=8,pp=4,sp=false` → texts by option. A value keeps its commas where no `name=` follows them."""
    parts: list[str] = []
    for piece in text.split(","):
        head, equals, _ = piece.partition("=")
        known = canonical(head.strip())
        if parts and (not equals or known not in (*command.names, *command.figures)):
            parts[-1] += "," + piece
        else:
            parts.append(piece)
    result: dict[str, Any] = {}
    for part in parts:
        head, equals, value = part.partition("=")
        if not equals:
            raise NapkinError(f"{where}: {part.strip()[:60]!r} is not name=value", f"for example {where} tp=8,pp=4")
        option = option_of(command, head, where)
        if option.name in result:
            raise NapkinError(f"{where}: {option.name} is given twice")
        result[option.name] = _truth(value, where, option) if option.flag else value.strip()
    return result


def _truth(text: str, where: str, option: Option) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise NapkinError(f"{where}: {option.name} is {text.strip()[:40]!r}, neither true nor false")
    return word == "true"


def read(option: Option, text: str, where: str) -> Any:
    """A value of an option, in base units."""
    try:
        return option.parse(text)
    except Unreadable as problem:
        raise NapkinError(f"{where}: {option.name}: {problem.reason}", problem.hint) from None


_SUFFIX = {"second": "s", "byte": "B", "byte/s": "B/s", "FLOP/s": "FLOP/s", "watt": "W"}


def written(option: Option, value: float) -> str:
    """A value in base units as its option reads it: 86400 seconds → `86400s`."""
    whole = isinstance(value, int) or value.is_integer()
    number = str(int(value)) if whole and abs(value) < 1e15 else repr(value)
    return number + _SUFFIX.get(option.unit, "")


def counts(option: Option) -> bool:
    """Whether the option takes whole numbers only."""
    if option.parse is units.size:
        return True
    for half in (0.5, 1.5):
        try:
            option.parse(written(option, half))
        except Unreadable:
            continue
        return False
    return True


def values(option: Option, text: str, where: str) -> list[Any]:
    """The texts of a list (`1,2,4`) or range: `0.3..0.6:0.05` by steps, `1..64:x2` by factors, `1..64` by doubling
    where the option counts something. A range's end is always among them. Flags give true and false."""
    if option.flag:
        return [_truth(word, where, option) for word in text.split(",")]
    if ".." not in text:
        found: list[Any] = [word.strip() for word in text.split(",")]
        for word in found:
            read(option, word, where)
        return found
    first, _, rest = text.partition("..")
    last, colon, step = rest.partition(":")
    low, high = read(option, first, where), read(option, last, where)
    if not all(isinstance(end, (int, float)) for end in (low, high)):
        raise NapkinError(f"{where}: {option.name} has no ranges", f"list its values: {where} {option.name}=a,b")
    if high < low:
        raise NapkinError(f"{where}: {text.strip()!r} is an empty range", "the smaller end comes first")
    whole = counts(option)
    if not colon and not whole:
        raise NapkinError(f"{where}: {text.strip()!r} has no step", f"for example {first.strip()}..{last.strip()}:x2")
    if not colon or step.strip()[:1] in ("x", "X", "×"):
        numbers = _by_factor(low, high, _factor(step.strip()[1:] if colon else "2", where), whole)
        if numbers[-1] != high:
            raise NapkinError(f"{where}: the range has more than {MOST_VALUES:,} values", "take a larger factor")
    else:
        numbers = _by_step(low, high, read(option, step, where), where)
    return [written(option, number) for number in numbers]


def _factor(text: str, where: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        raise NapkinError(f"{where}: {text[:40]!r} is not a factor", "for example 1..64:x2") from None
    if not 1 < factor < math.inf:
        raise NapkinError(f"{where}: a factor is above 1", "for example 1..64:x2")
    return factor


def _by_factor(low: float, high: float, factor: float, whole: bool) -> list[float]:
    found = [low]
    while found[-1] < high and len(found) < MOST_VALUES:
        grown = low * factor ** len(found)
        grown = max(round(grown), found[-1] + 1) if whole else grown
        found.append(high if grown > high * (1 - 1e-12) else grown)
    return found


def _by_step(low: float, high: float, step: float, where: str) -> list[float]:
    count = (high - low) / step
    if count >= MOST_VALUES:
        raise NapkinError(f"{where}: the range has more than {MOST_VALUES:,} values", "take a larger step")
    found: list[float] = [low + i * step for i in range(int(count * (1 + 1e-12)) + 1)]
    found = [f if isinstance(f, int) else float(f"{f:.12g}") for f in found]  # 0.3 + 0.05·i without binary dust
    return found if found[-1] >= high * (1 - 1e-12) else [*found, high]


def paths(text: str | None, answer_paths: Sequence[str], where: str = "--show") -> list[str] | None:
    """The quantities that were asked for, by path; None where none was named."""
    if text is None:
        return None
    wanted = [word.strip() for word in text.split(",")]
    for path in wanted:
        if path not in answer_paths:
            hint = did_you_mean(path, answer_paths) or f"it has {', '.join(answer_paths[:12])}"
            raise NapkinError(f"{where}: the answer has no quantity {path[:60]!r}", hint)
    return wanted

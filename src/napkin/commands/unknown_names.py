"""Names that nothing has, all told where a question fails for one of them. Loaded only on that path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from napkin.commands.inputs import Inputs
from napkin.commands.matmul_or_linear import TAKES
from napkin.errors import NapkinError, Problems
from napkin.inputs.load import STDIN, is_pipe


def _read_model(inputs: Inputs) -> object:
    from napkin.commands.question.named import named_config

    return named_config(inputs.text("model"))


def _read_hardware(inputs: Inputs) -> object:
    from napkin.commands.question.machine import read_hardware_table
    from napkin.inputs.hardware import find

    return find(inputs.text("hardware"), read_hardware_table(inputs))


def _read_trainer(inputs: Inputs) -> object:
    from napkin.commands.question.software import read_named_trainer

    return read_named_trainer(inputs)


def _read_framework(inputs: Inputs) -> object:
    from napkin.commands.question.software import read_framework

    return read_framework(inputs)


def _read_optimizer(inputs: Inputs) -> object:
    from napkin.commands.question.setup import read_optimizer

    return read_optimizer(inputs)


def _read_precision(inputs: Inputs) -> object:
    from napkin.training.precision import precision

    return precision(inputs.text("precision"))


READERS: dict[str, Callable[[Inputs], object]] = {
    "model": _read_model,
    "hardware": _read_hardware,
    "trainer": _read_trainer,
    "framework": _read_framework,
    "optimizer": _read_optimizer,
    "precision": _read_precision,
}
"""Option → what reads its name, with an error if nothing has it. Each loads only what it needs."""
FILES = {"hardware": ("hardware-file",)}
"""Option → options with files that its reader reads."""


def read_unknown_names(problem: NapkinError, inputs: Inputs) -> NapkinError:
    """Return a problem with the errors about the question's other names that nothing has, if it is itself about one;
    each with its place where a file gives the name."""
    given = _read_given(inputs)
    if not any(_read_whether_named(one, inputs, name) for one in problem.errors for name in given):
        return problem
    told = [_read_place(one, inputs, given) for one in problem.errors]
    for one in _read_unknown(inputs, given):
        if not any(other.message.endswith(one.message) for other in told):
            told.append(one)
    return told[0] if len(told) == 1 else Problems(told)


def read_all_unknown(inputs: Inputs) -> list[NapkinError]:
    """Return the errors about the question's names that nothing has, each with its place where a file gives it."""
    return list(_read_unknown(inputs, _read_given(inputs)))


def _read_given(inputs: Inputs) -> list[str]:
    """Return the options whose names are given as text."""
    return [name for name in READERS if name in inputs and isinstance(inputs.peek(name), str)]


def _read_unknown(inputs: Inputs, given: Iterable[str]) -> Iterator[NapkinError]:
    """Yield the error about each given name that nothing has."""
    others = ("-", STDIN, *TAKES.get(inputs.command.name, ()))
    for name in given:
        if name == "model" and str(inputs.peek(name)).strip().lower() in others:
            continue
        if any(is_pipe(str(inputs.peek(one))) for one in (name, *FILES.get(name, ())) if one in inputs):
            continue
        try:
            READERS[name](inputs)
        except NapkinError as problem:
            yield from (
                _read_place(one, inputs, [name]) for one in problem.errors if _read_whether_named(one, inputs, name)
            )


def _read_place(problem: NapkinError, inputs: Inputs, given: Iterable[str]) -> NapkinError:
    """Return an error with the file, line and key of the name that it quotes, if a file gives it and the error does not
    name the option."""
    name = next((name for name in given if _read_whether_named(problem, inputs, name)), None)
    if name is None or f"--{name}" in problem.message:
        return problem
    place = inputs.given[name]
    return problem if place.origin == "given" or not place.where else problem.at(place.where)


def _read_whether_named(problem: NapkinError, inputs: Inputs, name: str) -> bool:
    """Return whether an error quotes the name that this option has."""
    value = inputs.peek(name)
    return repr(value) in problem.message or problem.message.startswith(f"{value}: ")

"""Select one of a program's trainers, and the calls that belong to it."""

from __future__ import annotations

import ast

from napkin.errors import NapkinError, Refused
from napkin.inputs.launch.python.calls import CONFIGS, TRAINERS, Call, TrainingProgram
from napkin.inputs.launch.python.names import called, owner

MOST_LISTED = 6


def trainer_of(program: TrainingProgram, line: int) -> Call | None:
    """Return a program's trainer, or the one on the line of `FILE:LINE`, and drop the calls of other trainers.

    None if the program constructs none. Raises Refused (3) if it constructs several and no line selects one.
    """
    trainers = program.of_kind(TRAINERS)
    listed = ", ".join(f"{called(one.node)} on line {one.node.lineno}" for one in trainers[:MOST_LISTED])
    listed += ", …" if len(trainers) > MOST_LISTED else ""
    if not line:
        if len(trainers) > 1:
            hint = f"select one by its line: --from {program.name}:{trainers[-1].node.lineno}"
            raise Refused(f"{program.name}: constructs {len(trainers)} trainers: {listed}", hint)
        return trainers[0] if trainers else None
    found = [one for one in trainers if one.node.lineno <= line <= (one.node.end_lineno or line)]
    if len(found) != 1:
        raise NapkinError(
            f"{program.name}:{line}: {'several trainers are' if found else 'no trainer is'} made on this line",
            f"trainers: {listed}" if trainers else f"omit the line: --from {program.name}",
        )
    if len(trainers) > 1:
        every = program.of_kind(CONFIGS)
        program.calls = _calls_of(program, found[0], [one for one in trainers if one is not found[0]])
        program.shared = {name for one in every if one not in program.calls for name in one.targets}
    return found[0]


def _calls_of(program: TrainingProgram, trainer: Call, others: list[Call]) -> list[Call]:
    """Return the calls that a trainer may depend on.

    Excludes calls in functions that construct only other trainers, calls inside other trainers' arguments, later calls,
    calls whose result is reassigned first, and constructors of another trainer type's arguments.
    """
    elsewhere = {id(one.names) for one in others} - {id(trainer.names)}
    inside = {id(node) for one in others for node in ast.walk(one.node)}
    last = trainer.node.end_lineno or trainer.node.lineno
    calls = [one for one in program.calls if id(one.node) not in inside]
    calls = [one for one in calls if not (one.names is trainer.names and one.node.lineno > last)]
    calls = [one for one in calls if one.names is trainer.names or not one.names or id(one.names) not in elsewhere]
    calls = [one for one in calls if not any(_replaces(later, one) for later in calls)]
    kind = TRAINERS[program.kind(trainer)]
    configs = [one for one in calls if program.kind(one) in CONFIGS]
    mine = [one for one in configs if CONFIGS[program.kind(one)] == kind]
    return [one for one in calls if one in mine or one not in configs or not mine]


def _replaces(later: Call, call: Call) -> bool:
    """Return whether a later call always reassigns the name that a call assigns or modifies.

    A reassignment from the name itself does not count.
    """
    if later.names is not call.names or not later.sure or later.node.lineno <= call.node.lineno:
        return False
    names = {*call.targets, *([owner(call.node)] if owner(call.node) else [])}
    used = {one.id for one in ast.walk(later.node) if isinstance(one, ast.Name)}
    return any(name in later.targets and name not in used for name in names)

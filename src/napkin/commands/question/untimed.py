"""What the step model cannot time yet; rejected by the commands that predict a step."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.commands.inputs import Inputs
from napkin.errors import Problems, Refused
from napkin.options.training import UNTIMED
from napkin.training.setup import Setup
from napkin.training.tasks import PRETRAIN, TASKS, Task

TIMED_OFFLOAD = ("optimizer",)
"""What may be kept in host memory: the host updates it."""


def check_timed(inputs: Inputs, setup: Setup) -> None:
    """Refuse (3) a step whose time is not modeled."""
    read_untimed(inputs)
    if setup.shard and setup.layout.zero < 3:  # only gathers of ZeRO-3 are timed within a group
        _refuse(("dp-shard",))


def read_untimed(inputs: Inputs) -> None:
    """Refuse (3) options whose effect on a step's time is not modeled, all at once."""
    given = {name: inputs.peek(name) for name in UNTIMED if name in inputs}
    _refuse(name for name, value in given.items() if value not in (None, False, TIMED_OFFLOAD))
    check_generates(TASKS[str(inputs.peek("task") or PRETRAIN.name)])


def check_generates(task: Task) -> None:
    """Refuse a task in which the model itself generates responses."""
    if task.generates:
        raise Refused(
            f"--task {task.name}: the time in which the model generates responses is not modeled",
            "--task distill times its other steps; napkin memory counts its bytes",
        )


def _refuse(names: Iterable[str]) -> None:
    hint = "napkin memory with the same options counts its bytes"
    problems = [Refused(f"--{name}: the time of a step with this {name} is not modeled", hint) for name in names]
    if problems:
        raise problems[0] if len(problems) == 1 else Problems(problems)

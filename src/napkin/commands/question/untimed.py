"""What the step model cannot time yet; rejected by the commands that predict a step."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from napkin.commands.inputs import Inputs
from napkin.commands.question.tasks import read_stated_task
from napkin.errors import Problems, Refused
from napkin.inputs.hardware import Hardware
from napkin.options.training import UNTIMED
from napkin.training.setup import Setup
from napkin.training.tasks import Task


def check_timed(inputs: Inputs, setup: Setup) -> None:
    """Refuse (3) a step whose time is not modeled."""
    read_untimed(inputs)
    check_stashed(setup.offload, setup.layout.recompute.kind)
    if setup.shard and setup.layout.zero < 3:  # only gathers of ZeRO-3 are timed within a group
        _refuse(("dp-shard",))


def read_untimed(inputs: Inputs) -> None:
    """Refuse (3) options whose effect on a step's time is not modeled, all at once."""
    _refuse(name for name in UNTIMED if name in inputs and inputs.peek(name) not in (None, False))
    check_generates(inputs, read_stated_task(inputs))


def read_searched(inputs: Inputs) -> None:
    """Refuse (3) what a search for a layout does not time: what no step is timed with, offloaded parameters, and
    offloaded activations unless it is said that every layer runs again."""
    read_untimed(inputs)
    offload = inputs.peek("offload")
    if not isinstance(offload, tuple):
        return
    if "parameters" in offload:
        raise Refused(
            "--offload parameters: layouts with it are not searched",
            "napkin step times one layout with it, and napkin memory counts its bytes",
        )
    check_stashed(offload, str(inputs.peek("recompute")))


def check_stashed(offload: Collection[str], kind: str) -> None:
    """Refuse (3) offloaded activations of layers that do not run again: of these only the inputs are counted."""
    if "activations" in offload and kind != "full":
        raise Refused(
            "--offload activations: its time is modeled only where every layer runs again and keeps its input",
            "--recompute full",
        )


def check_host_link(hardware: Hardware, setup: Setup) -> None:
    """Refuse (3) offloading on an accelerator whose link to its host is not known."""
    from napkin.evidence.rates.machines import host_link_of

    if setup.offload and not host_link_of(hardware):
        raise Refused(
            f"the time of --offload: {hardware.name}'s link to its host is not known",
            "host_link in a --hardware-file sets it",
        )


def check_generates(inputs: Inputs, task: Task) -> None:
    """Refuse a task in which the model itself generates responses, without an engine."""
    distilled = "--task distill times the other steps"
    if task.generates and not task.rollout:
        raise Refused(
            f"--task {task.name}: the time in which the model itself generates responses is not modeled",
            f"--rollout colocated:0.5, an engine that generates them; {distilled}"
            if "rollout" in inputs.command.names
            else distilled,
        )


def _refuse(names: Iterable[str]) -> None:
    hint = "napkin memory with the same options counts its bytes"
    problems = [Refused(f"--{name}: the time of a step with this {name} is not modeled", hint) for name in names]
    if problems:
        raise problems[0] if len(problems) == 1 else Problems(problems)

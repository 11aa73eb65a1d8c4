"""The number of steps of a reinforcement learning run, and its time and cost."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.planning.rollout_lengths import RolloutLengths
from napkin.term import TRUE, Term, ceil_divide, constant, divide, leaf, multiply
from napkin.timing.goodput import Goodput


def read_steps(inputs: Inputs, lengths: RolloutLengths) -> Term:
    """Return the steps: as given, or those in which all prompts of all epochs come; the last may be a partial one."""
    if inputs.has("steps"):
        inputs.because(("samples", "epochs"), "--steps says how much is trained on", "leave out one of the two")
        return leaf("steps", inputs.integer("steps"), "1", TRUE)
    if not inputs.has("samples"):
        raise NapkinError("how much is trained? --steps, or --samples: prompts", "for example --steps 200")
    inputs.default("epochs", "1")
    prompts = multiply(
        "prompts",
        leaf("samples", inputs.integer("samples"), "1", TRUE),
        leaf("epochs", float(inputs.number("epochs")), "1", TRUE),
    )
    return ceil_divide("steps", prompts, leaf("prompts_of_a_step", lengths.prompts, "1", TRUE))


def run_of(steps: Term, step: Term, gpus: int, goodput: Goodput, price: Term | None) -> list[Term]:
    """Return the calendar time and the uninterrupted time of this many steps, their ratio (goodput), GPU-hours, and the
    cost if there is a price."""
    there = goodput.on(leaf("gpus", gpus, "GPU", TRUE))
    busy = multiply("time/uninterrupted", steps, step)
    time = there.calendar(busy)
    hours = divide(
        "gpu_hours",
        multiply("gpu_seconds", there.paid(leaf("gpus", gpus, "GPU", TRUE)), time),
        constant("seconds_per_hour", 3600, "second/hour"),
    )
    found = [time, busy, there.share, steps, hours]
    return found if price is None else [*found, multiply("cost", hours, price)]

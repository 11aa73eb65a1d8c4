"""`napkin train-time MODEL` with a layout and no --gpus: as many as its degrees make, or as a deadline takes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from napkin.commands.goodput import read_goodput
from napkin.commands.inputs import Inputs
from napkin.commands.model import read_model
from napkin.commands.step_model import read_step
from napkin.commands.train_time_question import SolvedMachine
from napkin.errors import BROKEN, NapkinError
from napkin.evidence.rates import gpus_per_node
from napkin.inputs.hardware import Hardware
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.alternatives import DOUBLINGS
from napkin.planning.fewest import EIGHTHS, fewest
from napkin.term import TRUE, Term, leaf
from napkin.units import human

OUTSIDE = ("tp", "pp", "cp")
"""Degrees that divide the GPUs next to data parallelism."""


def read_degrees(inputs: Inputs, known: dict[str, Term]) -> None:
    """Take the product of the degrees as the number of GPUs where --dp is given."""
    if "dp" not in inputs:
        return
    gpus = math.prod(inputs.integer(name) for name in ("dp", *(name for name in OUTSIDE if name in inputs)))
    inputs.record("gpus", gpus, "derived", "GPU")
    known["gpus"] = leaf("gpus", gpus, "GPU")


def read_fewest(inputs: Inputs, known: Mapping[str, Term], hardware: Hardware) -> SolvedMachine:
    """Return the fewest GPUs with which the layout's steps train the tokens within the deadline, among the numbers that
    `napkin plan` tries."""
    for name, text in SETUP_DEFAULTS.items():
        inputs.default(name, text)
    model, allowed, tokens = read_model(inputs), known["time"], float(known["tokens"].value)
    share = float(read_goodput(inputs).share.value)
    problems: list[NapkinError] = []
    predicted: list[int] = []

    def in_time(gpus: int) -> bool:
        asked = inputs.changed({"gpus": str(gpus)})
        for name, text in SETUP_DEFAULTS.items():
            asked.default(name, text)
        try:
            step = read_step(asked, model)
        except NapkinError as problem:  # these GPUs do not divide the batch or the layout
            problems.append(problem)
            return False
        layout = step.setup.layout
        steps = tokens / float(layout.global_batch * layout.seq)
        predicted.append(gpus)
        return steps * float(step.prediction.step().time.value) / share <= float(allowed.value)

    node = gpus_per_node(hardware)
    unit = math.prod(inputs.integer(name) for name in OUTSIDE)
    gpus = fewest(in_time, node, node << DOUBLINGS, unit, EIGHTHS)
    if not predicted:
        raise problems[0]
    if gpus is None:
        most = f"no number of GPUs up to {node << DOUBLINGS:,} trains {human(tokens, 'token')} within"
        why = f"{problems[0].message}; " if problems else ""
        raise NapkinError(
            f"{most} {human(allowed.value, 'second')} with this layout",
            f"{why}napkin plan searches the layouts",
            status=BROKEN,
        )
    inputs.record("gpus", gpus, "solved", "GPU")
    inputs.depends(("within",), True)
    inputs.note("gpus is the fewest of those tried: powers of two, and eighths between them, in whole nodes")
    return SolvedMachine(leaf("gpus", gpus, "GPU", TRUE), allowed.renamed("time/allowed"))

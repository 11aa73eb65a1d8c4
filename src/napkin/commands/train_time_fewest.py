"""`napkin train-time MODEL` with a layout and no --gpus: as many as its degrees make, or as a deadline takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from napkin.commands.goodput import read_goodput
from napkin.commands.inputs import Inputs
from napkin.commands.layout import MORE_RANKS, read_machines
from napkin.commands.model import read_model
from napkin.commands.step_model import read_step
from napkin.commands.train_time_question import SolvedMachine
from napkin.evidence.constants import deviations
from napkin.evidence.rates import gpus_per_node
from napkin.inputs.hardware import Hardware
from napkin.options.layout import OF_REPLICA
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.fewest import EIGHTHS, TRIED_IN_EIGHTHS, fewest
from napkin.term import TRUE, Term, leaf
from napkin.units import human


def read_degrees(inputs: Inputs, known: dict[str, Term]) -> None:
    """Take the product of the degrees as the number of GPUs where --dp is given."""
    if "dp" not in inputs:
        return
    gpus = math.prod(inputs.integer(name) for name in ("dp", *(name for name in OF_REPLICA if name in inputs)))
    inputs.record("gpus", gpus, "derived", "GPU")
    known["gpus"] = leaf("gpus", gpus, "GPU")


def read_fewest(inputs: Inputs, known: Mapping[str, Term], hardware: Hardware) -> SolvedMachine:
    """Return the fewest GPUs with which the layout's steps train the tokens within the deadline, among the numbers that
    `napkin plan` tries; and how many it takes at either end of the step's interval."""
    inputs.defaults(SETUP_DEFAULTS)
    model, allowed, tokens = read_model(inputs), known["time"], float(known["tokens"].value)
    goodput = read_goodput(inputs)

    @cache
    def run(gpus: int) -> tuple[float, float]:
        """Return the calendar seconds of the run, and half the interval of their logarithm."""
        asked = inputs.changed({"gpus": str(gpus)})
        asked.defaults(SETUP_DEFAULTS)
        step = read_step(asked, model)
        layout = step.setup.layout
        each = float(step.prediction.step().time.value) / float(layout.global_batch * layout.seq)
        half, _ = step.prediction.half_width(step.confidence, named=step.stack_named)
        return goodput.run(tokens, each)[1], goodput.half_width(half, deviations(step.confidence))

    def in_time(gpus: int, end: int = 0) -> bool:
        seconds, half = run(gpus)
        return seconds * math.exp(end * half) <= float(allowed.value)

    counts = read_machines(inputs, gpus_per_node(hardware))
    found = fewest(in_time, counts, EIGHTHS)
    claim = f"no number of GPUs up to {found.most:,} trains {human(tokens, 'token')} within"
    hint = f"{MORE_RANKS}; " if "global-batch" in inputs.given else ""
    gpus = found.or_refuse(
        f"{claim} {human(allowed.value, 'second')} with this layout", f"{hint}napkin plan searches the layouts"
    )
    inputs.record("gpus", gpus, "solved", "GPU")
    inputs.depends(("within",), True)
    inputs.note(f"gpus is the fewest of those tried: {TRIED_IN_EIGHTHS}")
    low = fewest(lambda n: in_time(n, -1), counts, EIGHTHS).gpus
    high = fewest(lambda n: in_time(n, 1), counts, EIGHTHS).gpus
    if high is None:
        inputs.note("no number of GPUs that was tried is certain to meet the deadline")
    ends = None if low is None or high is None else (low, high)
    return SolvedMachine(leaf("gpus", gpus, "GPU", TRUE), allowed.renamed("time/allowed"), ends)

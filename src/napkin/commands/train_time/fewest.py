"""`napkin train-time MODEL` with a layout and no --gpus: the product of its degrees, the fewest that meet a deadline,
or the fewest that fine-tuning fits on where a budget pays for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from napkin.commands.inputs import Inputs
from napkin.commands.question.goodput import read_goodput
from napkin.commands.question.layout import MORE_RANKS, read_machines
from napkin.commands.question.model import read_model
from napkin.commands.question.software import read_most_sharded
from napkin.commands.question.step_model import StepQuestion, memory_terms, read_step
from napkin.commands.train_time.question import SolvedMachine
from napkin.evidence.rates.constants import deviations
from napkin.evidence.rates.machines import gpus_per_node
from napkin.inputs.hardware import Hardware
from napkin.operations.model import Model
from napkin.options.layout import OF_REPLICA
from napkin.options.training import SETUP_DEFAULTS
from napkin.planning.fewest import EIGHTHS, TRIED_IN_EIGHTHS, Fewest, fewest
from napkin.planning.verdicts import FITS
from napkin.render.figures import amount, briefly
from napkin.term import TRUE, Term, leaf
from napkin.timing.goodput import Goodput


def read_degrees(inputs: Inputs, known: dict[str, Term]) -> None:
    """Take the product of the degrees as the number of GPUs if --dp is given."""
    if "dp" not in inputs:
        return
    gpus = math.prod(inputs.integer(name) for name in ("dp", *(name for name in OF_REPLICA if name in inputs)))
    inputs.record("gpus", gpus, "derived", "GPU")
    known["gpus"] = leaf("gpus", gpus, "GPU")


def read_fewest(inputs: Inputs, known: Mapping[str, Term], hardware: Hardware) -> SolvedMachine:
    """Return the fewest GPUs on which the layout's steps surely fit and train the tokens in time, among the numbers
    that `napkin plan` tries; and the numbers for both ends of the interval of the step's time. If none fits, try the
    highest ZeRO stage over all GPUs and then full recomputation, unless the options fix these."""
    inputs.defaults(SETUP_DEFAULTS)
    model, allowed, tokens = read_model(inputs), known["time"], float(known["tokens"].value)
    counts = read_machines(inputs, gpus_per_node(hardware))
    found, runs, options = _read_first(inputs, model, counts, tokens, float(allowed.value))
    trains = f"trains {amount(tokens)} tokens within {briefly(allowed.value, 'second')} with this layout"
    claim = f"no number of GPUs up to {found.most:,} {'fits and ' if runs.too_large else ''}{trains}"
    hint = f"{MORE_RANKS}; " if "global-batch" in inputs.given else ""
    gpus = found.or_refuse(claim, f"{hint}napkin plan searches the layouts")
    _record(inputs, gpus, options)
    inputs.depends(("within",), True)
    low = fewest(lambda n: runs.enough(n, -1), counts, EIGHTHS).gpus
    high = fewest(lambda n: runs.enough(n, 1), counts, EIGHTHS).gpus
    if high is None:
        inputs.note("no number of GPUs that was tried is certain to meet the deadline")
    ends = None if low is None or high is None else (low, high)
    return SolvedMachine(leaf("gpus", gpus, "GPU", TRUE), allowed.renamed("time/allowed"), ends, options)


def read_smallest(inputs: Inputs, hardware: Hardware) -> Term:
    """Return the fewest GPUs on which the layout's step surely fits, with the same variants: with a budget and nothing
    else, as many tokens are paid for on few GPUs as on many, up to their communication."""
    inputs.defaults(SETUP_DEFAULTS)
    counts = read_machines(inputs, gpus_per_node(hardware))
    found, _, options = _read_first(inputs, read_model(inputs), counts, 1.0, math.inf)
    claim = f"the step is not certain to fit on any number of GPUs up to {found.most:,} with this layout"
    gpus = found.or_refuse(claim, "napkin memory suggests what makes it fit; --gpus N answers without it")
    _record(inputs, gpus, options)
    inputs.assume(f"{gpus} GPU{'s' if gpus > 1 else ''}, the fewest it fits on")
    return leaf("gpus", gpus, "GPU", TRUE)


def _read_first(
    inputs: Inputs, model: Model, counts: Sequence[int], tokens: float, allowed: float
) -> tuple[Fewest, _Runs, dict[str, str]]:
    """Return the fewest GPUs of the first variant with any that are enough, its runs, and the options that it takes."""
    for options in _read_ways(inputs):
        runs = _read_runs(inputs, model, options, tokens, allowed)
        found = fewest(runs.enough, counts, EIGHTHS)
        if found.gpus is not None or not runs.too_large:
            break
    return found, runs, _taken(found.gpus or 0, options)


def _taken(gpus: int, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a variant takes on this many GPUs: one GPU has no other to shard its states over."""
    return {name: text for name, text in options.items() if gpus != 1 or name == "recompute"}


def _record(inputs: Inputs, gpus: int, options: Mapping[str, str]) -> None:
    """Take a number of GPUs and the options that make its step fit, and say so."""
    for name, text in options.items():
        inputs.redefault(name, text)
    inputs.record("gpus", gpus, "solved", "GPU")
    taken = "; taken to fit: " + ", ".join(f"--{name} {text}" for name, text in options.items()) if options else ""
    inputs.note(f"gpus is the fewest of those tried on which the step surely fits: {TRIED_IN_EIGHTHS}{taken}")


def _read_ways(inputs: Inputs) -> list[dict[str, str]]:
    """Return the variants to try in order: the layout as given, then with the options that are left open."""
    sharded = read_most_sharded(inputs)
    again = {} if "recompute" in inputs.given else {"recompute": "full"}
    return [{}, *([sharded] if sharded else []), *([{**sharded, **again}] if again else [])]


def _read_runs(inputs: Inputs, model: Model, options: Mapping[str, str], tokens: float, allowed: float) -> _Runs:
    """Return the runs of the layout with these options."""

    def read_on(gpus: int) -> StepQuestion:
        asked = inputs.changed({"gpus": str(gpus), **_taken(gpus, options)})
        asked.defaults(SETUP_DEFAULTS)
        return read_step(asked, model)

    def read_share(step: StepQuestion) -> Goodput:
        return read_goodput(inputs, trained=(step.model, step.setup))

    return _Runs(read_on, read_share, tokens, allowed)


class _Runs:
    """Runs of a layout on any number of GPUs. too_large: whether one that meets the deadline may not fit."""

    def __init__(
        self,
        step_on: Callable[[int], StepQuestion],
        share_of: Callable[[StepQuestion], Goodput],
        tokens: float,
        allowed: float,
    ) -> None:
        self.step_on, self.share_of, self.tokens, self.allowed = step_on, share_of, tokens, allowed
        self.too_large = False
        self._goodput: Goodput | None = None
        self._known: dict[int, tuple[StepQuestion, dict[int, float]]] = {}
        self._fits: dict[int, bool] = {}

    def enough(self, gpus: int, end: int = 0) -> bool:
        """Return whether the run meets the deadline and fits; end: low end (-1), estimate (0) or high end (1) of its
        time."""
        step, seconds = self._run(gpus)
        return seconds[end] <= self.allowed and self._is_fitting(gpus, step)

    def _run(self, gpus: int) -> tuple[StepQuestion, dict[int, float]]:
        """Return the step, and the calendar seconds of the run by the end of their interval."""
        if gpus not in self._known:
            step = self.step_on(gpus)
            layout = step.setup.layout
            found = step.prediction.step().time
            each = float(found.value) / float(layout.global_batch * layout.seq)
            half, _ = step.prediction.half_width(step.confidence, named=step.stack_named, found=found)
            goodput = self._share(step).on(leaf("gpus", gpus, "GPU"))
            faster, slower = goodput.half_widths(half, deviations(step.confidence))
            _, seconds = goodput.run(self.tokens, each)
            ends = {-1: seconds / math.exp(faster), 0: seconds, 1: seconds * math.exp(slower)}
            self._known[gpus] = step, ends
        return self._known[gpus]

    def _share(self, step: StepQuestion) -> Goodput:
        """Return the goodput of runs that train what this step trains and save as much, on any number of GPUs."""
        if self._goodput is None:
            self._goodput = self.share_of(step)
        return self._goodput

    def _is_fitting(self, gpus: int, step: StepQuestion) -> bool:
        """Return whether the step surely fits; True if its memory is unknown."""
        if gpus not in self._fits:
            _, fit, _ = memory_terms(step.model, step.setup, step.hardware.capacity)
            self._fits[gpus] = fit in (None, FITS)
            self.too_large |= not self._fits[gpus]
        return self._fits[gpus]

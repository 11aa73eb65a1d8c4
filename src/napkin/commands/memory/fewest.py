"""`napkin memory --min gpus`: the fewest GPUs on which a training step surely fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from napkin.commands.inputs import Inputs
from napkin.commands.memory.question import read
from napkin.commands.question.divisions import read_degrees
from napkin.commands.question.layout import MORE_RANKS, read_machines, read_whether_alone
from napkin.commands.question.machine import read_hardware
from napkin.commands.question.software import read_most_sharded
from napkin.errors import NapkinError
from napkin.evidence.rates.machines import gpus_per_node
from napkin.footprint.loading import GPU
from napkin.operations.model import Model
from napkin.planning.fewest import TRIED, Fewest, fewest
from napkin.planning.remedy_axes import Options
from napkin.planning.verdicts import FITS, NOT
from napkin.record import replace
from napkin.render.answer import Answer, Shown
from napkin.render.screen import Next
from napkin.term import TRUE, leaf

GIVEN = ("gpus", "nodes", "dp", "max", "snapshot", "tensors")
"""Options that ask a different question or give the answer."""


def run_fewest(inputs: Inputs, model: Model, answer: Callable[[Inputs], Answer]) -> Answer:
    """Answer with the memory on the fewest GPUs on which the step surely fits: powers of two up to a node, then whole
    nodes; sharded as far as the software does, without recomputation or, where that takes fewer GPUs, with full
    recomputation, unless the options fix these."""
    check_free(inputs, GIVEN)
    sharded = read_most_sharded(inputs)
    again: list[Options] = [sharded] if "recompute" in inputs.given else [sharded, {**sharded, "recompute": "full"}]
    searches = [(read_fewest(inputs, model, options), options) for options in again]
    found, options = min(searches, key=lambda one: one[0].gpus or math.inf)
    claim = f"{model.name} is not certain to fit on any number of GPUs up to {found.most:,} with this layout"
    gpus = found.or_refuse(claim, _read_ways(inputs, model))
    fewer = run_on_fewest(gpus, inputs, options, answer, f"on which the step surely fits, of {TRIED}")
    if gpus == 1:
        idle = _read_idle_alone(inputs)
        inputs.depends(idle, True)  # a condition of the search
        fewer.notes += [f"--{name} changes nothing on one GPU" for name in idle]
    else:
        tried = [TRIED, *(f"ZeRO-{stage}" for stage in sharded.values())]
        tried += ["recompute none and full"] if len(again) > 1 else []
        others = " or ".join(f"--{name}" for name in read_degrees(inputs) if name not in inputs.given)
        says = f"searched: {'; '.join(tried)}" + (f"; {others}, which plan searches, may need fewer" if others else "")
        fewer.screen = replace(fewer.screen, remarks=(*fewer.screen.remarks, says))
    return fewer


def _read_ways(inputs: Inputs, model: Model) -> str:
    """Return changes that reduce memory per GPU, among those that the options leave open."""
    ways = [MORE_RANKS] if "global-batch" in inputs.given else []
    ways += ["a smaller --micro-batch"] if inputs.integer("micro-batch") > 1 else []
    wider = inputs.integer("tp") == 1 and "tp" in read_degrees(inputs)
    ways += ["--loading host"] if inputs.text_or_none("loading") == GPU else []
    ways += ["a shorter --seq"] + (["--tp 8"] if wider else [])
    ways += ["--ep 8"] if model.experts and inputs.integer("ep") == 1 else []
    return ", or ".join([", ".join(ways[:-1]), ways[-1]] if len(ways) > 1 else ways)


def check_free(inputs: Inputs, names: Iterable[str]) -> None:
    """Reject options that, with --min gpus, ask a different question or give the answer."""
    for name in names:
        if name in inputs and inputs.value(name):
            raise NapkinError(f"--min gpus and --{name} cannot be combined", "leave out one of the two")
    inputs.depends(("min",), True)


def run_on_fewest(
    gpus: int, inputs: Inputs, options: Options, answer: Callable[[Inputs], Answer], which: str
) -> Answer:
    """Answer on this many GPUs, as the solution. options: options that were chosen; which: the condition, in words, for
    which it is the fewest."""
    options = _on(gpus, options)
    chosen = inputs.changed({"gpus": str(gpus), **options})
    found = answer(chosen)
    inputs.adopt(chosen)
    found.terms = (leaf("gpus", gpus, "GPU", TRUE), *found.terms)
    for name in ("gpus", *options):
        shown = chosen.shown[name]
        chosen.shown[name] = Shown(shown.value, shown.text, "solved" if name == "gpus" else "default", shown.unit)
    known = (*inputs.command.names, *inputs.command.figures)
    found.inputs = {**{name: one for name, one in chosen.shown.items() if name in known}, **found.inputs}
    said = ", ".join(f"--{name} {text}" for name, text in options.items())
    found.notes = [
        *chosen.notes,
        f"gpus is the fewest {which}" + (f"; assumed where not given: {said}" if said else ""),
        *found.notes,
    ]
    screen, following = found.screen, found.screen.next
    if isinstance(following, Next):
        idle = dict.fromkeys(_read_idle_alone(inputs)) if gpus == 1 else {}
        changes = {"min": None, "gpus": str(gpus), **options, **idle, **following.changes}
        following = replace(following, changes=changes)
    count = f"{gpus:,} GPU{'s' if gpus > 1 else ''}"
    found.screen = replace(screen, headline=(count, *screen.headline), next=following)
    return found


def _read_idle_alone(inputs: Inputs) -> list[str]:
    """Return the given options of sharding that have no effect on one GPU."""
    given = [name for name in ("zero", "distributed-optimizer") if name in inputs]
    return [name for name in given if name != "zero" or not read_whether_alone(inputs)]


def _on(gpus: int, options: Options) -> Options:
    """Return the options that have an effect on this many GPUs: a single GPU has nothing to shard."""
    return options if gpus > 1 else {name: text for name, text in options.items() if name != "zero"}


def read_fewest(inputs: Inputs, model: Model, options: Options) -> Fewest:
    """Return the fewest GPUs on which the step surely fits, and on which weights can be loaded."""

    def fits(gpus: int) -> bool:
        question = read(inputs.changed({"gpus": str(gpus), **_on(gpus, options)}), model)
        found = question.evaluate(question.model, question.setup)
        return found.steps == FITS and found.loads != NOT

    return fewest(fits, read_machines(inputs, gpus_per_node(read_hardware(inputs, ("memory-size",)))))

"""How GPUs divide a served model: the given degrees, checked."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.nodes import read_gpus
from napkin.errors import NapkinError
from napkin.operations.model import Model
from napkin.planning.engines import EngineMemory
from napkin.planning.served import undivided_when_served
from napkin.planning.serving_search import GivenRanks, divisions
from napkin.record import replace

DEGREES = ("tp", "pp", "ep", "dp")


def read_ranks(inputs: Inputs, model: Model, engine: EngineMemory) -> GivenRanks:
    """Return the given GPUs and degrees; degrees that the engine does not support are 1."""
    read_gpus(inputs)
    if inputs.has("min"):
        inputs.depends(("min",), True)
        if given := [name for name in ("gpus", "nodes", "dp") if name in inputs]:
            raise NapkinError(f"--min gpus and --{given[0]} cannot be combined", "leave out one of the two")
    tp, pp, ep, dp = (inputs.integer_or_none(name) for name in DEGREES)
    found = GivenRanks(inputs.integer_or_none("gpus"), tp, pp, ep, dp)
    _check(model, found)
    searched = {name: 1 for name in ("tp", "pp", "ep") if name not in inputs and name not in engine.divides}
    usual = replace(found, **searched)
    if divisions(model, usual):
        return usual
    if usual != found and divisions(model, found):
        raise NapkinError(
            f"{engine.name} divides a model by --{' and --'.join(engine.divides)}, which does not go here",
            f"--{next(iter(searched))} says otherwise",
        )
    shown = " × ".join(f"--{name} {degree:,}" for name in DEGREES if (degree := getattr(found, name)) is not None)
    if found.gpus is None:
        raise NapkinError(f"{shown} does not divide the model", "leave out one of them")
    raise NapkinError(f"{shown} does not divide --gpus {found.gpus:,}", "leave out one of them")


def _check(model: Model, given: GivenRanks) -> None:
    """Reject degrees that contradict each other or that the model does not allow."""
    if given.tp is not None and (what := undivided_when_served(model, given.tp)):
        raise NapkinError(f"--tp {given.tp:,} does not divide {what}", "a divisor of it")
    if given.pp is not None and given.pp > model.depth:
        raise NapkinError(f"--pp {given.pp:,}: {model.name} has {model.depth:,} layers", "fewer stages")
    if None not in (given.gpus, given.tp, given.dp):
        product = (given.tp or 1) * (given.pp or 1) * (given.dp or 1)
        if given.gpus != product:
            stages = "" if given.pp is None else f" × --pp {given.pp:,}"
            raise NapkinError(
                f"a contradiction: --tp {given.tp:,}{stages} × --dp {given.dp:,} is not --gpus {given.gpus:,}",
                "leave out --dp",
            )
    if given.ep is None or given.ep == 1:
        return
    if not model.experts:
        raise NapkinError(f"--ep {given.ep:,}: {model.name} has no experts", "leave it out")
    if any(number % given.ep for number in model.experts):
        raise NapkinError(f"--ep {given.ep:,} does not divide the experts ({min(model.experts):,})", "a divisor of it")

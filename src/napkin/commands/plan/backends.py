"""The frameworks of a layout search whose library means one by each ZeRO stage."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.setup import read_setup_around
from napkin.commands.question.software import read_named_trainer, read_stage
from napkin.operations.model import Model
from napkin.planning.grid import Request
from napkin.training.framework import ANY
from napkin.training.layout import Layout
from napkin.training.setup import Setup


def read_sharded(inputs: Inputs, model: Model, layout: Layout) -> tuple[tuple[tuple[int, ...], Setup], ...]:
    """Return the setups of ZeRO stages that mean a framework, with these stages; none if the options fix the framework
    or the stage. layout: what all layouts share."""
    trainer = read_named_trainer(inputs)
    if trainer is None or inputs.has("framework") or read_stage(inputs) is not None:
        return ()
    found = []
    for name in dict.fromkeys(filter(None, map(trainer.implied, ANY))):
        asked = inputs.changed({"framework": name})
        stages = tuple(stage for stage in ANY if trainer.implied(stage) == name)
        found.append((stages, read_setup_around(asked, model, layout)))
        inputs.adopt(asked)
        said = " and ".join(f"ZeRO-{stage}" for stage in stages)
        inputs.note(f"{said}: on {name}, as they mean in {trainer.name}, which divides no states by itself")
    return tuple(found)


def record_software(inputs: Inputs, request: Request, layout: Layout) -> None:
    """Record the framework and the precision of the recommended layout, if they differ between ZeRO stages."""
    if not request.sharded:
        return
    setup = request.setup_with(int(layout.zero))
    inputs.redefault("precision", setup.precision.stated)
    if setup != request.setup:
        inputs.redefault("framework", setup.framework.name)
        inputs.guesses("framework")
        inputs.assume(f"{setup.framework.name} for ZeRO-{layout.zero}")

"""Whether the software and the model have the modules that selective recomputation names."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.operations.model import Model
from napkin.operations.recomputed_parts import parts_of
from napkin.options.modules import EXPERT_ACTIVATION, LATENT_UP
from napkin.training.framework import Framework
from napkin.training.frameworks import FRAMEWORKS
from napkin.training.recomputation import Recompute

NEEDED = {EXPERT_ACTIVATION: "no experts", LATENT_UP: "no latent attention"}
"""Modules without which Megatron-core does not start (transformer_config.py, __post_init__), and what the model then
lacks."""


def check_parts(inputs: Inputs, framework: Framework, model: Model, recompute: Recompute) -> None:
    """Reject modules that the software does not recompute by name, or that the model cannot have. What no layer has is
    noted: it changes nothing, and files list modules for several models."""
    option = f"--recompute {recompute.word}"
    if set(recompute.apart) - {*framework.recomputes}:
        having = " or ".join(name for name, one in FRAMEWORKS.items() if {*recompute.apart} <= {*one.recomputes})
        raise NapkinError(
            f"{option}: {framework.says} does not recompute modules by name",
            f"--framework {having}, or --recompute selective, operations or full",
        )
    layers = [layer for stack in model.stacks for layer in stack.layers]
    for module in recompute.apart:
        if any(parts_of(layer.operations, (module,)) for layer in layers):
            continue
        if module in NEEDED:
            raise NapkinError(f"{option}: {model.name} has {NEEDED[module]}, so {module} fails", "leave it out")
        inputs.note(f"{option}: no layer of {model.name} has {module} apart, so that it changes nothing")

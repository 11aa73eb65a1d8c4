"""The weights of an engine on the trainer's GPUs, from the options."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.frozen import read_quantized
from napkin.planning.rollouts import FORMAT
from napkin.training.trainers import Trainer


def read_shares(inputs: Inputs, trainer: Trainer) -> bool:
    """Return whether the trainer's frozen weights are the engine's own."""
    return trainer.shares and inputs.has("lora-rank")


def read_form(inputs: Inputs, trainer: Trainer) -> str:
    """Return the number format of the engine's weights: the trainer's where they share them."""
    return (read_quantized(inputs) or FORMAT) if read_shares(inputs, trainer) else FORMAT

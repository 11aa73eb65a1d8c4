"""The setup of a model as it is trained, for commands that ask what is trained and not on which machine."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.commands.question.setup import read_setup_around
from napkin.operations.model import Model
from napkin.options.training import OF_FROZEN, SETUP_DEFAULTS
from napkin.training.layout import Layout
from napkin.training.setup import Setup


def read_trained_setup(inputs: Inputs, model: Model) -> Setup:
    """Return the setup of a step on one rank."""
    others = [name for name in inputs.given if name not in inputs.command.names]  # of a file for several commands
    asked = inputs.changed(dict.fromkeys((*OF_FROZEN, *others)))
    asked.defaults(SETUP_DEFAULTS)
    setup = read_setup_around(asked, model, Layout(seq=1))
    inputs.adopt(asked)
    inputs.depends(others, False, "this answer does not depend on it")
    return setup

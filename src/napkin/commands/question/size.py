"""A bare size given as MODEL, for commands that need only a count; loads no model."""

from __future__ import annotations

from collections.abc import Iterable

from napkin.commands.inputs import Inputs
from napkin.errors import NapkinError
from napkin.inputs.sizes import size_of


def read_size(inputs: Inputs, shaped: Iterable[str]) -> None:
    """Read a bare size given as MODEL as --params, for a command that needs only a count.

    shaped  options that need a model's shapes: if one is given, the size remains MODEL
    """
    if "model" not in inputs or any(name in inputs for name in shaped):
        return
    size = size_of(inputs.text("model"))
    if size is None:
        return
    if "params" in inputs and inputs.integer("params") != size:
        raise NapkinError(
            f"a contradiction: MODEL {inputs.text('model')} and --params {inputs.shown['params'].text} are two sizes",
            "leave out one of the two",
        )
    inputs.means("model", "params")

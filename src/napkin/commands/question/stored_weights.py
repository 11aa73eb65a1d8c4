"""The format of served weights, from the options and the model's file."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.errors import Refused
from napkin.footprint import served_weights
from napkin.footprint.served_weights import WIDE, StoredWeights
from napkin.operations.model import Model

WEIGHTS = "bf16"
"""Number format of weights if neither says one."""


def read_weights(inputs: Inputs, model: Model) -> StoredWeights:
    """Return the format of --dtype, else that of a quantized checkpoint. Refused (3) if napkin does not know it."""
    stored = model.checkpoint
    if "dtype" in inputs or stored is None:
        return served_weights.stored(inputs.text("dtype", default=WEIGHTS))
    if not stored.format:
        raise Refused(
            f"{model.name}: quantization_config: napkin does not know how {stored.method} stores weights",
            "--dtype says what they take, --dtype int4 for 4 bits",
        )
    inputs.record("dtype", stored.format, "model file")
    if stored.unlisted:
        inputs.assume(stored.assumed)
    inputs.note(f"weights as the checkpoint stores them ({stored.method}); --dtype takes another format")
    return StoredWeights(stored.format, stored.each, WIDE, stored.kept)

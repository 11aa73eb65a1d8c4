"""The share of a run's calendar time that is training, from --goodput."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.timing.goodput import IN_MFU, Goodput


def read_goodput(inputs: Inputs, of_mfu: bool = False) -> Goodput:
    """Return the share that is given, else that of published runs; of_mfu: a whole-run MFU is given, with all in it."""
    if "goodput" in inputs.given:
        return Goodput(inputs.term("goodput"))
    if of_mfu:
        return IN_MFU
    from napkin.evidence.goodput import NOTE, PUBLISHED

    inputs.note(NOTE.format(PUBLISHED.share.value))
    inputs.record("goodput", PUBLISHED.share.value, "evidence")
    return PUBLISHED

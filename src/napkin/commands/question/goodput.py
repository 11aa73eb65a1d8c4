"""The share of a run's calendar time that is training, from --goodput and the kind of run."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.timing.goodput import IN_MFU, Goodput

PRODUCTION = "production"


def read_goodput(inputs: Inputs, of_mfu: bool = False, of_runs: bool = False) -> Goodput:
    """Return the share that is given, else that of published runs of the kind; of_mfu: a whole-run MFU is given, with
    all in it; of_runs: published whole runs of the kind say the rest."""
    if of_mfu:
        inputs.because(("run-kind",), "the MFU of a whole run is given, or what is asked for", "leave out --mfu")
        return Goodput(inputs.term("goodput")) if "goodput" in inputs.given else IN_MFU
    if "goodput" in inputs.given and not of_runs:
        inputs.because(("run-kind",), "--goodput says what it would, and the step model the rest")
        return Goodput(inputs.term("goodput"))
    kind = inputs.text_or_none("run-kind") or PRODUCTION
    if "goodput" in inputs.given:
        return Goodput(inputs.term("goodput"), run_kind=kind)
    from napkin.evidence.goodput import PUBLISHED, note

    published = PUBLISHED[kind]
    inputs.note(note(published))
    inputs.record("goodput", published.share.value, "evidence")
    return published

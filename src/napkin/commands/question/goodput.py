"""The share of a run's calendar time that is training, from --goodput and the kind of run."""

from __future__ import annotations

from napkin.commands.inputs import Inputs
from napkin.options.question import OF_FAILURES
from napkin.record import replace
from napkin.term import leaf
from napkin.timing.goodput import IN_MFU, Goodput

TYPE_CHECKING = False  # mypy takes it as true; a run without a layout needs neither
if TYPE_CHECKING:
    from napkin.operations.model import Model
    from napkin.training.setup import Setup

PRODUCTION = "production"


def read_goodput(
    inputs: Inputs, of_mfu: bool = False, of_runs: bool = False, trained: tuple[Model, Setup] | None = None
) -> Goodput:
    """Return the given goodput, else that of published runs of the kind. of_mfu: a whole-run MFU is given, which
    includes all losses; of_runs: published complete runs of the kind give the rest; trained: what checkpoints hold, if
    known."""
    if of_mfu:
        said = "the MFU of a whole run is given or solved for"
        inputs.because(("run-kind", *OF_FAILURES), said, "leave out --mfu")
        return Goodput(inputs.term("goodput")) if "goodput" in inputs.given else IN_MFU
    if "goodput" in inputs.given:
        inputs.because(OF_FAILURES, "--goodput says what failures take", "leave out --goodput")
    if "goodput" in inputs.given and not of_runs:
        inputs.because(("run-kind",), "--goodput says what it would, and the step model the rest")
        return Goodput(inputs.term("goodput"))
    kind = inputs.text_or_none("run-kind") or PRODUCTION
    if "goodput" in inputs.given:
        return Goodput(inputs.term("goodput"), run_kind=kind)
    from napkin.evidence.figures.failures import USUAL_GPUS
    from napkin.evidence.figures.goodput import note, published

    tunes = trained is not None and trained[1].tunes and not trained[1].task.rollout
    if tunes:
        from napkin.evidence.predictions import tuning_runs

        found, on = tuning_runs.goodput(kind), tuning_runs.gpus()
    else:
        found, on = published(kind), USUAL_GPUS
    if kind == PRODUCTION and not of_runs:
        return _read_predicted(inputs, found, trained, on)
    whole = "the MFU of published runs has their failures in it" if of_runs else f"a {kind} is too short for failures"
    hint = "napkin plan, or a layout (--tp, --zero, …), predicts failures" if of_runs else "leave it out"
    inputs.because(OF_FAILURES, whole, hint)
    inputs.note(note(found))
    inputs.record("goodput", found.share.value, "evidence")
    return found


def _read_predicted(inputs: Inputs, published: Goodput, trained: tuple[Model, Setup] | None, on: float) -> Goodput:
    """Return the goodput that failures, checkpoints and restarts leave, by the number of GPUs. on: the GPUs of the
    published runs."""
    from napkin.evidence.figures.failures import published as published_failures
    from napkin.evidence.figures.goodput import NOTE_PREDICTED

    spares = inputs.term("spares") if inputs.has("spares") else None
    failing = published_failures(published.share, spare=spares is not None, on=on)
    if trained is not None:
        from napkin.footprint.checkpointed import saved_states

        failing = failing.saving(saved_states(*trained))
    own = [inputs.has(name) for name in ("gpu-mtbf", "write-bandwidth", "restart-time")]
    if own[0]:
        failing = replace(failing, gpu_mtbf=leaf("gpu_mtbf", float(inputs.number("gpu-mtbf")), "GPU-second"))
    if own[1]:
        failing = replace(failing, write=replace(failing.write, whole=inputs.term("write-bandwidth")))
    if own[2]:
        failing = replace(failing, restart=inputs.term("restart-time", "restart"))
    rate, write, restart = (0.0 if is_own else wide for is_own, wide in zip(own, failing.spreads, strict=True))
    every = inputs.term("checkpoint-interval", "checkpoint/interval") if inputs.has("checkpoint-interval") else None
    failing = replace(failing, spreads=(rate, write, restart), every=every)
    found = replace(published, interruptions=failing, spares=spares)
    gpus = inputs.peek("gpus")
    shown = found.on(leaf("gpus", gpus, "GPU")) if isinstance(gpus, int) else found
    inputs.note(NOTE_PREDICTED)
    inputs.record("goodput", shown.share.value, "evidence")
    return found

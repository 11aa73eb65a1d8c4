"""What `train-time` is asked, once it is read."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.inputs.hardware import Hardware
from napkin.record import record
from napkin.term import Term
from napkin.timing.goodput import Goodput

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.commands.question.step_model import StepQuestion


@record
class SolvedMachine:
    """The fewest GPUs with which a layout meets a deadline; ends: how many at either end of the interval of a step's
    time, None if no number that was tried is certain to; options: what was taken, if nothing was given, for the
    step to fit."""

    gpus: Term
    allowed: Term
    ends: tuple[int, int] | None
    options: Mapping[str, str]


@record
class TrainTimeQuestion:
    """A training run with something left out.

    known      what is given among params, tokens, gpus, mfu and time; per_token: FLOPs per token if they differ
               from 6 a parameter
    counted    FLOPs per token as counted, for a model, next to `convention`, in which per_token is
    peak       of one accelerator, FLOP/s/GPU
    draw       of one accelerator with its host, as measured; None: its TDP counts
    overhead, pue, carbon  what energy and carbon take on top of the accelerators
    limits     deadline ("time") and budget that are given although the rest determines the run: they are judged
    confidence  of the intervals where MFU is estimated; None: it is given or solved for
    goodput    share of the calendar time that is training
    step       the layout whose step the estimate rests on, if any
    weighed    whether that step's memory is evaluated too
    measured   whether the MFU is that of a measured rate, of training alone: goodput comes on top
    named      what the model is called; "" if only its size is given
    data       of samples: their real tokens, and the share that padding wastes
    solved     the GPUs that a given layout takes to meet a deadline, if they are what is asked for
    """

    known: Mapping[str, Term]
    counted: Term | None
    convention: str
    hardware: Hardware
    peak: Term
    budget: Term | None
    price: Term | None
    limits: Mapping[str, Term]
    overhead: Term
    pue: Term
    carbon: Term
    confidence: float | None
    goodput: Goodput
    step: StepQuestion | None
    named: str
    solved: SolvedMachine | None = None
    data: tuple[Term, ...] = ()
    draw: Term | None = None
    weighed: bool = True
    measured: bool = False

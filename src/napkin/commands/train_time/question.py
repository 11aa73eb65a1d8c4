"""The question of `train-time`, as a record."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.inputs.hardware import Hardware
from napkin.record import record
from napkin.term import Term
from napkin.timing.goodput import Goodput

TYPE_CHECKING = False  # mypy takes it as true; the module typing is slow to load
if TYPE_CHECKING:
    from napkin.commands.question.step_model import StepQuestion
    from napkin.evidence.figures.prices import Price


@record
class SolvedMachine:
    """The fewest GPUs with which a layout meets a deadline; ends: the numbers at both ends of the interval of the
    step's time, None if no number that was tried is certain; options: options that were chosen for the step to fit."""

    gpus: Term
    allowed: Term
    ends: tuple[int, int] | None
    options: Mapping[str, str]


@record
class TrainTimeQuestion:
    """A training run with an unknown to solve for.

    known      given values among params, tokens, gpus, mfu and time; per_token: FLOPs per token, if not 6 per parameter
    counted    counted FLOPs per token of a model; per_token follows `convention`
    excess     how many times the FLOPs that masks allow per_token counts, at least 1
    peak       of one accelerator, FLOP/s/GPU
    draw       measured power of one accelerator with its share of the host; None: its TDP
    overhead, pue, carbon  factors for energy beyond the accelerators, and for carbon
    market     what sellers ask, where no price is given and one is needed
    limits     deadline ("time") and budget to judge the run by, if they are not needed to solve it
    confidence  level of the intervals if MFU is estimated; None: it is given or solved for
    goodput    share of calendar time spent training
    step       the layout whose step gives the estimate, if any
    weighed    whether the memory of that step is evaluated
    measured   whether the MFU comes from a measured training rate, to which goodput applies
    named      the model's name; "" if only its size is given
    data       samples: their real tokens, and the share of padding
    solved     the GPUs that a given layout needs to meet a deadline, if that is the question
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
    excess: float = 1.0
    market: Price | None = None

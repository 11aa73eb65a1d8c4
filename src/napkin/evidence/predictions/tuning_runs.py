"""How much longer published runs of fine-tuning took than the steps that they are made of, by their trainers' clocks:
start-up, waits for samples, evaluation and checkpoints come on top.

Each source weighs the same. The usual run is the middle one; the interval is that of the steps and, on either side, how
far runs lay outside of it. A row is judged only with the rows of other sources."""

from __future__ import annotations

import math

from napkin._tables.tuning_run_errors import RUNS, Run
from napkin.evidence.figures.goodput import published
from napkin.evidence.intervals.ranking import over_sources
from napkin.evidence.intervals.steps import NORMAL_90
from napkin.evidence.predictions.runs import PRODUCTION
from napkin.record import replace
from napkin.term import SEEN, leaf
from napkin.timing.goodput import Goodput

LEVEL = 0.9
"""Of the steps' intervals in the table, and of the quantile."""


def goodput(kind: str, without: str = "") -> Goodput:
    """Return the goodput of runs of fine-tuning of a kind. without: a source that is held out."""
    if kind != PRODUCTION:
        return published(kind, tunes=True)
    more, less = spreads(without)
    sources = len({run[1] for run in RUNS})
    said = f"steps over the time of {len(RUNS)} published runs of fine-tuning, the middle of {sources} sources"
    whole = leaf("goodput", share(without), "1", SEEN, said)
    return replace(published(kind), share=whole, spread=more, loss=less)


def share(without: str = "") -> float:
    """Return the share of a usual run's time that its steps take. without: a source that is held out."""
    return math.exp(-_middle(_others(without)))


def spreads(without: str = "") -> tuple[float, float]:
    """Return σ of that share's logarithm, upwards and downwards, in addition to what is not known of the steps."""
    runs = _others(without)
    middle = _middle(runs)
    faster = over_sources(((run[1], _outside(middle - run[3], run[4])) for run in runs), LEVEL)
    slower = over_sources(((run[1], _outside(run[3] - middle, run[5])) for run in runs), LEVEL)
    return faster / NORMAL_90, slower / NORMAL_90


def gpus() -> float:
    """Return the geometric mean of the runs' GPUs."""
    return math.exp(sum(math.log(run[2]) for run in RUNS) / len(RUNS))


def _others(without: str) -> list[Run]:
    return [run for run in RUNS if run[1] != without]


def _middle(runs: list[Run]) -> float:
    """Return ln(time / steps) of the usual run."""
    return over_sources(((run[1], run[3]) for run in runs), 0.5)


def _outside(off: float, half: float) -> float:
    """Return what is missing in half an interval of ln(steps) to reach a run that is that far off."""
    return math.sqrt(max(off**2 - half**2, 0.0)) if off > 0 else 0.0
